//! `ollama serve`: the search for a GPU, then HTTP; and HTTP as far as the stand-ins speak it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use tiny_http::{Method, Response, Server};

use super::device::Device;
use super::runner::MODEL_BYTES;
use super::{Era, Way, llama_servers, log, own_process, paths, runners};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a model's runner may take to start.
const LOAD: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(10);

/// `OLLAMA_HOST` as host and port.
pub fn host() -> String {
    let text = std::env::var("OLLAMA_HOST").unwrap_or_default();
    let text = text.strip_prefix("http://").unwrap_or(&text).trim_end_matches('/');
    match text {
        "" => "127.0.0.1:11434".to_owned(),
        text if text.contains(':') => text.to_owned(),
        text => format!("{text}:11434"),
    }
}

/// GET, HTTP/1.0, one connection.
pub fn ask(host: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(host).with_context(|| format!("connect to {host}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no HTTP")?;
    if head.split_whitespace().nth(1) != Some("200") {
        bail!("{}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

/// Answers requests for ever: `handler` gets path and body.
pub fn answer(host: &str, handler: &dyn Fn(&str, &str) -> Result<String>) -> Result<()> {
    let server = Server::http(host).map_err(|error| anyhow!("listen tcp {host}: {error}"))?;
    for mut request in server.incoming_requests() {
        let mut body = String::new();
        // A body that is no text is no request of ours.
        if request.method() == &Method::Post && request.as_reader().read_to_string(&mut body).is_err() {
            continue;
        }
        let path = request.url().split('?').next().unwrap_or_default().to_owned();
        let response = match handler(&path, &body) {
            Ok(text) => Response::from_string(text),
            Err(error) => Response::from_string(json!({ "error": format!("{error:#}") }).to_string())
                .with_status_code(if format!("{error}").ends_with("not found") { 404 } else { 500 }),
        };
        // Who asked may be gone.
        let _ = request.respond(response);
    }
    Ok(())
}

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
