//! Discovery of the third era: llama-server without a model, llama-server's list, and `ollama gpu-discover`;
//! then the list again with each device alone.

use std::path::Path;
use std::time::Duration;

use super::judge::{REFRESH, about_gpus, died, filtered, refused, without_processor};
use super::run::{DiscoveryRun, LIMIT, VALIDATE};
use crate::check::child::ChildOutcome;
use crate::check::http;
use crate::check::limits;
use crate::check::links::init::lines;
use crate::check::refusals;
use crate::diagnosis::cause::discovery as cause;
use crate::diagnosis::fix::discovery as fix;
use crate::diagnosis::{Finding, LinkId};
use crate::env::{CUDA_VISIBLE_DEVICES, Environment};
use crate::ollama::answers::{self, DiscoveredDevice, ListedDevice};
use crate::ollama::processes;
use crate::ollama::variable::var;

const LINK: LinkId = LinkId::Discovery;
/// Time limit that Ollama sets for its own probe.
const NATIVE_LIMIT: Duration = Duration::from_secs(15);
/// Variable with the type of the KV cache, which Ollama passes to llama-server with a model.
const CACHE_TYPE: &str = "OLLAMA_KV_CACHE_TYPE";
/// Text in the line after which Ollama stops llama-server.
const READY: &str = "system_info:";
/// Text in the line with the address at which llama-server listens. What it does not accept later than that,
/// it does not accept with a model.
const LISTENS: &str = "listening on ";
/// Number of looks at llama-server between the two lines.
const LOOKS: u32 = 20;
/// Start of the names of variables that select models, in whose place Ollama names one.
const MODELS: [&str; 2] = ["LLAMA_ARG_MODEL", "LLAMA_ARG_HF_"];
/// Line before the list of devices, or before `(none)`.
const HEAD: &str = "Available devices:";

impl DiscoveryRun<'_> {
    /// Runs the three discovery processes and the second pass.
    pub async fn llama_server(&self) -> Result<Finding, String> {
        let server = self.ollama.libraries.join("llama-server");
        let port = http::free_port().map_err(|error| error.to_string())?.to_string();
        let words = ["--port", &port, "--host", "127.0.0.1", "--no-webui", "--offline", "--verbose"];
        let (mut stripped, mut looks) = (false, 0);
        let ready = &mut |stderr: &str, pid: Option<u32>| {
            let process = pid.and_then(|pid| processes::process(Path::new("/proc"), pid));
            // The last look counts: a script may stand there at first.
            stripped = process.map_or(stripped, |process| process.wrapped() == Some(false));
            let Some(at) = stderr.find(READY) else { return false };
            looks += 1;
            // With the rest of its line.
            stderr[at..].contains('\n') && (stderr[at..].contains(LISTENS) || looks > LOOKS)
        };
        let selects = |name: &str| MODELS.iter().any(|start| name.starts_with(start));
        let environment = self.environment.iter();
        let without_models: Environment =
            environment.filter(|(name, _)| !name.to_str().is_some_and(selects)).collect();
        let about = self.start(&server, &words, &without_models, LIMIT, ready).await?;
        if let Some(finding) = died("llama-server", &about) {
            return Ok(finding);
        }
        let never = &mut |_: &str, _: Option<u32>| false;
        // As at the load of a model, before the list, which ends the reading of arguments.
        let cache = var(&self.environment, CACHE_TYPE).unwrap_or_default().to_string_lossy().to_lowercase();
        let settings = ["--cache-type-k", &cache, "--cache-type-v", &cache];
        let settings = if cache.is_empty() { &settings[..0] } else { &settings[..] };
        let listing = ["--list-devices", "--offline", "--verbose"];
        let listing = [settings, &listing[..]].concat();
        let list = self.start(&server, &listing, &self.environment, LIMIT, never).await?;
        let [libraries, folder] =
            [&self.ollama.libraries, &self.variant.folder].map(|path| path.to_string_lossy());
        let words = ["gpu-discover", "--lib-dir", &*libraries, "--lib-dir", &*folder];
        let native = self.start(self.program, &words, &self.environment, NATIVE_LIMIT, never).await?;
        let seen = ProcessOutcomes { about, list, native, stripped };
        let finding = seen.judge(&self.variant.name(), self.major).with("server", server.display());
        if !finding.holds() {
            return Ok(finding);
        }
        if let Some(without) = without_processor(&seen.about.stderr, &self.ollama.libraries) {
            return Ok(without);
        }
        // As Ollama names them: by what the user named them, or by their numbers.
        let given =
            self.environment.get(CUDA_VISIBLE_DEVICES).map(|value| value.to_string_lossy().into_owned());
        let given: Vec<&str> = given.iter().flat_map(|value| value.split(',')).map(str::trim).collect();
        for index in 0..cuda(&seen.list).len() {
            let name = given.get(index).map_or_else(|| index.to_string(), |name| (*name).to_owned());
            let mut alone = self.environment.clone();
            alone.set(CUDA_VISIBLE_DEVICES, &name);
            alone.set(VALIDATE, "1");
            let second = self.start(&server, &listing, &alone, LIMIT, never).await?;
            if second.trouble().is_none() && !cuda(&second).is_empty() {
                continue;
            }
            let trouble = second.trouble().unwrap_or_else(|| "shows no device".into());
            return Ok(Finding::fail(
                cause::NO_DEVICE,
                format!("with CUDA_VISIBLE_DEVICES={name}, llama-server --list-devices {trouble}"),
            )
            .expected("the same device as without it")
            .fix(fix::BUG)
            .details(lines(&format!("{}\n{}", second.stdout, second.stderr))));
        }
        Ok(finding)
    }
}

/// Outcomes of the three discovery processes of the third era.
struct ProcessOutcomes {
    about: ChildOutcome,
    list: ChildOutcome,
    native: ChildOutcome,
    /// Whether the first process was seen to run without our libraries in LD_PRELOAD.
    stripped: bool,
}

/// Returns the CUDA devices in llama-server's list. Like Ollama, it looks for the word in name and
/// description.
fn cuda(list: &ChildOutcome) -> Vec<ListedDevice> {
    let mut devices = answers::devices(&format!("{}\n{}", list.stdout, list.stderr));
    devices.retain(|device| format!("{}{}", device.name, device.description).to_lowercase().contains("cuda"));
    devices
}

impl ProcessOutcomes {
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
        if devices.is_empty() {
            if self.stripped {
                return Finding::fail(
                    cause::ENVIRONMENT_STRIPPED,
                    "llama-server runs without the libraries that LD_PRELOAD named",
                )
                .expected("the libraries that LD_PRELOAD names")
                .details(lines(&text));
            }
            if !text.contains(HEAD) {
                let found = "llama-server --list-devices prints no list of devices";
                return Finding::unknown(LINK, found).expected(HEAD).details(lines(&text));
            }
            let found = "llama-server --list-devices shows no CUDA device";
            if let Some((limit, line)) = limits::said(&text) {
                return limit
                    .finding(cause::RESOURCE_LIMIT, format!("{found}: {line}"))
                    .details(about_gpus(&text));
            }
            let why = refusals::latest_error(&text).map(|why| format!(": {why}")).unwrap_or_default();
            return Finding::fail(cause::NO_DEVICE, format!("{found}{why}")).details(about_gpus(&text));
        }
        let native = answers::native(&self.native.stdout).unwrap_or_default();
        let mut native = native.iter().filter(|one| one.library.eq_ignore_ascii_case("cuda"));
        let known = native.clone().next().is_some();
        let (mut kept, mut filtered_out) = (Vec::new(), Vec::new());
        for (index, device) in devices.iter().enumerate() {
            let own = native.clone().find(|one| one.name == device.name).or_else(|| native.next());
            let capability =
                own.and_then(DiscoveredDevice::capability).or_else(|| answers::capability(&text, index));
            let driver = own.map(|own| own.nvidia_driver_major);
            match answers::dropped(capability, built.as_ref(), major, driver, device.total) {
                Some(dropped) => {
                    let built = built.iter().flatten().map(u32::to_string).collect::<Vec<_>>().join(",");
                    filtered_out.push(filtered(&dropped, capability, driver, &built));
                }
                None => {
                    kept.push(format!("{} {} with {} MiB", device.name, device.description, device.total));
                }
            }
        }
        if kept.is_empty()
            && let Some(first) = filtered_out.first()
        {
            return first.clone().details(about_gpus(&text));
        }
        let aside = filtered_out.into_iter().map(|finding| finding.found);
        let took = [&self.about, &self.list, &self.native].map(|outcome| outcome.elapsed);
        let sum: Duration = took.iter().sum();
        let times = took.map(|took| took.as_millis().to_string()).join(" + ");
        let found = format!("Ollama finds {} through {name}, in {times} ms", kept.join(" and "));
        if !known {
            let why = self.native.trouble().unwrap_or_else(|| "shows no CUDA device".into());
            return Finding::notice(
                LINK,
                format!("{found}; ollama gpu-discover {why}, so that Ollama does not know the driver"),
            )
            .details(lines(&self.native.stderr))
            .details(aside);
        }
        if sum > REFRESH {
            return Finding::warn(
                cause::TIMED_OUT,
                format!(
                    "{found}, more than the {} s that it grants itself before it loads a model",
                    REFRESH.as_secs()
                ),
            )
            .fix(fix::SLOW)
            .details(aside);
        }
        Finding::pass(LINK, found).details(aside)
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::tests::outcome;
    use super::*;
    use crate::check::child::ChildEnd;
    use crate::diagnosis::{Cause, Status};

    const ABOUT: &str = "system_info: n_threads = 2 | CUDA : ARCHS = 500,610,750 | USE_GRAPHS = 1 |\n  Device 0: x, compute capability 6.1, VMM: no\n";
    const LIST: &str = "Available devices:\n  CUDA0: VGPU-STUB soft (8192 MiB, 7168 MiB free)\n";
    const NATIVE: &str = r#"{"devices":[{"library":"CUDA","name":"CUDA0","compute_major":6,"compute_minor":1,"nvidia_driver_major":580}]}"#;

    fn seen(change: impl FnOnce(&mut ProcessOutcomes)) -> Finding {
        let fine = ChildEnd::Exit(0);
        let mut seen = ProcessOutcomes {
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
        assert_eq!((slow.status, slow.cause), (Status::Warn, Some(cause::TIMED_OUT)));
        let blind = seen(|seen| seen.native = outcome(ChildEnd::Exit(1), "", "Error: dlopen"));
        assert_eq!(blind.status, Status::Warn);
        assert!(blind.found.contains("gpu-discover ended with exit code 1"), "{}", blind.found);
    }

    #[test]
    fn each_filter_has_its_cause() {
        let arch = seen(|seen| seen.about.stderr = ABOUT.replace("610,", ""));
        assert_eq!(arch.cause, Some(cause::FILTERED_ARCH));
        assert!(arch.found.ends_with("built for 500,750, not for 6.1"), "{}", arch.found);
        assert_eq!(arch.details[0], "CUDA : ARCHS = 500,750 | USE_GRAPHS = 1 |");
        assert_eq!(
            seen(|seen| seen.native.stdout = NATIVE.replace("580", "560")).cause,
            Some(cause::FILTERED_DRIVER)
        );
        assert_eq!(
            seen(|seen| seen.list.stdout = LIST.replace("8192", "0")).cause,
            Some(cause::FILTERED_MEMORY)
        );
        assert_eq!(
            seen(|seen| seen.list.stdout = "Available devices:\n  (none)\n".into()).cause,
            Some(cause::NO_DEVICE)
        );
    }

    #[test]
    fn lists_that_are_none_and_environments_that_are_gone() {
        let tongues = seen(|seen| seen.list.stdout = "????".into());
        assert!(
            tongues.cause == Some(Cause::unknown(LINK)) && tongues.details.iter().any(|line| line == "????"),
            "{tongues:?}"
        );
        let stripped = seen(|seen| {
            seen.list.stdout = "Available devices:\n  (none)\n".into();
            seen.stripped = true;
        });
        assert_eq!(stripped.cause, Some(cause::ENVIRONMENT_STRIPPED));
    }

    #[test]
    fn what_breaks_the_processes() {
        assert_eq!(seen(|seen| seen.about.end = ChildEnd::Signal(11)).cause, Some(cause::CRASHED));
        assert_eq!(seen(|seen| seen.list.end = ChildEnd::TimedOut(LIMIT)).cause, Some(cause::TIMED_OUT));
        assert_eq!(seen(|seen| seen.list.end = ChildEnd::Exit(1)).cause, Some(Cause::unknown(LINK)));
        let stripped = "load_backend: failed to load /x/libggml-cuda.so: libcudart.so.12: cannot open shared object file: No such file";
        assert_eq!(seen(|seen| seen.list.stderr = stripped.into()).cause, Some(cause::ENVIRONMENT_STRIPPED));
        let other =
            "load_backend: failed to load /x/libggml-cuda.so: /x/libggml-base.so: undefined symbol: y";
        assert_eq!(seen(|seen| seen.about.stderr = other.into()).cause, Some(cause::BACKEND_NOT_LOADED));
    }
}
