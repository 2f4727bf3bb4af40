//! Link `init`: a child opens and starts the backend as Ollama does, and reports the messages of the loader
//! and CUDA, which Ollama itself does not print.

use std::ffi::OsString;
use std::time::Duration;

use vgpu_probe_steps::{Devices, Fault};

use super::backend::{soname, usable};
use super::{environment, unable};
use crate::check::child::{ChildEnd, ChildOutcome};
use crate::check::context::CheckContext;
use crate::check::steps::Steps;
use crate::check::words;
use crate::check::{limits, probe, refusals};
use crate::diagnosis::cause::init as cause;
use crate::diagnosis::fix::init as fix;
use crate::diagnosis::{Cause, Finding, LinkId};
use crate::env::VGPU_LOG;
use crate::ollama::answers;
use crate::ollama::variant::Variant;

const LINK: LinkId = LinkId::Init;
/// Time that Ollama allows for a refresh, for three processes together.
const BUDGET: Duration = Duration::from_secs(3);
/// Time limit for the child. It exceeds the budget, so that a slow backend is still seen to start or fail.
const LIMIT: Duration = Duration::from_secs(15);
/// Number of lines of a child's output that are shown.
const SHOWN: usize = 12;

/// Examines the link. One backend that starts is enough, as for Ollama.
pub async fn examine(context: &mut CheckContext) -> Finding {
    let Some(ollama) = context.target().ollama.clone() else {
        return Finding::skip(LINK, "there is no Ollama");
    };
    if environment::hides_all(context) {
        return Finding::skip(LINK, "not reached (CUDA_VISIBLE_DEVICES hides every device)");
    }
    let mut first: Option<Finding> = None;
    for (variant, major) in usable(context) {
        let mut environment = variant.environment(&ollama, &context.environment);
        environment.set(VGPU_LOG, "info");
        let mut words: Vec<OsString> = vec!["load".into(), variant.backend().into()];
        if let Some(base) = Variant::base(&ollama) {
            words.extend(["--with".into(), base.into()]);
        }
        let outcome = match probe::run_probe(context, &words, &environment, LIMIT).await {
            Ok(outcome) => outcome,
            Err(why) => return unable(context, LINK, "start vgpu-probe", &why),
        };
        let finding = judge(&variant.name(), &outcome);
        let finding =
            words::blamed(finding, &context.environment, Some(&ollama.libraries), context.unit.as_ref());
        if finding.holds() {
            context.started = Some((variant, major));
            return finding
                .details(first.into_iter().flat_map(|other| [vec![other.found], other.details].concat()));
        }
        first.get_or_insert(finding);
    }
    first.unwrap_or_else(|| {
        Finding::skip(LINK, format!("there is no backend to start, such as {}", soname("libggml-cuda", None)))
    })
}

/// Judges a run of `vgpu-probe load`.
fn judge(name: &str, outcome: &ChildOutcome) -> Finding {
    let steps = Steps::read(&outcome.stdout);
    let said = lines(&outcome.stderr);
    let finding = |finding: Finding| finding.details(said.clone());
    if let Some(step) = &steps.open {
        let at = match step.as_str() {
            "open" => "while the loader opened it".to_owned(),
            "start" => "while it looked for devices".to_owned(),
            "devices" => "while it described its devices".to_owned(),
            other => format!("at {other}"),
        };
        return finding(match outcome.end {
            ChildEnd::TimedOut(limit) => Finding::fail(
                cause::TIMED_OUT,
                format!("{name} did not complete within {} s {at}", limit.as_secs()),
            )
            .expected("less than a second"),
            _ => aborted(name, &at, outcome),
        });
    }
    if let Some(failed) = steps.failed() {
        let Fault { call, error: words, .. } = failed.said().unwrap_or_default();
        return finding(match failed.step.as_str() {
            "devices" => no_device(name, &outcome.stderr),
            "start" if call == "dlsym" => {
                Finding::fail(cause::LOAD_FAILED, format!("{name} is no backend of GGML's: {words}"))
                    .fix(fix::NO_FUNCTION)
            }
            "start" => Finding::unknown(LINK, format!("{name} did not start: {call} says: {words}")),
            step => {
                let finding = Finding::fail(cause::LOAD_FAILED, format!("{name}: {words}"));
                let denied = words.contains("Permission denied");
                let lacking = words.contains("undefined symbol") || words.contains(": version `");
                let finding = match (denied, lacking) {
                    (true, _) => finding.fix(fix::READABLE),
                    (false, true) => finding.fix(fix::NO_FUNCTION),
                    (false, false) => finding,
                };
                finding.detail(format!("step {step}"))
            }
        });
    }
    let Some(Devices { devices: all }) = steps.said() else {
        let trouble = outcome.trouble().unwrap_or_else(|| "ended without a word".into());
        return finding(Finding::unknown(LINK, format!("the process that opened {name} {trouble}")));
    };
    let shown: Vec<String> = all
        .iter()
        .map(|device| {
            format!(
                "{} {} with {} MiB, {} free",
                device.name,
                device.description,
                device.total.unwrap_or_default() >> 20,
                device.free >> 20
            )
        })
        .collect();
    if all.iter().all(|device| device.total == Some(0)) {
        return finding(
            Finding::fail(cause::CUDA_ERROR, format!("{name} cannot ask the device for its memory"))
                .detail(shown.join("; ")),
        );
    }
    let took = outcome.elapsed;
    let found = format!("{name} starts in {} ms: {}", took.as_millis(), shown.join("; "));
    if took > BUDGET {
        return Finding::warn(cause::TIMED_OUT, found).expected("less than a second").fix(fix::SLOW);
    }
    Finding::pass(LINK, found)
}

/// Returns the finding for a child that died: an abort by GGML, a CUDA error, or a crash.
fn aborted(name: &str, at: &str, outcome: &ChildOutcome) -> Finding {
    if let Some(error) = cuda_error(&outcome.stderr) {
        return Finding::fail(cause::CUDA_ERROR, format!("{name} gave up {at}: {error}"));
    }
    if let Some((limit, how)) = limits::hit(outcome) {
        return limit.finding(Cause::unknown(LINK), format!("the process that opened {name} {how} {at}"));
    }
    let Some(trouble) = outcome.trouble() else {
        let found = format!("{name} ended the process that opened it, with exit status 0, {at}");
        return Finding::unknown(LINK, found);
    };
    Finding::fail(cause::CRASHED, format!("the process that opened {name} {trouble} {at}"))
}

/// Returns the finding for a backend that started and has no device, with the reason in its output.
fn no_device(name: &str, stderr: &str) -> Finding {
    if let Some(error) = cuda_error(stderr) {
        return Finding::fail(cause::CUDA_ERROR, format!("{name} finds no device: {error}"));
    }
    let why = refusals::latest_error(stderr).map(|why| format!(": {why}")).unwrap_or_default();
    Finding::fail(cause::NO_DEVICE, format!("{name} starts and finds no device{why}"))
}

/// Returns the error in GGML's output: `CUDA error: WORDS` before it aborts, or `failed to initialize CUDA:
/// WORDS`.
fn cuda_error(stderr: &str) -> Option<&str> {
    ["CUDA error: ", "failed to initialize CUDA: "].iter().find_map(|mark| {
        let rest = &stderr[stderr.find(mark)? + mark.len()..];
        rest.lines().next().map(str::trim)
    })
}

/// Returns the last lines of a text, which contain the most evidence, and a line on a refused backend.
pub fn lines(text: &str) -> Vec<String> {
    let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let start = all.len().saturating_sub(SHOWN);
    let refusal =
        answers::refusal(text).filter(|refusal| !all[start..].iter().any(|line| line.contains(refusal)));
    let shown = refusal.into_iter().chain(all[start..].iter().copied()).map(str::to_owned);
    refusals::latest(text).into_iter().chain(shown).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::check::child::ended;
    use crate::diagnosis::{Cause, Status};
    use crate::env::Environment;

    fn judged(stdout: &str, stderr: &str, end: ChildEnd) -> Finding {
        judge("cuda_v12", &ChildOutcome { elapsed: Duration::from_millis(80), ..ended(end, stdout, stderr) })
    }

    const OPEN: &str = "{\"step\":\"open\",\"begin\":true}\n";
    const OPENED: &str = "{\"step\":\"open\",\"begin\":true}\n{\"step\":\"open\",\"ok\":true}\n{\"step\":\"start\",\"begin\":true}\n";

    #[test]
    fn what_the_loader_says_is_told() {
        let finding = judged(
            &format!("{OPEN}{{\"step\":\"open\",\"ok\":false,\"error\":\"libcuda.so.1: cannot open\"}}"),
            "",
            ChildEnd::Exit(1),
        );
        assert_eq!(
            (finding.cause, finding.found.as_str()),
            (Some(cause::LOAD_FAILED), "cuda_v12: libcuda.so.1: cannot open")
        );
    }

    #[test]
    fn a_missing_function_and_an_old_system_have_their_remedies() {
        let remedy = |error: &str| {
            let said = format!("{OPEN}{{\"step\":\"open\",\"ok\":false,\"error\":\"{error}\"}}");
            let finding = judged(&said, "", ChildEnd::Exit(1));
            let blamed = words::blamed(finding, &Environment::default(), Some(Path::new("/l/ollama")), None);
            blamed.fix.unwrap().text
        };
        let lacks = remedy("/l/ollama/cuda_v12/libggml-cuda.so: undefined symbol: cuNew");
        assert!(lacks.ends_with("update vgpu-run."), "{lacks}");
        let old = remedy("/lib64/libc.so.6: version `GLIBC_2.38' not found (required by /l/ollama/x.so)");
        assert!(old.starts_with("Use a newer distribution"), "{old}");
    }

    #[test]
    fn crashes_errors_and_silence_are_told_apart() {
        assert_eq!(judged(OPENED, "", ChildEnd::Signal(11)).cause, Some(cause::CRASHED));
        assert_eq!(
            judged(OPENED, "", ChildEnd::Exit(0)).cause,
            Some(Cause::unknown(LINK)),
            "it ended itself"
        );
        let aborted = judged(OPENED, "CUDA error: out of memory\n  in x\n", ChildEnd::Signal(6));
        assert_eq!(aborted.cause, Some(cause::CUDA_ERROR));
        assert!(aborted.found.ends_with("out of memory"), "{}", aborted.found);
        assert_eq!(judged(OPENED, "", ChildEnd::TimedOut(LIMIT)).cause, Some(cause::TIMED_OUT));
        assert_eq!(judged("", "", ChildEnd::Exit(127)).cause, Some(Cause::unknown(LINK)));
        let none =
            format!(r#"{OPENED}{{"step":"start","ok":false,"call":"dlsym","error":"x is not there"}}"#);
        assert_eq!(judged(&none, "", ChildEnd::Exit(1)).cause, Some(cause::LOAD_FAILED), "another library");
        let started = format!("{OPENED}{{\"step\":\"start\",\"ok\":true}}\n");
        let none = format!("{started}{{\"step\":\"devices\",\"ok\":false,\"error\":\"no device\"}}");
        assert_eq!(judged(&none, "", ChildEnd::Exit(1)).cause, Some(cause::NO_DEVICE));
        let said = "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version\n";
        assert_eq!(judged(&none, said, ChildEnd::Exit(1)).cause, Some(cause::CUDA_ERROR));
    }

    #[test]
    fn a_device_with_memory_is_what_is_wanted() {
        let answer = |total: u64| {
            format!(
                "{OPENED}{{\"step\":\"start\",\"ok\":true}}\n{{\"step\":\"devices\",\"ok\":true,\"devices\":[{{\"name\":\"CUDA0\",\"description\":\"x\",\"total\":{total},\"free\":1048576}}]}}"
            )
        };
        let finding = judged(&answer(1 << 30), "", ChildEnd::Exit(0));
        assert_eq!(
            (finding.status, finding.found.as_str()),
            (Status::Pass, "cuda_v12 starts in 80 ms: CUDA0 x with 1024 MiB, 1 free")
        );
        assert_eq!(judged(&answer(0), "", ChildEnd::Exit(0)).cause, Some(cause::CUDA_ERROR));
    }

    #[test]
    fn the_reason_is_shown_though_many_lines_follow() {
        let text = format!("load_backend: failed to load /x: why\n{}", "noise\n".repeat(40));
        let shown = lines(&text);
        assert_eq!((shown.len(), shown[0].as_str()), (SHOWN + 1, "load_backend: failed to load /x: why"));
    }
}
