//! Discovery of the second era: a runner that is asked over HTTP, and another one that initialises the device
//! which the first reported.

use super::judge::{about_gpus, died, filtered, without_processor};
use super::run::{DiscoveryRun, LIMIT, VALIDATE};
use crate::check::child::{ChildEnd, ChildOutcome};
use crate::check::http;
use crate::check::links::init::lines;
use crate::check::refusals;
use crate::diagnosis::cause::discovery as cause;
use crate::diagnosis::fix::discovery as fix;
use crate::diagnosis::{Finding, LinkId};
use crate::env::{CUDA_VISIBLE_DEVICES, Environment};
use crate::ollama::answers::{self, DiscoveredDevice};

const LINK: LinkId = LinkId::Discovery;
/// Text that a backend prints before it aborts because it has no code for the device.
const NO_ARCHITECTURE: &str = "was not compiled with support for this arch";
/// Text of a runner that cannot write the file of a model without layers, as releases spell it.
const NO_TEMPORARY: &str = "failed to initialize baackend: open ";

impl DiscoveryRun<'_> {
    /// Runs both runners. Releases between 0.12.4 and 0.13.1 omitted the second one for CUDA.
    pub async fn runner(&self) -> Result<Finding, String> {
        let (outcome, info) = self.ask_runner(&self.environment).await?;
        let (finding, devices) = judge_info(&self.variant.name(), &outcome, info.as_deref(), self.major);
        if !finding.holds() {
            return Ok(finding);
        }
        if let Some(without) = without_processor(&outcome.stderr, &self.ollama.libraries) {
            return Ok(without);
        }
        for device in &devices {
            let mut alone = self.environment.clone();
            alone.set(CUDA_VISIBLE_DEVICES, &device.id);
            alone.set(VALIDATE, "1");
            let (second, info) = self.ask_runner(&alone).await?;
            if let Some(broken) = judge_second(device, &second, info.as_deref()) {
                return Ok(broken);
            }
        }
        Ok(finding)
    }

    /// Starts a runner and ends it when it has answered. Returns the outcome of the process and the answer.
    async fn ask_runner(&self, environment: &Environment) -> Result<(ChildOutcome, Option<String>), String> {
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
        let outcome = self.start(self.program, &words, environment, LIMIT, ready).await?;
        Ok((outcome, answer.map(|(_, body)| body)))
    }
}

/// Interprets a runner's answer to `/info`.
fn judge_info(
    name: &str,
    outcome: &ChildOutcome,
    info: Option<&str>,
    major: Option<u32>,
) -> (Finding, Vec<DiscoveredDevice>) {
    let said = lines(&outcome.stderr);
    let Some(info) = info else {
        let silent = || Finding::unknown(LINK, "ollama runner ended without an answer").details(said);
        return (died("ollama runner", outcome).unwrap_or_else(silent), Vec::new());
    };
    if let Some((_, file)) = info.split_once(NO_TEMPORARY) {
        let file: String = file.trim_end_matches(['"', '}']).trim().chars().take(200).collect();
        let found = format!("ollama runner cannot create a temporary file: {file}");
        return (Finding::fail(cause::TEMPORARY_UNUSABLE, found).details(said), Vec::new());
    }
    let devices: Vec<DiscoveredDevice> = match answers::native(info) {
        Ok(devices) => devices,
        Err(error) => {
            let found = format!("the answer of ollama runner cannot be read: {error}");
            let answer: String = info.chars().take(200).collect();
            return (Finding::unknown(LINK, found).detail(answer), Vec::new());
        }
    };
    let devices: Vec<DiscoveredDevice> =
        devices.into_iter().filter(|device| device.library.eq_ignore_ascii_case("cuda")).collect();
    if devices.is_empty() {
        let why = refusals::latest_error(&outcome.stderr).map(|why| format!(": {why}")).unwrap_or_default();
        let finding = Finding::fail(cause::NO_DEVICE, format!("ollama runner shows no CUDA device{why}"));
        return (finding.details(said), devices);
    }
    let built = answers::architectures(&outcome.stderr);
    let (mut kept, mut aside) = (Vec::new(), Vec::new());
    for device in devices {
        let capability = device.capability();
        match answers::dropped(capability, built.as_ref(), major, None, device.total_memory >> 20) {
            Some(dropped) => {
                let built = built.iter().flatten().map(u32::to_string).collect::<Vec<_>>().join(",");
                aside.push(filtered(&dropped, capability, None, &built));
            }
            None => kept.push(device),
        }
    }
    if kept.is_empty()
        && let Some(first) = aside.first()
    {
        return (first.clone().details(about_gpus(&outcome.stderr)), kept);
    }
    let each: Vec<String> = kept
        .iter()
        .map(|device| {
            format!("{} {} with {} MiB", device.name, device.description, device.total_memory >> 20)
        })
        .collect();
    let found =
        format!("Ollama finds {} through {name}, in {} ms", each.join(" and "), outcome.elapsed.as_millis());
    (Finding::pass(LINK, found).details(aside.into_iter().map(|finding| finding.found)), kept)
}

/// Interprets the second pass, in which the device is alone and is initialised. Returns `None` if it
/// succeeded.
fn judge_second(device: &DiscoveredDevice, outcome: &ChildOutcome, info: Option<&str>) -> Option<Finding> {
    let said = lines(&outcome.stderr);
    if outcome.stderr.contains(NO_ARCHITECTURE) {
        let (major, minor) = device.capability().unwrap_or_default();
        let found = format!(
            "Ollama drops the device: its backend has no code for compute capability {major}.{minor}"
        );
        return Some(Finding::fail(cause::FILTERED_ARCH, found).details(said));
    }
    let Some(info) = info else {
        let ended = ChildOutcome {
            end: if outcome.end == ChildEnd::Exit(0) { ChildEnd::Exit(1) } else { outcome.end },
            ..outcome.clone()
        };
        return died(&format!("ollama runner, with {VALIDATE}=1,"), &ended);
    };
    let devices = answers::native(info).unwrap_or_default();
    if devices.iter().any(|device| device.library.eq_ignore_ascii_case("cuda")) {
        return None;
    }
    let found = format!("with CUDA_VISIBLE_DEVICES={}, ollama runner shows no CUDA device", device.id);
    Some(
        Finding::fail(cause::NO_DEVICE, found)
            .expected("the same device as without it")
            .fix(fix::BUG)
            .details(said),
    )
}

#[cfg(test)]
mod tests {
    use super::super::judge::tests::outcome;
    use super::*;
    use crate::diagnosis::{Cause, Status};

    #[test]
    fn a_runner_s_answer() {
        let info = r#"[{"backend":"CUDA","name":"CUDA0","description":"x","ComputeMajor":7,"ComputeMinor":5,"total_memory":8589934592}]"#;
        let ended = outcome(ChildEnd::Exit(0), "", "msg=system CUDA.0.ARCHS=750 x\n");
        assert_eq!(judge_info("v", &ended, Some(info), Some(13)).0.status, Status::Pass);
        assert_eq!(judge_info("v", &ended, Some("[]"), None).0.cause, Some(cause::NO_DEVICE));
        assert_eq!(judge_info("v", &ended, Some("<html>"), None).0.cause, Some(Cause::unknown(LINK)));
        assert_eq!(
            judge_info("v", &outcome(ChildEnd::Signal(11), "", ""), None, None).0.cause,
            Some(cause::CRASHED)
        );
        let other = outcome(ChildEnd::Exit(0), "", "CUDA.0.ARCHS=800");
        assert_eq!(judge_info("v", &other, Some(info), None).0.cause, Some(cause::FILTERED_ARCH));
    }

    #[test]
    fn a_device_must_stand_being_initialised() {
        let device = DiscoveredDevice {
            id: "GPU-5e".into(),
            compute_major: 7,
            compute_minor: 5,
            ..DiscoveredDevice::default()
        };
        let cause = |end, stderr, info| judge_second(&device, &outcome(end, "", stderr), info)?.cause;
        assert_eq!(cause(ChildEnd::Exit(0), "", Some(r#"[{"backend":"CUDA"}]"#)), None);
        assert_eq!(cause(ChildEnd::Exit(0), "", Some("[]")), Some(cause::NO_DEVICE));
        let refused = "ggml-cuda.cu:1: ggml was not compiled with support for this arch";
        assert_eq!(cause(ChildEnd::Signal(6), refused, None), Some(cause::FILTERED_ARCH));
        assert_eq!(cause(ChildEnd::Signal(6), "", None), Some(cause::CRASHED));
        assert_eq!(cause(ChildEnd::Exit(0), "", None), Some(Cause::unknown(LINK)));
    }
}
