//! A language model in a guest process: `vgpu-llama` on the CPU, or under the launcher with a bus's device,
//! and the lines that it prints.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use tempfile::NamedTempFile;
use vgpu_llama::event::{Event, Job};
use vgpu_llama::ffi::Encoding;

use crate::backends::Backend;
use crate::programs;

/// Where the model's layers are.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// In ordinary memory.
    Cpu,
    /// On the device of the bus in this folder.
    Gpu(&'a Path),
    /// On a GPU of this machine, by NVIDIA's driver: without the launcher, with the libraries of these
    /// folders before those that the loader finds anyway.
    Native(&'a [PathBuf]),
}

/// What becomes of the libraries' log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTo {
    /// All of it goes to this process's stderr.
    Stderr,
    /// Warnings and errors do.
    StderrIfWrong,
    /// All of it is kept: [`LlamaProcess::log`].
    File,
}

/// How the model is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The build of llama.cpp and its CUDA backend.
    pub backend: Backend,
    /// A GGUF file.
    pub model: PathBuf,
    /// Another one, with a context of its own in the same process: each job is done with both.
    pub second: Option<PathBuf>,
    /// Fused attention; `None`: llama.cpp decides.
    pub flash_attention: Option<bool>,
    /// Whether GGML may capture a token's work as a graph. It does where the device's compute capability is 7.0
    /// or newer.
    pub graphs: bool,
    /// Threads of the CPU backend; `None`: the program decides.
    pub threads: Option<u32>,
    /// Tokens behind each prompt.
    pub tokens: usize,
    /// Go on behind a token that ends the text.
    pub past_end: bool,
    /// Prompts are questions, for the model's chat template.
    pub chat: bool,
    /// When so many tokens are decoded behind a prompt, and after each further one, the program waits:
    /// [`LlamaProcess::resume`].
    pub pause_from: Option<usize>,
    /// Where raw logits go.
    pub logits: Option<PathBuf>,
    /// What becomes of the log.
    pub log: LogTo,
}

impl Settings {
    /// Returns the usual settings.
    pub fn new(model: PathBuf, tokens: usize) -> Self {
        Self {
            backend: Backend::Cuda12,
            model,
            second: None,
            flash_attention: None,
            graphs: true,
            threads: None,
            tokens,
            past_end: false,
            chat: false,
            pause_from: None,
            logits: None,
            log: LogTo::StderrIfWrong,
        }
    }

    /// Starts the program with `jobs`.
    pub fn start(&self, place: Place<'_>, jobs: &[Job]) -> Result<LlamaProcess> {
        let libraries = self.backend.folder()?;
        let mut file = NamedTempFile::with_prefix("vgpu-jobs-").context("make a file for the prompts")?;
        serde_json::to_writer(&mut file, jobs).context("write the prompts")?;
        file.flush().context("write the prompts")?;

        let llama = programs::llama()?;
        let mut command = match place {
            Place::Cpu => Command::new(llama),
            Place::Gpu(sysfs) => {
                let mut command = Command::new(programs::launcher()?);
                command.arg("--").arg(llama).arg("--gpu-backend").arg(libraries.join("libggml-cuda.so"));
                command.env("VGPU_SYSFS", sysfs).env_remove("CUDA_VISIBLE_DEVICES");
                command
            }
            Place::Native(folders) => {
                let mut command = Command::new(llama);
                command.arg("--gpu-backend").arg(libraries.join("libggml-cuda.so"));
                programs::prepend_libraries(&mut command, folders.iter().map(PathBuf::as_path));
                command
            }
        };
        command.arg("--libraries").arg(&libraries);
        for model in [&self.model].into_iter().chain(&self.second) {
            command.arg("--model").arg(model);
        }
        command.arg("--jobs").arg(file.path()).args(["--tokens", &self.tokens.to_string()]);
        for (given, option) in [(self.past_end, "--past-end"), (self.chat, "--chat")] {
            if given {
                command.arg(option);
            }
        }
        if let Some(on) = self.flash_attention {
            command.args(["--flash-attention", if on { "on" } else { "off" }]);
        }
        if let Some(threads) = self.threads {
            command.args(["--threads", &threads.to_string()]);
        }
        if let Some(from) = self.pause_from {
            command.args(["--pause-from", &from.to_string()]);
        }
        if let Some(path) = &self.logits {
            command.arg("--logits").arg(path);
        }
        command.args(["--log", if self.log == LogTo::StderrIfWrong { "warn" } else { "info" }]);
        if !self.graphs {
            command.env("GGML_CUDA_DISABLE_GRAPHS", "1");
        }
        // A backtrace of GGML's own starts a debugger; the error's text stands before it.
        command.env("GGML_NO_BACKTRACE", "1");
        let log = if self.log == LogTo::File {
            Some(tempfile::tempfile().context("make a file for the log")?)
        } else {
            None
        };
        if let Some(log) = &log {
            command.stderr(log.try_clone().context("hand the log's file over")?);
        }
        // The root: the libraries' RUNPATH has an empty entry, which is the working directory.
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("start vgpu-llama")?;
        let lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let stdin = child.stdin.take();
        Ok(LlamaProcess { child, lines, stdin, log, _jobs: file })
    }
}

/// Writes `model` with its weights in `encoding` to a new file in `folder`.
pub fn encode(backend: Backend, model: &Path, encoding: Encoding, folder: &Path) -> Result<PathBuf> {
    let value = encoding.to_possible_value().context("name the encoding")?;
    let to = folder.join(format!("{}.gguf", value.get_name()));
    let mut command = Command::new(programs::llama()?);
    command.arg("--libraries").arg(backend.folder()?).arg("--model").arg(model).args(["--log", "warn"]);
    command.args(["--encode", value.get_name(), "--to"]).arg(&to).current_dir("/");
    let status = command.status().context("start vgpu-llama")?;
    if status.success() { Ok(to) } else { bail!("vgpu-llama: {status}") }
}

/// The running program. It is killed when this value goes away.
#[derive(Debug)]
pub struct LlamaProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stdin: Option<ChildStdin>,
    log: Option<std::fs::File>,
    _jobs: NamedTempFile,
}

impl LlamaProcess {
    /// Returns the process, which is also the session's: the launcher becomes the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line; `None` when there are no more.
    pub fn event(&mut self) -> Result<Option<Event>> {
        let Some(line) = self.lines.next() else { return Ok(None) };
        let line = line.context("read what vgpu-llama prints")?;
        serde_json::from_str(&line).with_context(|| format!("understand {line:?}")).map(Some)
    }

    /// Reads lines up to one that `wanted` takes. An error when there is none: the program has ended.
    pub fn until<T>(&mut self, what: &str, wanted: impl Fn(&Event) -> Option<T>) -> Result<T> {
        while let Some(event) = self.event()? {
            if let Some(found) = wanted(&event) {
                return Ok(found);
            }
        }
        let status = self.wait()?;
        bail!("vgpu-llama did not come to say {what}: {status}\n{}", self.log()?)
    }

    /// Lets a paused program go on.
    pub fn resume(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut().context("stdin is closed")?;
        stdin.write_all(b"\n").context("let vgpu-llama go on")
    }

    /// Kills it, as a guest that crashes.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("kill vgpu-llama")?;
        self.wait().map(drop)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        drop(self.stdin.take());
        self.child.wait().context("wait for vgpu-llama")
    }

    /// Waits for its end, which must be a good one.
    pub fn finish(mut self) -> Result<()> {
        let status = self.wait()?;
        if status.success() { Ok(()) } else { bail!("vgpu-llama: {status}\n{}", self.log()?) }
    }

    /// What was logged so far, where it goes to a file.
    pub fn log(&self) -> Result<String> {
        let Some(log) = &self.log else { return Ok(String::new()) };
        // At offsets of its own: the file's position is the writer's.
        let (mut bytes, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            match log.read_at(&mut piece, bytes.len() as u64).context("read the log")? {
                0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                count => bytes.extend_from_slice(&piece[..count]),
            }
        }
    }
}

impl Drop for LlamaProcess {
    fn drop(&mut self) {
        // It may have ended already; nothing can be done about either failure here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tokens a second; 0 where there was no time.
#[allow(clippy::cast_precision_loss, reason = "nobody decodes so many")]
pub fn rate(tokens: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}

/// Returns a model by the name of an artifact, or by its path.
pub fn model(name: &str) -> Result<PathBuf> {
    let path = Path::new(name);
    if path.is_file() {
        return path.canonicalize().with_context(|| format!("find {name}"));
    }
    let folder = vgpu_artifacts::fetch(name).with_context(|| format!("find the model {name}"))?;
    let entries = std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .find(|path| path.extension().is_some_and(|end| end == "gguf"))
        .with_context(|| format!("{} holds no model", folder.display()))
}
