//! Discovery of era C: three children for each backend directory, and three more for each device.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::device::{self, Device};
use super::era::Lines;
use super::{log, paths, runners};

/// Time limit for the discovery in one directory, and for gpu-discover.
const LIMIT: Duration = Duration::from_secs(30);
const NATIVE_LIMIT: Duration = Duration::from_secs(15);
/// Minimum major version of the driver for CUDA 12 builds, and for compute capabilities below 7.0.
const DRIVER_FLOOR: u64 = 550;
const OLD_DRIVER_FLOOR: u64 = 570;

/// Adds the paths of llama-server's and the variant's libraries to the environment of a command.
pub fn environment(command: &mut Command, libraries: &Path, variant: &Path) {
    paths::search(command, &[libraries, variant]);
    if std::env::var_os("GGML_BACKEND_PATH").is_none()
        && let Some(backend) = paths::backend(variant)
    {
        command.env("GGML_BACKEND_PATH", backend);
    }
}

/// Kills a child and reaps it. The child may have ended already.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn forward(text: &str) {
    if log::level() > 1 {
        eprint!("{text}");
    }
}

/// Reads `stream` until its end, until a line for which `enough` returns true, or until `limit` has passed.
/// Returns the text and whether such a line was found.
fn collect(
    stream: impl Read + Send + 'static,
    enough: fn(&str) -> bool,
    limit: Duration,
) -> Result<(String, bool)> {
    let (send, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            if send.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    let last = Instant::now() + limit;
    let mut text = String::new();
    loop {
        match lines.recv_timeout(last.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                text.push_str(&line);
                text.push('\n');
                if enough(&line) {
                    return Ok((text, true));
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok((text, false)),
            Err(mpsc::RecvTimeoutError::Timeout) => bail!("timed out after {limit:?}"),
        }
    }
}

/// Output of the three children.
struct Said {
    system: String,
    listed: String,
    native: Vec<Value>,
}

fn ask(lines: &Lines, libraries: &Path, variant: &Path, extra: &[(&str, &str)]) -> Result<Said> {
    let server = libraries.join("llama-server");
    let start = |arguments: &[&str]| {
        let mut command = Command::new(&server);
        command.args(arguments).envs(extra.iter().copied()).stdin(Stdio::null());
        environment(&mut command, libraries, variant);
        command
    };
    let port = runners::free_port()?.to_string();
    let mut router = start(&["--port", &port, "--host", "127.0.0.1", "--no-webui", "--offline", "--verbose"]);
    let mut router =
        router.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("start llama-server")?;
    let stderr = router.stderr.take().context("no stderr")?;
    let system = collect(stderr, |line| line.contains("system_info:"), LIMIT);
    end(&mut router);
    let (system, found) = system.context("llama-server discovery: timed out waiting for server startup")?;
    forward(&system);
    if !found {
        log::warn("llama_server.go:140", "llama-server discovery: system_info line not found in output", &[]);
    }

    let mut listing = start(&["--list-devices", "--offline", "--verbose"]);
    let mut listing =
        listing.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("start llama-server")?;
    let (out, err) =
        (listing.stdout.take().context("no stdout")?, listing.stderr.take().context("no stderr")?);
    // Both streams are read at the same time, as in Ollama, so that a child that writes much to one of them
    // is not blocked by the other.
    let errors = thread::spawn(move || collect(err, |_| false, LIMIT));
    let listed = collect(out, |_| false, LIMIT);
    let errors = errors.join().map_err(|_| anyhow!("a thread that reads a log panicked"))?;
    if listed.is_err() {
        end(&mut listing);
    }
    let ((listed, _), (errors, _)) = (listed?, errors?);
    forward(&errors);
    forward(&listed);
    let status = listing.wait()?;
    if !status.success() {
        bail!("{}{status}", lines.listing);
    }

    let mut native = Command::new(paths::own()?);
    native.arg("gpu-discover").arg("--lib-dir").arg(libraries).arg("--lib-dir").arg(variant);
    native.envs(extra.iter().copied()).stdin(Stdio::null());
    environment(&mut native, libraries, variant);
    let mut native =
        native.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("start gpu-discover")?;
    let out = native.stdout.take().context("no stdout")?;
    let text = collect(out, |_| false, NATIVE_LIMIT);
    end(&mut native);
    let native = text.ok().and_then(|(text, _)| serde_json::from_str::<Value>(&text).ok());
    if native.is_none() {
        log::debug("native_probe.go:235", "native GPU discovery failed", &[]);
    }
    let native = native.and_then(|native| native["devices"].as_array().cloned()).unwrap_or_default();
    Ok(Said { system: system + &errors, listed, native })
}

/// Parses name, description, total and free memory from `NAME: DESCRIPTION (TOTAL MiB, FREE MiB free)`.
fn device_line(line: &str) -> Option<(&str, &str, u64, u64)> {
    let (name, rest) = line.strip_prefix(' ')?.trim_start().split_once(": ")?;
    let (description, sizes) = rest.strip_suffix(" MiB free)")?.rsplit_once(" (")?;
    let (total, free) = sizes.split_once(" MiB, ")?;
    Some((name, description, total.parse().ok()?, free.parse().ok()?))
}

/// Parses the architectures from `CUDA : ARCHS = 500,610`.
fn architectures(system: &str) -> Vec<&str> {
    let list = system.split("ARCHS = ").nth(1).and_then(|rest| rest.split_whitespace().next());
    list.map(|list| list.split(',').collect()).unwrap_or_default()
}

fn devices(said: &Said, variant: &Path) -> Vec<Device> {
    let archs = architectures(&said.system);
    let mut found = Vec::new();
    for (index, (name, description, total, free)) in said.listed.lines().filter_map(device_line).enumerate() {
        let native = said.native.get(index).cloned().unwrap_or(Value::Null);
        let number = |key: &str| native[key].as_u64().unwrap_or(0);
        // A device whose name and description lack "CUDA" belongs to another backend.
        if !format!("{name}{description}").to_lowercase().contains("cuda") {
            continue;
        }
        let capability = (number("compute_major") as i32, number("compute_minor") as i32);
        let arch = format!("{}{}0", capability.0, capability.1);
        if total == 0 {
            log::debug("llama_server.go:330", "skipping pseudo-device with zero memory", &[("name", name)]);
            continue;
        }
        if !archs.is_empty() && !archs.contains(&arch.as_str()) {
            let message = "skipping CUDA device — compute capability not in compiled architectures";
            let fields = [("device", description), ("cc", &arch), ("archs", &format!("{archs:?}"))];
            log::info("llama_server.go:341", message, &fields);
            continue;
        }
        let nvidia = number("nvidia_driver_major");
        let needed = if capability.0 < 7 { OLD_DRIVER_FLOOR } else { DRIVER_FLOOR };
        let twelve = variant.file_name().is_some_and(|name| name == "cuda_v12");
        if twelve && nvidia == 0 {
            log::warn("cuda_compat.go:60", "could not verify NVIDIA driver compatibility for CUDA", &[]);
        } else if twelve && nvidia < needed {
            let fields = [("required_driver", format!("{needed} or newer"))];
            log::warn("cuda_compat.go:66", "NVIDIA driver too old", &[(fields[0].0, &fields[0].1)]);
            continue;
        }
        found.push(Device {
            id: index.to_string(),
            filter: index.to_string(),
            capability,
            name: name.to_owned(),
            description: description.to_owned(),
            driver: format!("{}.{}", number("cuda_driver_major"), number("cuda_driver_minor")),
            pci: native["device_id"].as_str().unwrap_or_default().to_owned(),
            total: total << 20,
            free: free << 20,
            variant: variant.to_owned(),
        });
    }
    found
}

fn pass(lines: &Lines, libraries: &Path, variant: &Path, extra: &[(&str, &str)]) -> Vec<Device> {
    match ask(lines, libraries, variant, extra) {
        Ok(said) => devices(&said, variant),
        Err(error) => {
            let text = format!("{error:#}");
            log::info("runner.go:120", "failure during llama-server GPU discovery", &[("error", &text)]);
            Vec::new()
        }
    }
}

/// Looks, and says what it found.
pub fn find_devices(lines: &Lines, libraries: &Path) -> Vec<Device> {
    let started = Instant::now();
    let variants = paths::variants(libraries);
    let first: Vec<Device> =
        variants.iter().flat_map(|variant| pass(lines, libraries, variant, &[])).collect();
    let count = first.len().to_string();
    log::debug(
        "runner.go:140",
        "evaluating which, if any, devices to filter out",
        &[("initial_count", &count)],
    );
    let second: Vec<Device> = thread::scope(|scope| {
        let check = |device: Device| {
            let library = device.variant.display().to_string();
            let fields = [
                ("library", library.as_str()),
                ("description", &device.description),
                ("id", &device.id),
                ("pci_id", &device.pci),
            ];
            log::debug("runner.go:146", "verifying if device is supported", &fields);
            let extra = [("CUDA_VISIBLE_DEVICES", device.id.as_str()), ("GGML_CUDA_INIT", "1")];
            (!pass(lines, libraries, &device.variant, &extra).is_empty()).then_some(device)
        };
        let threads: Vec<_> = first.into_iter().map(|device| scope.spawn(move || check(device))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    });
    let took = format!("{:?}", started.elapsed());
    log::debug("runner.go:40", "GPU bootstrap discovery took", &[("duration", &took)]);
    let devices = device::newest(second);
    for device in &devices {
        device::report(device);
    }
    if devices.is_empty() {
        device::report_cpu();
    }
    device::report_context(&devices);
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_devices() {
        assert_eq!(
            device_line("  CUDA0: vGPU (x) (8192 MiB, 7168 MiB free)"),
            Some(("CUDA0", "vGPU (x)", 8192, 7168))
        );
        for bad in [
            "",
            "Available devices:",
            "  (none)",
            "CUDA0: x (1 MiB, 1 MiB free)",
            "  CUDA0: x (1, 1 MiB free)",
        ] {
            assert_eq!(device_line(bad), None, "{bad}");
        }
    }

    #[test]
    fn lists_of_architectures() {
        let line = "x | CUDA : ARCHS = 500,610 | USE_GRAPHS = 1 |";
        assert_eq!(architectures(line), ["500", "610"]);
        assert!(architectures("CPU : SSE3 = 1").is_empty());
    }
}
