//! Stand-in for `llama-server` of era C: router mode, `--list-devices`, or a model.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::backend::Backend;
use super::runner::ON_DEVICE;
use super::{http, paths, runner};

/// Runs the stand-in for `llama-server` and returns its exit code.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    match serve_model(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Loads the backend that `GGML_BACKEND_PATH` names and logs the result. Returns `None` if none is named or
/// loading fails.
fn load() -> Option<Backend> {
    let path = PathBuf::from(std::env::var_os("GGML_BACKEND_PATH")?);
    let own = paths::own().ok()?;
    match Backend::load(own.parent().unwrap_or(Path::new("/")), &path) {
        Ok(backend) => {
            eprintln!("load_backend: loaded CUDA backend from {}", path.display());
            Some(backend)
        }
        Err(error) => {
            eprintln!("0.00.025.206 E load_backend: failed to load {}: {error:#}", path.display());
            None
        }
    }
}

fn serve_model(arguments: &[&str]) -> Result<()> {
    let after = |name: &str| {
        let at = arguments.iter().position(|word| *word == name)?;
        arguments.get(at + 1).copied()
    };
    // The real one has threads before it says anything.
    let early = thread::Builder::new().spawn(|| ()).context("failed to spawn thread")?;
    if early.join().is_err() {
        bail!("a thread that does nothing ended badly");
    }
    let backend = load();
    accept_settings(&after, backend.as_ref())?;
    if arguments.contains(&"--list-devices") {
        return list(backend.as_ref());
    }
    let own = paths::own()?;
    let processor = paths::has_processor_backend(own.parent().unwrap_or(Path::new("/")));
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let features = match &backend {
        Some(backend) => format!("CUDA : {} | ", backend.features()?.join(" | ")),
        None => String::new(),
    };
    eprintln!(
        "0.00.026.783 I cmn  common_param: system_info: n_threads = {threads} (n_threads_batch = {threads}) / {threads} | \
         {features}{}",
        if processor { "CPU : SSE3 = 1 | LLAMAFILE = 1 | REPACK = 1 | " } else { "" }
    );
    let port: u16 = after("--port").context("--port")?.parse().context("--port")?;
    let layers = after("-ngl").map(str::to_owned).or_else(|| std::env::var("LLAMA_ARG_N_GPU_LAYERS").ok());
    let off =
        layers.as_deref() == Some("0") || std::env::var("LLAMA_ARG_DEVICE").is_ok_and(|name| name == "none");
    let mut on_device = 0;
    if after("--model").is_some() {
        for name in ["LLAMA_ARG_MMPROJ", "LLAMA_ARG_SPEC_DRAFT_MODEL", "LLAMA_ARG_MCP_SERVERS_CONFIG"] {
            let file = std::env::var(name).unwrap_or_default();
            if !file.is_empty() && !Path::new(&file).exists() {
                bail!("gguf_init_from_file: failed to open GGUF file '{file}' (No such file or directory)");
            }
        }
        // Ollama starts the real one with `--offline`.
        for name in ["LLAMA_ARG_MMPROJ_URL", "LLAMA_ARG_DOCKER_REPO"] {
            if std::env::var_os(name).is_some_and(|named| !named.is_empty()) {
                bail!("{name}: a model cannot be downloaded without a network");
            }
        }
        if !processor {
            bail!("error loading model: make_cpu_buft_list: no CPU backend found");
        }
        let offloaded = match &backend {
            Some(backend) if !off => {
                on_device = runner::load(backend)?;
                eprintln!("load_tensors: CUDA0 model buffer size = {:.2} MiB", on_device >> 20);
                31
            }
            _ => 0,
        };
        eprintln!("load_tensors: offloaded {offloaded}/31 layers to GPU");
    }
    let server = http::listen(&format!("127.0.0.1:{port}"))?;
    if std::env::var("LLAMA_ARG_TOOLS").is_ok_and(|name| name == "x") {
        bail!("srv  llama_server: tools setup failed: unknown tool \"x\". available tools: read_file");
    }
    eprintln!("0.00.030.112 I srv  llama_server: listening on http://127.0.0.1:{port}");
    http::answer(&server, &move |path, _| match path {
        "/health" => Ok(json!({ "status": "ok", ON_DEVICE: on_device }).to_string()),
        other => bail!("{other}: not found"),
    });
    Ok(())
}

/// Ends the process at a setting that the real one does not accept, with its words.
fn accept_settings<'a>(after: &dyn Fn(&str) -> Option<&'a str>, backend: Option<&Backend>) -> Result<()> {
    const CACHE_TYPES: [&str; 9] = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"];
    if let Ok(named) = std::env::var("LLAMA_ARG_DEVICE") {
        let devices = backend.map(Backend::devices).transpose()?.unwrap_or_default();
        let known = |name: &str| name == "none" || devices.iter().any(|device| device.name == name);
        if let Some(name) = named.split(',').find(|name| !known(name)) {
            bail_in_words("environment variable \"LLAMA_ARG_DEVICE\"", &format!("invalid device: {name}"));
        }
    }
    for option in ["--cache-type-k", "--cache-type-v"] {
        if let Some(name) = after(option).filter(|name| !CACHE_TYPES.contains(name)) {
            bail_in_words(&format!("argument \"{option}\""), &format!("Unsupported cache type: {name}"));
        }
    }
    Ok(())
}

fn bail_in_words(what: &str, why: &str) -> ! {
    eprintln!("error while handling {what}: {why}\n");
    std::process::exit(1)
}

fn list(backend: Option<&Backend>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "Available devices:")?;
    let devices = backend.map(Backend::devices).transpose()?.unwrap_or_default();
    if devices.is_empty() {
        writeln!(out, "  (none)")?;
    }
    for device in devices {
        let (name, description) = (&device.name, &device.description);
        writeln!(
            out,
            "  {name}: {description} ({} MiB, {} MiB free)",
            device.total >> 20,
            device.free >> 20
        )?;
    }
    Ok(())
}
