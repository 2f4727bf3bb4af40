//! Link `discovery`: Ollama's own discovery processes, started as Ollama starts them, and its filters applied to what they print.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::backend::usable;
use super::init::lines;
use super::unable;
use crate::check::catalogue::{LinkId, UNKNOWN};
use crate::check::child::{self, End, Outcome};
use crate::check::context::Context;
use crate::check::finding::{Finding, Status};
use crate::check::http;
use crate::check::probe::Probe;
use crate::embedded::OBJECTS;
use crate::env::{CUDA_VISIBLE_DEVICES, Environment, HOME, LD_LIBRARY_PATH};
use crate::ollama::Ollama;
use crate::ollama::answers::{self, Device, Dropped, Native};
use crate::ollama::era::Era;
use crate::ollama::running;
use crate::ollama::symbols::Symbols;
use crate::ollama::variant::Variant;
use crate::program::search;

const LINK: LinkId = LinkId::Discovery;
/// What Ollama grants all processes of one folder, and its own probe.
const LIMIT: Duration = Duration::from_secs(30);
/// Left for what follows, where the whole check is short of time.
const RESERVE: Duration = Duration::from_millis(500);
const NATIVE_LIMIT: Duration = Duration::from_secs(15);
/// What it grants all three when it looks anew before it loads a model.
const REFRESH: Duration = Duration::from_secs(3);
/// The line at which llama-server is stopped.
const READY: &str = "system_info:";
/// The line before the devices, or before `(none)`.
const HEAD: &str = "Available devices:";
const STRIPPED_FIX: &str = "Is llama-server a script that clears the environment? Use Ollama's own file.";
/// What Ollama sets for its second look, at one device alone.
const VALIDATE: &str = "GGML_CUDA_INIT";

/// Looks at the link.
pub async fn look(context: &mut Context) -> Finding {
    if context.options.no_ollama {
        return Finding::skip(LINK, "not looked at (--no-ollama)");
    }
    let target = context.target();
    let (Ok(program), Some(ollama)) = (&target.program, target.ollama.clone()) else {
        return Finding::skip(LINK, "there is no Ollama");
    };
    let program = std::fs::canonicalize(&program.path).unwrap_or_else(|_| program.path.clone());
    let mut first: Option<Finding> = None;
    for (variant, major) in usable(context) {
        let mut environment = variant.environment(&ollama, &context.environment);
        if environment.get(HOME).is_none() {
            environment.set(HOME, "/");
        }
        let until = Instant::now() + context.time(LIMIT).saturating_sub(RESERVE);
        let run = Run { program: &program, ollama: &ollama, variant: &variant, major, environment, until };
        let finding = match ollama.era {
            Era::A => run.by_path().await,
            Era::B => run.runner().await,
            Era::C => run.llama_server().await,
        };
        let finding = match finding {
            Ok(finding) => finding,
            Err(why) => return unable(context, LINK, "start Ollama's processes", &why),
        };
        if finding.holds() {
            return finding;
        }
        if finding.status == Status::Skip {
            context.incomplete.push(LINK.as_str().to_owned());
        }
        first.get_or_insert(finding);
    }
    first.unwrap_or_else(|| Finding::skip(LINK, "there is no backend to try"))
}

/// One discovery, with one backend.
struct Run<'a> {
    program: &'a Path,
    ollama: &'a Ollama,
    variant: &'a Variant,
    major: Option<u32>,
    environment: Environment,
    /// When all its processes must be over.
    until: Instant,
}

impl Run<'_> {
    fn left(&self, limit: Duration) -> Duration {
        limit.min(self.until.saturating_duration_since(Instant::now()))
    }

    async fn start(
        &self,
        program: &Path,
        words: &[&str],
        environment: &Environment,
        limit: Duration,
        ready: &mut (dyn FnMut(&str, Option<u32>) -> bool + Send),
    ) -> Result<Outcome, String> {
        let mut command = Command::new(program);
        command.args(words);
        let failed = |error| format!("{}: {error}", program.display());
        child::run_until(command, environment, self.left(limit), ready).await.map_err(failed)
    }

    /// Third era: llama-server without a model, llama-server's list, `ollama gpu-discover`; and the list again with that device alone.
    async fn llama_server(&self) -> Result<Finding, String> {
        let server = self.ollama.libraries.join("llama-server");
        let port = http::free_port().map_err(|error| error.to_string())?.to_string();
        let words = ["--port", &port, "--host", "127.0.0.1", "--no-webui", "--offline", "--verbose"];
        let mut stripped = false;
        let ready = &mut |stderr: &str, pid: Option<u32>| {
            let process = pid.and_then(|pid| running::process(Path::new("/proc"), pid));
            // The last look counts: a script may stand there at first.
            stripped = process.map_or(stripped, |process| process.wrapped() == Some(false));
            stderr.contains(READY)
        };
        let about = self.start(&server, &words, &self.environment, LIMIT, ready).await?;
        if let Some(finding) = died("llama-server", &about) {
            return Ok(finding);
        }
        let never = &mut |_: &str, _: Option<u32>| false;
        let listing = ["--list-devices", "--offline", "--verbose"];
        let list = self.start(&server, &listing, &self.environment, LIMIT, never).await?;
        let [libraries, folder] =
            [&self.ollama.libraries, &self.variant.folder].map(|path| path.to_string_lossy());
        let words = ["gpu-discover", "--lib-dir", &*libraries, "--lib-dir", &*folder];
        let native = self.start(self.program, &words, &self.environment, NATIVE_LIMIT, never).await?;
        let seen = Seen { about, list, native, stripped };
        let finding = seen.judge(&self.variant.name(), self.major);
        if !finding.holds() {
            return Ok(finding);
        }
        let mut alone = self.environment.clone();
        alone.set(CUDA_VISIBLE_DEVICES, "0");
        alone.set(VALIDATE, "1");
        let second = self.start(&server, &listing, &alone, LIMIT, never).await?;
        if second.trouble().is_none() && !cuda(&second).is_empty() {
            return Ok(finding);
        }
        let trouble = second.trouble().unwrap_or_else(|| "shows no device".into());
        Ok(Finding::fail(
            LINK,
            "no-device",
            format!("with CUDA_VISIBLE_DEVICES=0, llama-server --list-devices {trouble}"),
        )
        .expected("the same device as without it")
        .fix("Please report it, with what check found.")
        .command("vgpu-run check --bundle vgpu-run-check.tar.gz")
        .details(lines(&format!("{}\n{}", second.stdout, second.stderr))))
    }

    /// Second era: a runner, asked over HTTP.
    async fn runner(&self) -> Result<Finding, String> {
        let port = http::free_port().map_err(|error| error.to_string())?;
        let address = ([127, 0, 0, 1], port).into();
        let mut answer = None;
        let limit = self.left(LIMIT);
        let ready = &mut |_: &str, _: Option<u32>| {
            // Refused until it listens; then it looks for devices, which is what takes time.
            answer = http::get(address, "/info", limit).ok();
            answer.is_some()
        };
        let port = port.to_string();
        let words = ["runner", "--ollama-engine", "--port", &port];
        let outcome = self.start(self.program, &words, &self.environment, LIMIT, ready).await?;
        Ok(judge_info(
            &self.variant.name(),
            &outcome,
            answer.as_ref().map(|(_, body)| body.as_str()),
            self.major,
        ))
    }

    /// First era: the server opens the driver's library by a path that it finds in LD_LIBRARY_PATH and built-in folders.
    async fn by_path(&self) -> Result<Finding, String> {
        let Some(path) = driver_by_path(&driver_folders(self.ollama, &self.environment)) else {
            return Ok(Finding::fail(
                LINK,
                "no-device",
                "no libcuda.so* lies in a folder of LD_LIBRARY_PATH as a file",
            )
            .detail("an Ollama before 0.12.4 opens the driver by its path, and follows links by their text")
            .fix("Let vgpu-run put the libraries into a folder.")
            .command("vgpu-run --via folder ollama serve"));
        };
        let file = std::fs::File::open(&path).map_err(|error| error.to_string())?;
        let symbols = Symbols::read(&file).map_err(|error| error.to_string())?;
        let absent: Vec<_> =
            MANDATORY.iter().filter(|name| !symbols.exports.contains_key(**name)).copied().collect();
        if !absent.is_empty() {
            let found = format!("{} lacks {}", path.display(), absent.join(", "));
            return Ok(Finding::fail(LINK, "backend-not-loaded", found).fix("Update vgpu-run."));
        }
        let text = path.to_string_lossy().into_owned();
        let outcome =
            Probe::place(None)?.run(["resolve", &text], &self.environment, self.left(LIMIT)).await?;
        let steps = outcome.steps();
        Ok(match steps.get(&text) {
            Some(report) if report.ok => Finding::pass(LINK, format!("the server opens {}", path.display())),
            Some(report) => Finding::fail(LINK, "backend-not-loaded", report.text("error"))
                .fix("Update vgpu-run.")
                .details(lines(&outcome.stderr)),
            None => Finding::fail(LINK, UNKNOWN, outcome.trouble().unwrap_or_default())
                .details(lines(&outcome.stderr)),
        })
    }
}

/// Without any of these an Ollama of the first era takes no driver.
const MANDATORY: [&str; 10] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetUuid",
    "cuDeviceGetName",
    "cuCtxCreate_v3",
    "cuMemGetInfo_v2",
    "cuCtxDestroy",
];

/// Where an Ollama of the first era looks for the driver first.
pub fn driver_folders(ollama: &Ollama, environment: &Environment) -> Vec<PathBuf> {
    let inherited = environment.get(LD_LIBRARY_PATH).map(search::split).unwrap_or_default();
    std::iter::once(ollama.libraries.clone()).chain(inherited).collect()
}

/// The first file that an Ollama of the first era would open: links are followed by their text, so that a link to a memory file leads nowhere.
pub fn driver_by_path(folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().find_map(|folder| {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .ok()?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libcuda.so"))
            })
            .collect();
        names.sort();
        names.into_iter().find_map(|mut path| {
            while let Ok(next) = std::fs::read_link(&path) {
                path = if next.is_absolute() { next } else { path.parent()?.join(next) };
            }
            path.is_file().then_some(path)
        })
    })
}

/// What the three processes of the third era did.
struct Seen {
    about: Outcome,
    list: Outcome,
    native: Outcome,
    /// The first of them was seen to run without our libraries in LD_PRELOAD.
    stripped: bool,
}

/// The CUDA devices in llama-server's list: Ollama looks for the word in name and description.
fn cuda(list: &Outcome) -> Vec<Device> {
    let mut devices = answers::devices(&format!("{}\n{}", list.stdout, list.stderr));
    devices.retain(|device| format!("{}{}", device.name, device.description).to_lowercase().contains("cuda"));
    devices
}

/// Lines of Ollama's processes that say something of GPUs.
fn about_gpus(text: &str) -> Vec<String> {
    const WORDS: [&str; 7] =
        ["CUDA", "ggml_cuda", "load_backend", "Device ", "Available devices", "(none)", "NVIDIA"];
    /// Of the line of system_info, which is long, what is behind the processor's part.
    const PART: &str = "CUDA : ARCHS";
    let lines = text.lines().filter(|line| WORDS.iter().any(|word| line.contains(word)));
    let mut found: Vec<String> =
        lines.map(|line| line.find(PART).map_or(line, |at| &line[at..]).trim().to_owned()).collect();
    found.dedup();
    found.truncate(12);
    found
}

/// A process that did not end well.
fn died(what: &str, outcome: &Outcome) -> Option<Finding> {
    let trouble = outcome.trouble()?;
    let found = format!("{what} {trouble}");
    let finding = match outcome.end {
        // It was given less time than Ollama gives: nothing is known.
        End::TimedOut(limit) if limit < REFRESH => Finding::skip(LINK, format!("{found}, for lack of time")),
        End::TimedOut(_) => Finding::fail(LINK, "timed-out", found)
            .fix("Look at the device's host: a call that waits for it gets no answer.")
            .command("vgpu-run check --only host"),
        End::Signal(_) => Finding::fail(LINK, "crashed", found)
            .fix("Please report it, with what check found.")
            .command("vgpu-run check --bundle vgpu-run-check.tar.gz"),
        End::Exit(_) => Finding::fail(LINK, UNKNOWN, found),
    };
    Some(finding.details(lines(&format!("{}\n{}", outcome.stdout, outcome.stderr))))
}

/// The backend that a process could not load: because our libraries are not there, or for another reason.
fn refused(text: &str) -> Option<Finding> {
    let refusal = answers::refusal(text)?;
    let ours = refusal.contains("cannot open shared object file")
        && OBJECTS.iter().any(|object| refusal.contains(object.soname));
    Some(if ours {
        Finding::fail(LINK, "environment-stripped", refusal)
            .expected("the libraries that LD_PRELOAD names")
            .fix(STRIPPED_FIX)
    } else {
        Finding::fail(LINK, "backend-not-loaded", refusal)
            .fix("Install Ollama again; its files do not fit together.")
    })
}

/// A device that Ollama's filters drop.
fn filtered(dropped: &Dropped, capability: Option<(u32, u32)>, driver: Option<u32>, built: &str) -> Finding {
    let (major, minor) = capability.unwrap_or_default();
    match dropped {
        Dropped::Memory => {
            Finding::fail(LINK, "filtered-memory", "Ollama drops the device: it reports no memory")
                .fix("Look at the device's host: its GPU is full, or cannot be asked.")
        }
        Dropped::Architecture => Finding::fail(
            LINK,
            "filtered-arch",
            format!("Ollama drops the device: its backend was built for {built}, not for {major}.{minor}"),
        )
        .fix("Use a release of Ollama that was built for this GPU."),
        Dropped::Driver(wanted) => {
            let driver = driver.unwrap_or_default();
            Finding::fail(LINK, "filtered-driver", format!("Ollama drops the device: its driver is {driver}"))
                .expected(format!("{wanted} or newer"))
                .fix("Update the driver on the host.")
        }
    }
}

impl Seen {
    fn judge(&self, name: &str, major: Option<u32>) -> Finding {
        let text = format!(
            "{}\n{}\n{}\n{}",
            self.about.stdout, self.about.stderr, self.list.stdout, self.list.stderr
        );
        if let Some(finding) = died("llama-server", &self.about) {
            return finding;
        }
        if let Some(finding) = refused(&text) {
            return finding.details(about_gpus(&text));
        }
        if let Some(finding) = died("llama-server --list-devices", &self.list) {
            return finding;
        }
        let built = answers::architectures(&text);
        let devices = cuda(&self.list);
        let Some(device) = devices.first() else {
            if self.stripped {
                return Finding::fail(
                    LINK,
                    "environment-stripped",
                    "llama-server runs without what LD_PRELOAD named",
                )
                .expected("the libraries that LD_PRELOAD names")
                .fix(STRIPPED_FIX)
                .details(lines(&text));
            }
            if !text.contains(HEAD) {
                let found = "llama-server --list-devices prints no list of devices";
                return Finding::fail(LINK, UNKNOWN, found).expected(HEAD).details(lines(&text));
            }
            return Finding::fail(LINK, "no-device", "llama-server --list-devices shows no CUDA device")
                .fix("Look at the links before this one: what was found there is not what Ollama's processes find.")
                .details(about_gpus(&text));
        };
        let native = answers::native(&self.native.stdout).unwrap_or_default();
        let own = native.iter().find(|one| one.library.eq_ignore_ascii_case("cuda"));
        let capability = own
            .map(|own| (own.compute_major, own.compute_minor))
            .filter(|(major, _)| *major > 0)
            .or_else(|| answers::capability(&text));
        let driver = own.map(|own| own.nvidia_driver_major);
        if let Some(dropped) = answers::dropped(capability, built.as_ref(), major, driver, device.total) {
            let built = built.unwrap_or_default().iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            return filtered(&dropped, capability, driver, &built).details(about_gpus(&text));
        }
        let took = [&self.about, &self.list, &self.native].map(|outcome| outcome.elapsed);
        let sum: Duration = took.iter().sum();
        let times = took.map(|took| took.as_millis().to_string()).join(" + ");
        let found = format!(
            "Ollama finds {} {} with {} MiB through {name}, in {times} ms",
            device.name, device.description, device.total
        );
        if own.is_none() {
            let why = self.native.trouble().unwrap_or_else(|| "shows no CUDA device".into());
            return Finding::warn(
                LINK,
                None,
                format!("{found}; ollama gpu-discover {why}, so that Ollama does not know the driver"),
            )
            .details(lines(&self.native.stderr));
        }
        if sum > REFRESH {
            return Finding::warn(
                LINK,
                "timed-out",
                format!(
                    "{found}, more than the {} s that it grants itself before it loads a model",
                    REFRESH.as_secs()
                ),
            )
            .fix("Give the VM more processors, or lay Ollama's libraries onto a faster disk.");
        }
        Finding::pass(LINK, found)
    }
}

/// What a runner's `/info` means.
fn judge_info(name: &str, outcome: &Outcome, info: Option<&str>, major: Option<u32>) -> Finding {
    let said = lines(&outcome.stderr);
    let Some(info) = info else {
        return died("ollama runner", outcome).unwrap_or_else(|| {
            Finding::fail(LINK, UNKNOWN, "ollama runner ended without an answer").details(said)
        });
    };
    let devices: Vec<Native> = match answers::native(info) {
        Ok(devices) => devices,
        Err(error) => {
            return Finding::fail(LINK, UNKNOWN, format!("ollama runner answers what is not known: {error}"))
                .detail(info.chars().take(200).collect::<String>());
        }
    };
    let Some(device) = devices.iter().find(|device| device.library.eq_ignore_ascii_case("cuda")) else {
        return Finding::fail(LINK, "no-device", "ollama runner shows no CUDA device")
            .fix("Look at the links before this one: what was found there is not what Ollama's processes find.")
            .details(said);
    };
    let built = answers::architectures(&outcome.stderr);
    let capability = Some((device.compute_major, device.compute_minor)).filter(|(major, _)| *major > 0);
    if let Some(dropped) =
        answers::dropped(capability, built.as_ref(), major, None, device.total_memory >> 20)
    {
        let built = built.unwrap_or_default().iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        return filtered(&dropped, capability, None, &built).details(about_gpus(&outcome.stderr));
    }
    Finding::pass(
        LINK,
        format!(
            "Ollama finds {} {} with {} MiB through {name}, in {} ms",
            device.name,
            device.description,
            device.total_memory >> 20,
            outcome.elapsed.as_millis()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn outcome(end: End, stdout: &str, stderr: &str) -> Outcome {
        Outcome { end, stdout: stdout.into(), stderr: stderr.into(), elapsed: Duration::from_millis(40) }
    }

    const ABOUT: &str = "system_info: n_threads = 2 | CUDA : ARCHS = 500,610,750 | USE_GRAPHS = 1 |\n  Device 0: x, compute capability 6.1, VMM: no\n";
    const LIST: &str = "Available devices:\n  CUDA0: VGPU-STUB soft (8192 MiB, 7168 MiB free)\n";
    const NATIVE: &str = r#"{"devices":[{"library":"CUDA","name":"CUDA0","compute_major":6,"compute_minor":1,"nvidia_driver_major":580}]}"#;

    fn seen(change: impl FnOnce(&mut Seen)) -> Finding {
        let fine = End::Exit(0);
        let mut seen = Seen {
            about: outcome(fine, "", ABOUT),
            list: outcome(fine, LIST, ""),
            native: outcome(fine, NATIVE, ""),
            stripped: false,
        };
        change(&mut seen);
        seen.judge("cuda_v12", Some(12))
    }

    #[test]
    fn a_device_that_passes_all_filters() {
        let finding = seen(|_| ());
        assert_eq!(finding.status, Status::Pass);
        assert_eq!(
            finding.found,
            "Ollama finds CUDA0 VGPU-STUB soft with 8192 MiB through cuda_v12, in 40 + 40 + 40 ms"
        );
        let slow = seen(|seen| seen.list.elapsed = Duration::from_secs(4));
        assert_eq!((slow.status, slow.cause), (Status::Warn, Some("timed-out")));
        let blind = seen(|seen| seen.native = outcome(End::Exit(1), "", "Error: dlopen"));
        assert_eq!(blind.status, Status::Warn);
        assert!(blind.found.contains("gpu-discover ended with exit code 1"), "{}", blind.found);
    }

    #[test]
    fn each_filter_has_its_cause() {
        let arch = seen(|seen| seen.about.stderr = ABOUT.replace("610,", ""));
        assert_eq!(arch.cause, Some("filtered-arch"));
        assert!(arch.found.ends_with("built for 500,750, not for 6.1"), "{}", arch.found);
        assert_eq!(arch.details[0], "CUDA : ARCHS = 500,750 | USE_GRAPHS = 1 |");
        assert_eq!(
            seen(|seen| seen.native.stdout = NATIVE.replace("580", "560")).cause,
            Some("filtered-driver")
        );
        assert_eq!(seen(|seen| seen.list.stdout = LIST.replace("8192", "0")).cause, Some("filtered-memory"));
        assert_eq!(
            seen(|seen| seen.list.stdout = "Available devices:\n  (none)\n".into()).cause,
            Some("no-device")
        );
    }

    #[test]
    fn lists_that_are_none_and_environments_that_are_gone() {
        let tongues = seen(|seen| seen.list.stdout = "????".into());
        assert!(
            tongues.cause == Some(UNKNOWN) && tongues.details.iter().any(|line| line == "????"),
            "{tongues:?}"
        );
        let stripped = seen(|seen| {
            seen.list.stdout = "Available devices:\n  (none)\n".into();
            seen.stripped = true;
        });
        assert_eq!(stripped.cause, Some("environment-stripped"));
    }

    #[test]
    fn what_breaks_the_processes() {
        assert_eq!(seen(|seen| seen.about.end = End::Signal(11)).cause, Some("crashed"));
        assert_eq!(seen(|seen| seen.list.end = End::TimedOut(LIMIT)).cause, Some("timed-out"));
        assert_eq!(seen(|seen| seen.list.end = End::Exit(1)).cause, Some(UNKNOWN));
        let stripped = "load_backend: failed to load /x/libggml-cuda.so: libcudart.so.12: cannot open shared object file: No such file";
        assert_eq!(seen(|seen| seen.list.stderr = stripped.into()).cause, Some("environment-stripped"));
        let other =
            "load_backend: failed to load /x/libggml-cuda.so: /x/libggml-base.so: undefined symbol: y";
        assert_eq!(seen(|seen| seen.about.stderr = other.into()).cause, Some("backend-not-loaded"));
    }

    #[test]
    fn a_runner_s_answer() {
        let info = r#"[{"backend":"CUDA","name":"CUDA0","description":"x","compute_major":7,"compute_minor":5,"total_memory":8589934592}]"#;
        let ended = outcome(End::Exit(0), "", "msg=system CUDA.0.ARCHS=750 x\n");
        assert_eq!(judge_info("v", &ended, Some(info), Some(13)).status, Status::Pass);
        assert_eq!(judge_info("v", &ended, Some("[]"), None).cause, Some("no-device"));
        assert_eq!(judge_info("v", &ended, Some("<html>"), None).cause, Some(UNKNOWN));
        assert_eq!(judge_info("v", &outcome(End::Signal(11), "", ""), None, None).cause, Some("crashed"));
        let other = outcome(End::Exit(0), "", "CUDA.0.ARCHS=800");
        assert_eq!(judge_info("v", &other, Some(info), None).cause, Some("filtered-arch"));
    }

    #[test]
    fn links_to_memory_files_lead_nowhere_by_their_text() {
        let scratch = Scratch::new();
        let folders = [scratch.path().to_owned()];
        assert_eq!(driver_by_path(&folders), None);
        std::os::unix::fs::symlink("/memfd:libcuda.so.1 (deleted)", scratch.join("libcuda.so.1")).unwrap();
        assert_eq!(driver_by_path(&folders), None);
        std::fs::write(scratch.join("libcuda.so.1.2"), "").unwrap();
        std::os::unix::fs::symlink("libcuda.so.1.2", scratch.join("libcuda.so")).unwrap();
        assert_eq!(driver_by_path(&folders), Some(scratch.join("libcuda.so.1.2")));
    }

    #[test]
    fn the_driver_has_what_the_first_era_wants() {
        let driver = OBJECTS.iter().find(|object| object.soname == "libcuda.so.1").unwrap();
        let symbols = Symbols::read(&driver.bytes).unwrap();
        assert!(MANDATORY.iter().all(|name| symbols.exports.contains_key(*name)));
    }
}
