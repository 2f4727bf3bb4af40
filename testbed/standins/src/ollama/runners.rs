//! Discovery of era B: a child `ollama runner` for each backend directory reports its devices over HTTP, then
//! another one for each device.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::device::{self, Device};
use super::{http, log, paths};

/// Time limit for a runner.
const LIMIT: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(10);

/// Returns a TCP port that is currently free.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a port")?;
    Ok(listener.local_addr().context("find a port")?.port())
}

/// Creates the command of a runner, with its environment and arguments.
pub fn command(libraries: &Path, variant: &Path, port: u16) -> Result<Command> {
    let mut command = Command::new(paths::own()?);
    command.args(["runner", "--ollama-engine", "--port", &port.to_string()]);
    paths::search(&mut command, &[libraries, variant]);
    command.env("OLLAMA_LIBRARY_PATH", format!("{}:{}", libraries.display(), variant.display()));
    Ok(command)
}

fn ask(libraries: &Path, variant: &Path, extra: &[(&str, &str)], limit: Duration) -> Result<Vec<Device>> {
    let port = free_port()?;
    let mut command = command(libraries, variant, port)?;
    command.envs(extra.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
    if log::level() < 2 {
        command.stderr(Stdio::null());
    }
    log::info("server.go:429", "starting runner", &[("cmd", &log::command(&command))]);
    let mut child = command.spawn().context("start a runner")?;
    let end = Instant::now() + limit;
    let answer = loop {
        if let Ok(answer) = http::ask(&format!("127.0.0.1:{port}"), "/info") {
            break Ok(answer);
        }
        if let Some(status) = child.try_wait()? {
            log::debug("runner.go:480", "runner exited", &[("code", &status.to_string())]);
            break Err("runner crashed");
        }
        if Instant::now() > end {
            break Err("failed to finish discovery before timeout");
        }
        thread::sleep(TICK);
    };
    // As Ollama, whatever it is doing. It may be gone already.
    let _ = child.kill();
    let _ = child.wait();
    let answer = answer.map_err(|text| anyhow::anyhow!(text));
    let libdirs = format!("[{} {}]", libraries.display(), variant.display());
    if let Err(error) = &answer {
        let fields = [
            ("OLLAMA_LIBRARY_PATH", libdirs.as_str()),
            ("extra_envs", &format!("{extra:?}")),
            ("error", &error.to_string()),
        ]
        .map(|(name, text): (&str, &str)| (name, text.to_owned()));
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, text)| (*name, text.as_str())).collect();
        log::info("runner.go:464", "failure during GPU discovery", &fields);
    }
    read(&answer?, variant)
}

fn read(answer: &str, variant: &Path) -> Result<Vec<Device>> {
    let list: Value = serde_json::from_str(answer).context("understand a runner")?;
    let Some(list) = list.as_array() else { bail!("understand a runner: no list in {answer:?}") };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_i64().unwrap_or_default() as i32;
    Ok(list
        .iter()
        .map(|entry| Device {
            id: text(&entry["id"]),
            filter: text(&entry["filter_id"]),
            capability: (number(&entry["ComputeMajor"]), number(&entry["ComputeMinor"])),
            name: text(&entry["name"]),
            description: text(&entry["description"]),
            driver: format!("{}.{}", number(&entry["driver_major"]), number(&entry["driver_minor"])),
            pci: text(&entry["pci_id"]),
            total: entry["total_memory"].as_u64().unwrap_or_default(),
            free: entry["free_memory"].as_u64().unwrap_or_default(),
            variant: variant.to_owned(),
        })
        .collect())
}

/// Looks, and says what it found.
pub fn find_devices(libraries: &Path) -> Vec<Device> {
    let mut variants = paths::variants(libraries);
    if variants.is_empty() {
        variants.push(PathBuf::new());
    }
    let found: Vec<Device> =
        variants.iter().flat_map(|variant| ask(libraries, variant, &[], LIMIT).unwrap_or_default()).collect();
    let checked: Vec<Device> = thread::scope(|scope| {
        let check = |device: Device| {
            log::debug(
                "runner.go:146",
                "verifying if device is supported",
                &[
                    ("library", &device.variant.display().to_string()),
                    ("id", &device.id),
                    ("pci_id", &device.pci),
                ],
            );
            let extra = [("CUDA_VISIBLE_DEVICES", device.id.as_str()), ("GGML_CUDA_INIT", "1")];
            let seen = ask(libraries, &device.variant, &extra, LIMIT).unwrap_or_default();
            if seen.is_empty() {
                log::debug(
                    "runner.go:160",
                    "filtering device which didn't fully initialize",
                    &[("id", &device.id)],
                );
            }
            (!seen.is_empty()).then_some(device)
        };
        let threads: Vec<_> = found.into_iter().map(|device| scope.spawn(move || check(device))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    });
    let devices = device::newest(checked);
    for device in &devices {
        device::report(device);
    }
    if devices.is_empty() {
        device::report_cpu();
    }
    device::report_context(&devices);
    devices
}
