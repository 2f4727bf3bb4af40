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

/// Location of the model's layers.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// Host memory, used by the CPU backend.
    Cpu,
    /// The device of the bus in this directory.
    Gpu(&'a Path),
    /// A GPU of this machine, used by NVIDIA's driver without the launcher. Libraries in these directories
    /// take precedence over those that the loader finds.
    Native(&'a [PathBuf]),
}

/// Destination of the libraries' log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTo {
    /// The complete log goes to this process's stderr.
    Stderr,
    /// Warnings and errors go to this process's stderr.
    StderrIfWrong,
    /// The complete log is stored for [`LlamaProcess::log`].
    File,
}

/// Settings with which the model is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The build of llama.cpp and its CUDA backend.
    pub backend: Backend,
    /// Path of the GGUF file.
    pub model: PathBuf,
    /// A second model with a context of its own in the same process; each job is done with both.
    pub second: Option<PathBuf>,
    /// Whether to use fused attention; `None` lets llama.cpp decide.
    pub flash_attention: Option<bool>,
    /// Whether GGML may capture a token's work as a graph. It does so if the device's compute capability is
    /// 7.0 or newer.
    pub graphs: bool,
    /// Number of threads of the CPU backend; `None` lets the program decide.
    pub threads: Option<u32>,
    /// Number of tokens after each prompt.
    pub tokens: usize,
    /// Whether to continue after a token that ends the text.
    pub past_end: bool,
    /// Whether prompts are questions for the model's chat template.
    pub chat: bool,
    /// Number of tokens after a prompt from which on the program waits for [`LlamaProcess::resume`] before
    /// each further token.
    pub pause_from: Option<usize>,
    /// File that receives the raw logits.
    pub logits: Option<PathBuf>,
    /// Destination of the log.
    pub log: LogTo,
}

impl Settings {
    /// Returns the usual settings of a run of `model`.
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

    /// Starts the program with `jobs` as its input.
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

/// Writes `model` with its weights converted to `encoding` to a new file in `folder`, and returns its path.
pub fn encode(backend: Backend, model: &Path, encoding: Encoding, folder: &Path) -> Result<PathBuf> {
    let value = encoding.to_possible_value().context("name the encoding")?;
    let to = folder.join(format!("{}.gguf", value.get_name()));
    let mut command = Command::new(programs::llama()?);
    command.arg("--libraries").arg(backend.folder()?).arg("--model").arg(model).args(["--log", "warn"]);
    command.args(["--encode", value.get_name(), "--to"]).arg(&to).current_dir("/");
    let status = command.status().context("start vgpu-llama")?;
    if status.success() { Ok(to) } else { bail!("vgpu-llama: {status}") }
}

/// The running program, which is killed when the value is dropped.
#[derive(Debug)]
pub struct LlamaProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stdin: Option<ChildStdin>,
    log: Option<std::fs::File>,
    _jobs: NamedTempFile,
}

impl LlamaProcess {
    /// Returns the program's process ID, which is also the session's, since the launcher becomes the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next event, or `None` when the program has closed its stdout.
    pub fn event(&mut self) -> Result<Option<Event>> {
        let Some(line) = self.lines.next() else { return Ok(None) };
        let line = line.context("read what vgpu-llama prints")?;
        serde_json::from_str(&line).with_context(|| format!("understand {line:?}")).map(Some)
    }

    /// Reads events until `wanted` accepts one. Fails if the program ends first; `what` names the event in
    /// the error.
    pub fn until<T>(&mut self, what: &str, wanted: impl Fn(&Event) -> Option<T>) -> Result<T> {
        while let Some(event) = self.event()? {
            if let Some(found) = wanted(&event) {
                return Ok(found);
            }
        }
        let status = self.wait()?;
        bail!("vgpu-llama did not come to say {what}: {status}\n{}", self.log()?)
    }

    /// Resumes a paused program.
    pub fn resume(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut().context("stdin is closed")?;
        stdin.write_all(b"\n").context("let vgpu-llama go on")
    }

    /// Kills the program, like a guest that crashes.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("kill vgpu-llama")?;
        self.wait().map(drop)
    }

    /// Waits for the program's end and returns its exit status.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        drop(self.stdin.take());
        self.child.wait().context("wait for vgpu-llama")
    }

    /// Waits for the program's end, which must be successful.
    pub fn finish(mut self) -> Result<()> {
        let status = self.wait()?;
        if status.success() { Ok(()) } else { bail!("vgpu-llama: {status}\n{}", self.log()?) }
    }

    /// Returns the log so far, if it goes to a file.
    pub fn log(&self) -> Result<String> {
        let Some(log) = &self.log else { return Ok(String::new()) };
        // Reads at explicit offsets, because the file's position belongs to the writer.
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
        // The process may already have ended; failures are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns tokens per second, or 0 if no time has passed.
#[allow(clippy::cast_precision_loss, reason = "nobody decodes so many")]
pub fn rate(tokens: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}

/// Returns the path of a model, which is given as a path or as the name of an artifact.
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
