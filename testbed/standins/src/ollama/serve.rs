//! `ollama serve`: the search for a GPU, then answers over HTTP.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::device::Device;
use super::era::{Era, Way};
use super::http::{answer, ask, host};
use super::runner::MODEL_BYTES;
use super::{llama_servers, log, own_process, paths, runners};

/// How long a model's runner may take to start.
const LOAD: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(10);

/// A model that is loaded.
struct Model {
    name: String,
    runner: Child,
    on_device: bool,
}

impl Drop for Model {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.runner.kill();
        let _ = self.runner.wait();
    }
}

/// The server, until it is killed.
pub fn serve(era: &Era) -> Result<()> {
    let host = host();
    let libraries = paths::libraries()?;
    log::info("routes.go:1481", "server config", &[("env", &format!("map[OLLAMA_HOST:http://{host}]"))]);
    log::info("routes.go:1534", &format!("Listening on {host} (version {})", era.version), &[]);
    log::info("gpu.go:217", era.lines.looking, &[]);
    let devices = match era.way {
        Way::OwnProcess => own_process::look(&libraries),
        Way::Runner => runners::look(&libraries),
        Way::LlamaServer => llama_servers::look(&era.lines, &libraries),
    };
    let loaded: Mutex<Option<Model>> = Mutex::new(None);
    // A test of what else may answer at the address has this server listen elsewhere.
    let host = std::env::var("STANDIN_LISTEN").unwrap_or(host);
    answer(&host, &|path, body| {
        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        match path {
            "/" => Ok("Ollama is running".to_owned()),
            "/api/version" => Ok(json!({ "version": era.version }).to_string()),
            "/api/tags" => Ok(json!({ "models": [] }).to_string()),
            "/api/ps" => Ok(json!({ "models": loaded.iter().map(entry).collect::<Vec<_>>() }).to_string()),
            "/api/generate" => {
                let request: Value = serde_json::from_str(body).context("invalid request")?;
                let name = request["model"].as_str().unwrap_or("stand-in").to_owned();
                let layers = request["options"]["num_gpu"].as_i64();
                *loaded = None;
                *loaded = Some(load(era, &libraries, &devices, name.clone(), layers)?);
                Ok(json!({ "model": name, "response": "", "done": true }).to_string())
            }
            other => bail!("{other}: not found"),
        }
    })
}

fn entry(model: &Model) -> Value {
    let on_device = if model.on_device { MODEL_BYTES } else { 0 };
    json!({ "name": model.name, "model": model.name, "size": MODEL_BYTES, "size_vram": on_device })
}

/// Starts a model's runner and waits until it is well.
fn load(era: &Era, libraries: &Path, devices: &[Device], name: String, layers: Option<i64>) -> Result<Model> {
    let port = runners::free_port()?;
    let device = devices.first();
    let variant = device.map_or_else(|| libraries.to_owned(), |device| device.variant.clone());
    let model = libraries.join("stand-in.gguf");
    let mut command = if era.way == Way::LlamaServer {
        let mut command = Command::new(libraries.join("llama-server"));
        command.arg("--model").arg(&model).args(["--port", &port.to_string(), "--host", "127.0.0.1"]);
        command.args(["--no-webui", "--offline", "-c", "4096", "-np", "1"]);
        if let Some(device) = device {
            llama_servers::environment(&mut command, libraries, &variant);
            command.env("CUDA_VISIBLE_DEVICES", &device.id);
        }
        command
    } else {
        let mut command = runners::command(libraries, &variant, port)?;
        command.arg("--model").arg(&model);
        command
    };
    if let Some(layers) = layers {
        command
            .args([if era.way == Way::LlamaServer { "-ngl" } else { "--n-gpu-layers" }, &layers.to_string()]);
    }
    log::info("server.go:429", "starting runner", &[("cmd", &log::command(&command))]);
    let runner = command.stdin(Stdio::null()).spawn().context("start a runner")?;
    let on_device = device.is_some() && layers != Some(0);
    let mut model = Model { name, runner, on_device };
    let end = Instant::now() + LOAD;
    while ask(&format!("127.0.0.1:{port}"), "/health").is_err() {
        if let Some(status) = model.runner.try_wait()? {
            bail!("llama-server process has terminated: {status}");
        }
        if Instant::now() > end {
            bail!("timed out waiting for the runner to start");
        }
        thread::sleep(TICK);
    }
    Ok(model)
}
