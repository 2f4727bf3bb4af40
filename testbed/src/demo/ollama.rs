//! The demonstration with a real Ollama under the launcher, with a home, models and a port of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;
use vgpu_testbed::bed::{self, PATIENCE};
use vgpu_testbed::programs;

use super::evidence::Evidence;
use super::options::{DemoArgs, Shown, step};
use crate::place::TargetDevice;

/// Name of the model in the private store.
const NAME: &str = "demo";
/// Interval between two checks whether the server answers.
const TICK: Duration = Duration::from_millis(50);
/// Texts in those lines of Ollama's log that report the discovery of the device.
const DISCOVERY: [&str; 5] =
    ["ggml_cuda_init:", "Device 0:", "loaded CUDA backend", "msg=\"inference compute\"", "offloaded "];

/// A line of the response to `/api/generate`.
#[derive(Debug, Deserialize)]
struct Piece {
    #[serde(default)]
    response: String,
    error: Option<String>,
}

/// A running server. When the value is dropped, the server is asked to exit and waited for.
struct Server {
    child: Child,
    home: TempDir,
    port: u16,
    log: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // On SIGTERM the server also ends its runners. It may already have ended.
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(program: &Path, sysfs: &Path) -> Result<Self> {
        let home = TempDir::with_prefix("vgpu-ollama-").context("make a home for Ollama")?;
        // The port is free again when the listener is dropped, and no other process learns of it before.
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .context("find a port")?
            .port();
        let log = home.path().join("log");
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut command = Command::new(programs::launcher()?);
        command.arg("--").arg(program).arg("serve").env("VGPU_SYSFS", sysfs).env("OLLAMA_DEBUG", "2");
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = private(&mut command, &home, port).spawn().context("start Ollama")?;
        let mut server = Self { child, home, port, log };
        let end = Instant::now() + PATIENCE;
        while server.get("api/version").is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("Ollama ended: {status}\n{}", server.log()?);
            }
            if Instant::now() > end {
                bail!("Ollama does not answer within {PATIENCE:?}\n{}", server.log()?);
            }
            thread::sleep(TICK);
        }
        Ok(server)
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    fn get(&self, path: &str) -> Result<()> {
        ureq::get(self.url(path)).call()?;
        Ok(())
    }

    fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("read {}", self.log.display()))
    }

    /// Creates the model in Ollama's store.
    fn create(&self, program: &Path, model: &Path) -> Result<()> {
        let modelfile = self.home.path().join("Modelfile");
        fs::write(&modelfile, format!("FROM {}\n", model.display())).context("write the Modelfile")?;
        let mut command = Command::new(program);
        command.args(["create", NAME, "-f"]).arg(&modelfile);
        let output = private(&mut command, &self.home, self.port).output().context("run `ollama create`")?;
        if !output.status.success() {
            bail!("`ollama create`: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// Asks the question and prints the answer as it arrives.
    fn ask(&self, question: &str, tokens: usize) -> Result<()> {
        let request = json!({
            "model": NAME,
            "prompt": question,
            "options": { "temperature": 0, "num_predict": tokens, "num_ctx": 2048 },
        });
        let mut response = ureq::post(self.url("api/generate"))
            .config()
            // The body of an error response contains the reason.
            .http_status_as_error(false)
            .build()
            .send(request.to_string())
            .context("ask Ollama")?;
        for line in BufReader::new(response.body_mut().as_reader()).lines() {
            let line = line.context("read Ollama's answer")?;
            let piece: Piece = serde_json::from_str(&line).with_context(|| format!("understand {line:?}"))?;
            if let Some(error) = piece.error {
                bail!("Ollama says: {error}\n{}", self.log()?);
            }
            print!("{}", piece.response);
            std::io::stdout().flush()?;
        }
        println!();
        Ok(())
    }
}

/// Gives the command a home, models and a port of its own, and disables Ollama's cloud.
fn private<'a>(command: &'a mut Command, home: &TempDir, port: u16) -> &'a mut Command {
    command
        .env("HOME", home.path())
        .env("OLLAMA_MODELS", home.path().join("models"))
        .env("OLLAMA_HOST", format!("127.0.0.1:{port}"))
        .env("OLLAMA_NO_CLOUD", "1")
}

/// Returns the process that launched kernels: the one whose session on the bus has the most messages.
fn worker(sysfs: &Path) -> Result<u32> {
    let status = bed::control(sysfs, "status")?;
    let sessions = bed::sessions(&status);
    let busiest = sessions.iter().max_by_key(|session| session["messages"].as_u64());
    let process = busiest.and_then(|session| session["process"].as_u64());
    let process =
        process.context("no process has a session on the device: the answer came from elsewhere")?;
    u32::try_from(process).context("understand the status")
}

/// Has Ollama answer the question through the device.
pub fn answer(arguments: &DemoArgs, place: &TargetDevice, program: &Path, model: &Path) -> Result<Shown> {
    step(&format!("vgpu-run {} serve", program.display()));
    let server = Server::start(program, place.sysfs())?;
    server.create(program, model)?;
    step("The question, and the answer as it comes");
    println!("> {}", arguments.question);
    server.ask(&arguments.question, arguments.tokens)?;
    step("What Ollama's log says of the device");
    for line in server.log()?.lines() {
        if DISCOVERY.iter().any(|part| line.contains(part)) {
            println!("{}", line.trim_start());
        }
    }
    // Ollama keeps the model's process for some minutes.
    let evidence = Evidence::collect(worker(place.sysfs())?)?;
    Ok(Shown { evidence, offloaded: None, per_token: None })
}
