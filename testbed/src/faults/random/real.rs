//! A real Ollama in place of the stand-ins: its program, its library directory, and a model that it created
//! once.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use vgpu_testbed::backends::Backend;

use super::super::plan::{ScenePlan, When};
use super::super::scene::install::link;
use super::super::scene::process::Process;
use super::super::scene::{Scene, free_port};
use super::super::settings::{Era, MODEL};

/// Limit of creating the model.
const LIMIT: Duration = Duration::from_mins(2);

/// An installed release of the real Ollama.
pub struct Release {
    program: PathBuf,
    libraries: PathBuf,
    era: Era,
    /// Value of `OLLAMA_MODELS`: the directory that contains the model.
    models: TempDir,
}

impl Release {
    /// Returns the release whose program is at `program`, with `../lib/ollama` beside it as in Ollama's
    /// archive.
    pub fn find(program: &Path) -> Result<Self> {
        let program = program.canonicalize().with_context(|| format!("find {}", program.display()))?;
        let prefix = program.parent().and_then(Path::parent).context("the program has no folder")?;
        let libraries = prefix.join("lib/ollama");
        if !libraries.is_dir() {
            bail!("there is no {}", libraries.display());
        }
        let text = fs::read(&program).with_context(|| format!("read {}", program.display()))?;
        let has = |text_of_era: &[u8]| memchr::memmem::find(&text, text_of_era).is_some();
        // The launcher distinguishes the eras by the same log lines.
        let era = match (has(b"discovering available GPUs"), has(b"llama-server --list-devices")) {
            (true, true) => Era::C,
            (true, false) => Era::B,
            (false, _) => Era::A,
        };
        let models = TempDir::with_prefix("vgpu-models-").context("make a folder for the model")?;
        let release = Self { program, libraries, era, models };
        release.make_model().context("have the real Ollama make a model")?;
        Ok(release)
    }

    /// Has a server without the launcher create the model from the file in the artifact cache.
    fn make_model(&self) -> Result<()> {
        let file = vgpu_artifacts::fetch("smollm2")?.join("SmolLM2-135M-Instruct.Q4_1.gguf");
        let host = format!("127.0.0.1:{}", free_port()?);
        let modelfile = self.models.path().join("Modelfile");
        fs::write(&modelfile, format!("FROM {}\n", file.display()))?;
        let ollama = |word: &str| {
            let mut command = Command::new(&self.program);
            command.arg(word).env("OLLAMA_HOST", &host).env("HOME", self.models.path());
            command.env("OLLAMA_MODELS", self.models.path().join("models")).env("OLLAMA_NO_CLOUD", "1");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let _server = Process::start(&mut ollama("serve"))?;
        let end = Instant::now() + LIMIT;
        // The server may not listen yet.
        while !ollama("create").args([MODEL, "-f"]).arg(&modelfile).status()?.success() {
            if Instant::now() > end {
                bail!("ollama create does not succeed within {} s", LIMIT.as_secs());
            }
        }
        // Servers of other users must be able to read the model.
        let readable = Command::new("chmod").args(["-R", "a+rwX"]).arg(self.models.path()).status()?;
        if readable.success() { Ok(()) } else { bail!("chmod: {readable}") }
    }

    /// Plans the release in place of the stand-in. Backends of the release replace the cached ones; otherwise
    /// the backend is the one whose kernels the soft executor can run.
    pub fn plan(&self, plan: &mut ScenePlan) {
        plan.backends = vec![Backend::Cuda12];
        plan.capability("6.1");
        plan.era = self.era;
        let models = self.models.path().join("models");
        plan.set("OLLAMA_MODELS", models.display().to_string());
        plan.set("OLLAMA_NO_CLOUD", "1");
        plan.set("OLLAMA_NOPRUNE", "1");
        if self.libraries.join("cuda_v13").is_dir() {
            plan.backends.clear();
            plan.capability("7.5");
        }
        let (program, libraries) = (self.program.clone(), self.libraries.clone());
        let install = move |scene: &mut Scene| {
            // These settings also reach servers that the plan's environment does not.
            fs::create_dir(scene.path("home/.ollama"))?;
            fs::set_permissions(scene.path("home/.ollama"), fs::Permissions::from_mode(0o777))?;
            symlink(models, scene.path("home/.ollama/models"))?;
            replace(scene, &program, &libraries)
        };
        // The installation precedes all steps that change it.
        plan.steps.insert(0, (When::Installed, Box::new(install)));
    }
}

/// Replaces the stand-in's files by those of the release, except for backends from the cache.
fn replace(scene: &Scene, program: &Path, libraries: &Path) -> Result<()> {
    fs::remove_file(scene.ollama())?;
    link(program, &scene.ollama())?;
    let into = scene.library("");
    for entry in fs::read_dir(&into)? {
        let path = entry?.path();
        if !path.is_dir() {
            fs::remove_file(path)?;
        }
    }
    lay(libraries, &into)
}

/// Links the files of a directory into another.
fn lay(from: &Path, into: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let (from, to) = (entry.path(), into.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
        } else if kind.is_dir() {
            fs::create_dir(&to)?;
            lay(&from, &to)?;
        } else {
            link(&from, &to)?;
        }
    }
    Ok(())
}
