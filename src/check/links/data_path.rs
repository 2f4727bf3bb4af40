//! Link `data-path`: checks that data returns from the device unchanged, that kernels, graphs and matrix
//! products give correct results, and how fast they are.

use std::time::Duration;

use vgpu_probe_steps::{Bandwidth, Elapsed, Fault, Latency};

use super::backend::soname;
use super::{ask_with_backend, together};
use crate::check::child::{ChildEnd, ChildOutcome};
use crate::check::context::CheckContext;
use crate::check::steps::{StepReport, Steps};
use crate::check::{limits, refusals};
use crate::diagnosis::cause::data_path as cause;
use crate::diagnosis::fix::data_path as fix;
use crate::diagnosis::{Cause, Finding, LinkId, Status};

const LINK: LinkId = LinkId::DataPath;
const LIMIT: Duration = Duration::from_secs(20);

/// Examines the link for each device.
pub async fn examine(context: &mut CheckContext) -> Finding {
    // By their numbers: devices may pass for one another.
    let number = |address: &String| {
        context.opened.iter().position(|opened| opened.function.address.to_string() == *address)
    };
    let addresses = context.devices.iter().map(|device| device.address.clone());
    let devices: Vec<(String, usize)> =
        addresses.filter_map(|address| Some((address.clone(), number(&address)?))).collect();
    if devices.len() < 2 {
        return of_device(context, None).await;
    }
    let mut findings = Vec::new();
    for (address, number) in devices {
        findings.push((address, of_device(context, Some(&number.to_string())).await));
    }
    if findings.iter().any(|(_, finding)| finding.holds()) {
        // Memory that cannot be had keeps models off that device alone: they go onto the others.
        let full = findings.iter_mut().filter(|(_, finding)| finding.cause == Some(cause::ALLOCATION));
        full.for_each(|(_, finding)| finding.status = Status::Warn);
    }
    together(findings).unwrap_or_else(|| Finding::skip(LINK, "there is no device"))
}

/// Examines one device: the one with CUDA's number `only`, or the first.
async fn of_device(context: &mut CheckContext, only: Option<&str>) -> Finding {
    let words = |major| ["data-path".to_owned(), "--blas".to_owned(), soname("libcublas", major)];
    match ask_with_backend(context, LINK, words, only, LIMIT).await {
        Ok((outcome, _)) => judge(&outcome),
        Err(finding) => finding,
    }
}

fn judge(outcome: &ChildOutcome) -> Finding {
    let steps = Steps::read(&outcome.stdout);
    let said = super::init::lines(&outcome.stderr);
    let times = steps.done.iter().filter(|report| report.ok).map(|report| {
        let Elapsed { elapsed_us } = report.said().unwrap_or_default();
        format!("{}: {elapsed_us} µs", report.step)
    });
    let evidence: Vec<String> = times.chain(said).collect();
    if let Some(failed) = steps.failed() {
        return broken(failed, &outcome.stderr).details(evidence);
    }
    if let Some(step) = &steps.open {
        let finding = if let ChildEnd::TimedOut(limit) = outcome.end {
            Finding::fail(
                cause::TIMED_OUT,
                format!("the test \"{step}\" did not complete within {} s", limit.as_secs()),
            )
        } else if let Some((limit, how)) = limits::hit(outcome) {
            limit.finding(Cause::unknown(LINK), format!("in the test \"{step}\", vgpu-probe {how}"))
        } else {
            let how = outcome.trouble().unwrap_or_else(|| "ended".into());
            Finding::unknown(LINK, format!("vgpu-probe {how} in the test \"{step}\""))
        };
        return finding.details(evidence);
    }
    let (Some(bandwidth), Some(latency)) = (steps.said::<Bandwidth>(), steps.said::<Latency>()) else {
        let how = outcome.trouble().unwrap_or_else(|| "ended without an answer".into());
        return Finding::unknown(LINK, format!("vgpu-probe {how}")).details(evidence);
    };
    let found = format!(
        "copies, a kernel, a graph and a matrix product are right; {} GB/s to the device, {} back (pinned {} and {}), round trip {} µs",
        gigabytes(bandwidth.pageable_to_device),
        gigabytes(bandwidth.pageable_to_host),
        gigabytes(bandwidth.pinned_to_device),
        gigabytes(bandwidth.pinned_to_host),
        microseconds(latency.read_ns),
    );
    Finding::pass(LINK, found)
        .detail(format!("launching a kernel and waiting for it: {} µs", microseconds(latency.launch_ns)))
        .details(evidence)
}

/// Formats a number of bytes in units of a thousand million, with one decimal.
fn gigabytes(bytes: u64) -> String {
    format!("{}.{}", bytes / 1_000_000_000, bytes % 1_000_000_000 / 100_000_000)
}

fn microseconds(nanoseconds: u64) -> String {
    format!("{}.{}", nanoseconds / 1000, nanoseconds % 1000 / 100)
}

fn broken(failed: &StepReport, stderr: &str) -> Finding {
    let fault: Fault = failed.said().unwrap_or_default();
    // The transport says in the log that the device went away; the code alone could be a kernel's fault.
    let lost = ["the device is gone", "the host ended the session", "the session is closed"]
        .iter()
        .any(|words| stderr.contains(words));
    let broken = match (failed.step.as_str(), fault.code) {
        (_, Some(999 | 46 | 4)) if lost => cause::SESSION_LOST,
        ("allocate", _) => cause::ALLOCATION,
        ("copy" | "fill", None) => cause::COPY_WRONG,
        ("kernel" | "graph", None) => cause::RESULT_WRONG,
        ("module" | "kernel" | "graph", Some(_)) => cause::LAUNCH_FAILED,
        ("gemm", None) => cause::GEMM_WRONG,
        _ => Cause::unknown(LINK),
    };
    let why = refusals::latest(stderr).map(|why| format!("; {why}")).unwrap_or_default();
    let Fault { call, error, .. } = &fault;
    let found = format!("in the test \"{}\", {call} says {error}{}{why}", failed.step, fault.code_text());
    let finding = Finding::fail(broken, found);
    if broken == Cause::unknown(LINK) { finding.fix(fix::UNKNOWN_FAULT) } else { finding }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::child::ended;

    fn judged(stdout: &str, stderr: &str, end: ChildEnd) -> Finding {
        judge(&ended(end, stdout, stderr))
    }

    fn failed(step: &str, code: &str, stderr: &str) -> Option<Cause> {
        let line =
            format!("{{\"step\":\"{step}\",\"ok\":false,\"call\":\"f\",\"error\":\"e\",\"code\":{code}}}");
        judged(&line, stderr, ChildEnd::Exit(1)).cause
    }

    #[test]
    fn each_step_has_its_causes() {
        for (step, code, expected) in [
            ("allocate", "2", cause::ALLOCATION),
            ("copy", "null", cause::COPY_WRONG),
            ("fill", "null", cause::COPY_WRONG),
            ("copy", "1", Cause::unknown(LINK)),
            ("module", "222", cause::LAUNCH_FAILED),
            ("kernel", "700", cause::LAUNCH_FAILED),
            ("graph", "null", cause::RESULT_WRONG),
            ("gemm", "null", cause::GEMM_WRONG),
            ("gemm", "14", Cause::unknown(LINK)),
            ("init", "999", Cause::unknown(LINK)),
        ] {
            assert_eq!(failed(step, code, ""), Some(expected), "{step} {code}");
        }
        assert_eq!(failed("copy", "46", "vgpu[1] error: the device is gone"), Some(cause::SESSION_LOST));
        let ended = "the host ended the session with error 700 at message 9";
        assert_eq!(failed("kernel", "700", ended), Some(cause::LAUNCH_FAILED), "a kernel's own fault");
    }

    /// A kernel that the host refused is reported with the host's explanation from the log.
    #[test]
    fn a_refused_kernel_is_told_in_the_hosts_words() {
        let line = "{\"step\":\"kernel\",\"ok\":false,\"call\":\"f\",\"error\":\"e\",\"code\":218}";
        let log = "vgpu[1] error: device 0: FunctionGet is refused with CUDA_ERROR_INVALID_PTX: kernel k: no frobnicate";
        let finding = judged(line, log, ChildEnd::Exit(1));
        assert_eq!(finding.cause, Some(cause::LAUNCH_FAILED));
        let words = "; the host refused FunctionGet with CUDA_ERROR_INVALID_PTX: kernel k: no frobnicate";
        assert!(finding.found.ends_with(words), "{}", finding.found);
    }

    #[test]
    fn hangs_and_crashes_name_the_step() {
        let begun = "{\"step\":\"kernel\",\"begin\":true}";
        let finding = judged(begun, "", ChildEnd::TimedOut(LIMIT));
        assert_eq!(
            (finding.cause, finding.found.as_str()),
            (Some(cause::TIMED_OUT), "the test \"kernel\" did not complete within 20 s")
        );
        assert!(judged(begun, "", ChildEnd::Signal(11)).found.ends_with("(SIGSEGV) in the test \"kernel\""));
    }

    #[test]
    fn numbers_are_shown_when_all_is_well() {
        let text = "{\"step\":\"bandwidth\",\"ok\":true,\"pageable_to_device\":3804314668,\"pageable_to_host\":1,\"pinned_to_device\":12000000000,\"pinned_to_host\":0}\n{\"step\":\"latency\",\"ok\":true,\"read_ns\":1534,\"launch_ns\":2000}";
        let finding = judged(text, "", ChildEnd::Exit(0));
        assert_eq!(finding.status, Status::Pass);
        assert!(
            finding
                .found
                .ends_with("3.8 GB/s to the device, 0.0 back (pinned 12.0 and 0.0), round trip 1.5 µs"),
            "{}",
            finding.found
        );
        assert_eq!(judged("", "", ChildEnd::Exit(127)).cause, Some(Cause::unknown(LINK)));
    }
}
