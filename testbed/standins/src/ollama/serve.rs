//! Stand-in for `ollama serve`: the discovery of GPUs, then answers over HTTP.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::device::{self, Device};
use super::era::{Era, Way};
use super::http::{answer, ask, host, listen, may_accept};
use super::runner::ON_DEVICE;
use super::{llama_servers, log, own_process, paths, runner, runners};

/// Time limit for a model's runner to start.
const LOAD: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(10);
/// Content of a key, about as long as a real one.
const KEY: [u8; 400] = [b'k'; 400];

/// A loaded model, with the process of its runner.
struct Model {
    name: String,
    runner: Child,
    /// Number of bytes on the device, as the runner reports it.
    on_device: u64,
}

impl Drop for Model {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.runner.kill();
        let _ = self.runner.wait();
    }
}

/// Error output of a Go program that cannot start another thread; the stacks of all threads follow.
const DUMP: &str = "runtime: failed to create new OS thread (have 7 already; errno=11)\n\
    runtime: may need to increase max user processes (ulimit -u)\nfatal error: newosproc\n\nruntime stack:\n\
    runtime.throw({0x1, 0x2})\n\t/usr/local/go/src/runtime/panic.go:1101 +0x48 fp=0x7ff sp=0x7fe pc=0x47\n\n\
    goroutine 1 gp=0xc0 m=0 mp=0x1 [chan receive]:\nmain.main()\n\t/home/x/main.go:12 +0x2c\n";

/// Creates the key in the home directory, as a server does first. Like the real one, it takes every error but
/// a missing file for a key that is there.
fn make_key() -> Result<()> {
    let own = home().join(".ollama");
    let key = own.join("id_ed25519");
    match fs::metadata(&key) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Ok(_) | Err(_) => return Ok(()),
    }
    println!("Couldn't find '{}'. Generating new private key.", key.display());
    fs::create_dir_all(&own)
        .with_context(|| format!("could not create directory mkdir {}", own.display()))?;
    fs::write(&key, KEY).with_context(|| format!("open {}", key.display()))
}

/// Creates the store of models, and removes directories of manifests that are empty. Like the real one, it
/// goes on without a directory of manifests, and removes nothing if a manifest is damaged.
fn make_models() -> Result<()> {
    let models = std::env::var_os("OLLAMA_MODELS").filter(|models| !models.is_empty());
    let models = models.map_or_else(|| home().join(".ollama/models"), PathBuf::from);
    let blobs = models.join("blobs");
    fs::create_dir_all(&blobs)
        .and_then(|()| fs::read_dir(&blobs))
        .with_context(|| format!("mkdir {}", blobs.display()))?;
    let manifests = models.join("manifests");
    if std::env::var("OLLAMA_NOPRUNE").is_ok_and(|value| !["", "0", "false"].contains(&value.trim())) {
        return Ok(());
    }
    if fs::create_dir_all(&manifests).is_err() || damaged(&manifests, 0) {
        log::warn("routes.go:1493", "corrupt manifests detected, skipping prune operation", &[]);
        return Ok(());
    }
    prune(&manifests)
}

/// Returns whether a file below four directories is no manifest.
fn damaged(path: &Path, depth: usize) -> bool {
    if depth == 4 {
        let text = fs::read(path).unwrap_or_default();
        return !path.is_dir() && serde_json::from_slice::<Value>(&text).is_err();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| damaged(&path, depth + 1))
}

/// Removes a directory and those in it that are empty.
fn prune(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            prune(&path)?;
        }
    }
    match fs::read_dir(folder)?.next() {
        None => fs::remove_dir(folder).with_context(|| format!("remove {}", folder.display())),
        Some(_) => Ok(()),
    }
}

fn home() -> PathBuf {
    if let Some(home) = std::env::var_os("HOME").filter(|home| !home.is_empty()) {
        return home.into();
    }
    // In Go's words.
    eprintln!("panic: $HOME is not defined\n\ngoroutine 1 [running]:\nmain.main()");
    std::process::exit(2)
}

/// Looks for devices, unless a test has the server do something else.
fn find_devices(era: &Era, libraries: &Path) -> Result<Vec<Device>> {
    match std::env::var("STANDIN_SERVE").as_deref() {
        Ok("die") => {
            eprint!("{DUMP}");
            std::process::exit(2)
        }
        Ok("hang") => {
            // One of its own processes leaves its group, as a daemon does.
            Command::new("setsid").args(["--fork", "sleep", "600"]).status().context("start a daemon")?;
            loop {
                thread::park();
            }
        }
        Ok("cpu") => {
            device::report_cpu();
            device::report_context(&[]);
            return Ok(Vec::new());
        }
        _ => {}
    }
    Ok(match era.way {
        Way::OwnProcess => own_process::find_devices(libraries),
        Way::Runner => runners::find_devices(libraries),
        Way::LlamaServer => llama_servers::find_devices(&era.lines, libraries),
    })
}

/// Runs the server until it is killed.
pub fn serve(era: &Era) -> Result<()> {
    let host = host();
    make_key()?;
    // Tests of another program at the server's address make this server listen elsewhere.
    let listener = listen(&std::env::var("STANDIN_LISTEN").unwrap_or_else(|_| host.clone()))?;
    make_models()?;
    let libraries = paths::libraries()?;
    log::info("routes.go:1481", "server config", &[("env", &format!("map[OLLAMA_HOST:http://{host}]"))]);
    log::info("routes.go:1534", &format!("Listening on {host} (version {})", era.version), &[]);
    log::info("gpu.go:217", era.lines.looking, &[]);
    let devices = find_devices(era, &libraries)?;
    may_accept(&host)?;
    let loaded: Mutex<Option<Model>> = Mutex::new(None);
    answer(&listener, &|path, body| {
        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        match path {
            "/" => Ok("Ollama is running".to_owned()),
            "/api/version" => Ok(json!({ "version": era.version }).to_string()),
            "/api/tags" => Ok(json!({ "models": [] }).to_string()),
            "/api/ps" => {
                let models = loaded.iter().map(entry).collect::<Result<Vec<_>>>()?;
                Ok(json!({ "models": models }).to_string())
            }
            "/api/generate" => {
                let request: Value = serde_json::from_str(body).context("invalid request")?;
                let name = request["model"].as_str().unwrap_or("stand-in").to_owned();
                if !exists(&name) {
                    bail!("model '{name}' not found");
                }
                let layers = request["options"]["num_gpu"].as_i64();
                *loaded = None;
                *loaded = Some(load(era, &libraries, &devices, name.clone(), layers)?);
                Ok(json!({ "model": name, "response": "", "done": true }).to_string())
            }
            other => bail!("{other}: not found"),
        }
    });
    Ok(())
}

/// Returns whether there is a model of that name.
fn exists(name: &str) -> bool {
    std::env::var("STANDIN_MODELS").map_or(true, |names| names.split(',').any(|known| known == name))
}

fn entry(model: &Model) -> Result<Value> {
    let bytes = runner::model_bytes()?;
    Ok(json!({ "name": model.name, "model": model.name, "size": bytes, "size_vram": model.on_device }))
}

/// Returns the bytes of a device's memory that a release leaves free: a device with no more free memory gets
/// no layer. The real llama-server decides that itself.
fn left_free(era: &Era) -> u64 {
    const MIB: u64 = 1 << 20;
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    match era.way {
        Way::LlamaServer if std::env::var("LLAMA_ARG_FIT").is_ok_and(|fit| fit == "off") => 0,
        Way::LlamaServer => number("LLAMA_ARG_FIT_TARGET").unwrap_or(1024) * MIB,
        Way::Runner | Way::OwnProcess => 457 * MIB + number("OLLAMA_GPU_OVERHEAD").unwrap_or_default(),
    }
}

/// Starts a model's runner and waits until it is ready.
fn load(era: &Era, libraries: &Path, devices: &[Device], name: String, layers: Option<i64>) -> Result<Model> {
    let port = runners::free_port()?;
    let device = devices.first();
    let variant = device.map_or_else(|| libraries.to_owned(), |device| device.variant.clone());
    let model = libraries.join("stand-in.gguf");
    let mut command = if era.way == Way::LlamaServer {
        let mut command = Command::new(libraries.join("llama-server"));
        command.arg("--model").arg(&model).args(["--port", &port.to_string(), "--host", "127.0.0.1"]);
        command.args(["--no-webui", "--offline", "-c", "4096", "-np", "1"]);
        let cache = std::env::var("OLLAMA_KV_CACHE_TYPE").unwrap_or_default().to_lowercase();
        if !cache.is_empty() {
            command.args(["--cache-type-k", &cache, "--cache-type-v", &cache]);
        }
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
    let fits = device.is_none_or(|device| device.free > left_free(era));
    if let Some(layers) = if fits { layers } else { Some(0) } {
        command
            .args([if era.way == Way::LlamaServer { "-ngl" } else { "--n-gpu-layers" }, &layers.to_string()]);
    }
    log::info("server.go:429", "starting runner", &[("cmd", &log::command(&command))]);
    let runner = command.stdin(Stdio::null()).spawn().context("start a runner")?;
    let mut model = Model { name, runner, on_device: 0 };
    let end = Instant::now() + LOAD;
    loop {
        if let Ok(answer) = ask(&format!("127.0.0.1:{port}"), "/health") {
            let health: Value = serde_json::from_str(&answer).context("understand a runner")?;
            model.on_device = health[ON_DEVICE].as_u64().unwrap_or_default();
            return Ok(model);
        }
        if let Some(status) = model.runner.try_wait()? {
            bail!("llama-server process has terminated: {status}");
        }
        if Instant::now() > end {
            bail!("timed out waiting for the runner to start");
        }
        thread::sleep(TICK);
    }
}
