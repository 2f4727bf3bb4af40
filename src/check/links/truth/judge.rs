//! Converts a server's log and its end to a finding.

use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::signal::Signal;
use vgpu_findings::time;

use crate::check::child::{ChildEnd, ChildOutcome};
use crate::check::messages::{Serve, StepFailure};
use crate::check::refusals;
use crate::check::steps::{StepReport, Steps};
use crate::check::words;
use crate::diagnosis::cause::truth as cause;
use crate::diagnosis::fix::truth as fix;
use crate::diagnosis::{Finding, LinkId};
use crate::exit::Exit;
use crate::ollama::evidence;
use crate::ollama::fatal::{self, FailureKind};
use crate::ollama::log::FoundDevice;

const LINK: LinkId = LinkId::Truth;

/// Identities of the VGPU-STUB devices of this guest.
#[derive(Debug, Default)]
pub struct Devices {
    /// PCI addresses of the devices.
    pub addresses: Vec<String>,
    /// UUIDs of the devices, as far as they are known.
    pub uuids: Vec<String>,
    /// Names of the devices, as far as they are known.
    pub names: Vec<String>,
}

impl Devices {
    /// Returns whether a server's device is one of these. Releases that do not report its address report its
    /// UUID. If neither can be compared, the device counts as one of these.
    fn have(&self, found: &FoundDevice) -> bool {
        let same = |one: &String, other: &str| one.eq_ignore_ascii_case(other);
        let address = found.value("pci_id");
        if !address.is_empty() {
            return self.addresses.iter().any(|ours| same(ours, address));
        }
        let known = !self.uuids.is_empty();
        !known
            || self.uuids.iter().any(|uuid| same(uuid, found.value("id")))
            || self.names.iter().any(|name| same(name, found.device()))
    }
}

/// Judges the outcome of the worker. The error is the reason why nothing is known about the server.
pub fn judge(outcome: &ChildOutcome, devices: &Devices) -> Result<Finding, String> {
    let steps = Steps::read(&outcome.stdout);
    let log = outcome.stderr.as_str();
    let Some(report) = steps.report_of::<Serve>() else { return Err(unstarted(&steps, outcome)) };
    let served: Serve = report.said().unwrap_or_default();
    if let Some(failure) = report.said::<StepFailure>().filter(|failure| !failure.error.is_empty()) {
        return Err(failure.error);
    }
    let left = (!served.left.is_empty()).then(|| format!("processes that did not end: {:?}", served.left));
    let took = time(Duration::from_millis(served.ms).as_secs_f64());
    let found: Vec<FoundDevice> = served.lines.iter().filter_map(|line| FoundDevice::read(line)).collect();
    if found.is_empty() {
        if let Some(address) = served.answered {
            return unspoken(&served, address, log).map(|finding| finding.details(left));
        }
        if served.stopped {
            return Err(format!("there was no time left after {took}"));
        }
        return Ok(without_answer(&served, log, &took).details(left));
    }
    if served.unanswered {
        return Ok(without_answer(&served, log, &took).details(served.lines).details(left));
    }
    let ours: Vec<&FoundDevice> =
        found.iter().filter(|found| found.is_cuda() && devices.have(found)).collect();
    if ours.is_empty() {
        let finding = elsewhere(&found, log).details(left);
        return Ok(if served.code.is_some() { left_behind(finding) } else { finding });
    }
    let shown: Vec<String> = ours.iter().map(|found| shown(found)).collect();
    let number = match devices.addresses.len() {
        all if all > ours.len() => format!("{} of {all} devices: ", ours.len()),
        _ => String::new(),
    };
    let text = format!("ollama serve finds {number}{} in {took}", shown.join(" and "));
    if number.is_empty() {
        return Ok(Finding::pass(LINK, text).details(served.lines).details(left));
    }
    let dropped: Vec<String> = evidence::about_gpus(log).into_iter().filter(|line| drops(line)).collect();
    let why = dropped.first().map(|line| format!("; it drops the other: {}", reason(line)));
    let finding = Finding::warn(cause::SOME_DEVICES, text + &why.unwrap_or_default());
    Ok(finding.details(served.lines).details(dropped).details(left))
}

/// Returns whether a line of the log says why a device is not used.
fn drops(line: &str) -> bool {
    ["skipping CUDA device", "filtering device", "dropping duplicate device", "skipping pseudo-device"]
        .iter()
        .any(|words| line.contains(words))
}

/// Returns the message of a log line with its values, without time, level and source.
fn reason(line: &str) -> &str {
    line.find("msg=").map_or(line, |at| &line[at + 4..])
}

/// Describes a device, such as `VGPU-STUB soft with 8.0 GiB, through cuda_v12`.
fn shown(found: &FoundDevice) -> String {
    let backend = found.backend();
    let through = if backend.is_empty() { String::new() } else { format!(" through {backend}") };
    format!("{} with {}{through}", found.device(), found.value("total"))
}

/// Returns the reason why the worker reported no server.
fn unstarted(steps: &Steps, outcome: &ChildOutcome) -> String {
    let words = || outcome.stderr.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned);
    let failure = || steps.failed().and_then(StepReport::said::<StepFailure>).map(|failure| failure.error);
    if let ChildEnd::TimedOut(_) = outcome.end {
        return "there was no time left".into();
    }
    failure().or_else(words).or_else(|| outcome.trouble()).unwrap_or_else(|| "the worker said nothing".into())
}

/// Returns the finding for a server that says nothing here and answers at `address`. Whether it found a
/// device is seen by the libraries and the sessions of its processes: a backend that is loaded may find none.
/// The error is the reason why it was not seen.
fn unspoken(served: &Serve, address: SocketAddr, log: &str) -> Result<Finding, String> {
    let output = served.output.as_ref().map(|path| format!(", its output goes to {}", path.display()));
    let says = format!("ollama serve answers at {address}{}", output.unwrap_or_default());
    match (served.with_shims, served.without_shims) {
        (_, true) => {
            let loaded = "its process loaded the CUDA backend without vgpu-run's libraries";
            let finding = Finding::fail(cause::FOUND_CPU, format!("{says}, and {loaded}"));
            Ok(finding.fix(fix::WITHOUT_SHIMS).details(refusals::latest(log)))
        }
        (true, false) if served.session => {
            let loaded = "its process loaded the CUDA backend with vgpu-run's libraries";
            Ok(Finding::pass(LINK, format!("{says}, and {loaded} and had a session on the device")))
        }
        (true, false) => {
            let loaded = "its process loaded the CUDA backend with vgpu-run's libraries";
            Err(format!("{says}, and {loaded}, but was not seen with a session on the device"))
        }
        (false, false) if served.inherits && served.session => {
            let inherits = "it has vgpu-run's libraries, with which its process had a session on the device";
            Ok(Finding::pass(LINK, format!("{says}, and {inherits}")))
        }
        (false, false) => Err(format!("{says}, and no process of it was seen with the CUDA backend")),
    }
}

/// Returns the finding for a server that computes on another device or on the CPU.
fn elsewhere(found: &[FoundDevice], log: &str) -> Finding {
    let others: Vec<String> = found.iter().filter(|found| !found.is_cpu()).map(shown).collect();
    let text = if others.is_empty() {
        "ollama serve finds no GPU, and would compute on the CPU".to_owned()
    } else {
        format!("ollama serve does not find the device of this machine; it finds {}", others.join(" and "))
    };
    let why = fatal::decisive(log).filter(|decisive| decisive.kind != FailureKind::Ended);
    let text = match &why {
        Some(why) => format!("{text}: {}", why.line),
        None => text,
    };
    let finding = Finding::fail(cause::FOUND_CPU, text)
        .expected("library=CUDA in its line \"inference compute\"")
        .details(refusals::latest(log))
        .details(evidence::about_gpus(log));
    words::mended(finding, log)
}

/// Returns the finding for a server that goes on without what started it. The libraries are in memory of the
/// process that vgpu-run became, and end with it.
fn left_behind(finding: Finding) -> Finding {
    let found = format!("{}; what started it has ended, and the libraries with it", finding.found);
    Finding { found, ..finding }.fix(fix::DAEMON)
}

/// Returns the finding for a server that ended, or fell silent, before it reported its compute devices.
fn without_answer(served: &Serve, log: &str, took: &str) -> Finding {
    let last = fatal::words(log);
    let evidence = |finding: Finding| {
        finding.details(last.clone()).details(refusals::latest(log)).details(evidence::about_gpus(log))
    };
    let how = match (served.code, served.signal) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(number)) => format!("was killed by signal {}", signal(number)),
        (None, None) => {
            if let Some(holder) = served.waits_for {
                let text =
                    format!("ollama serve does not start: it waits for a lock that process {holder} holds");
                return evidence(Finding::fail(cause::SERVER_SILENT, text))
                    .fix(fix::LOCKED)
                    .with("process", holder);
            }
            let text =
                format!("ollama serve has not said after {took} what it computes on, and says nothing more");
            return evidence(Finding::fail(cause::SERVER_SILENT, text))
                .expected("its line \"inference compute\", within seconds");
        }
    };
    let launcher = [Exit::Launcher, Exit::NotExecutable, Exit::NotFound].map(|exit| Some(exit as i32));
    let mut lines = log.lines();
    // A warning may have a hint of its own, and does not keep the server from starting.
    let mut said = lines.by_ref().filter_map(|line| line.strip_prefix("vgpu-run: "));
    if launcher.contains(&served.code)
        && let Some(refusal) = said.find(|words| !words.starts_with("warning: "))
    {
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        let found = format!("vgpu-run does not start ollama serve: {refusal}");
        let finding = Finding::fail(cause::LAUNCHER_REFUSED, found);
        let finding = match lines.iter().find_map(|line| line.strip_prefix("hint: ")) {
            Some(hint) => finding.fix(hint),
            None => finding,
        };
        return finding.details(lines.into_iter().take(6));
    }
    let text = match &last {
        Some(words) => format!("ollama serve {how}: {words}"),
        None if served.unanswered => format!("ollama serve {how} when it was asked for its version"),
        None => format!("ollama serve {how} before it said what it computes on"),
    };
    let said =
        |words: &[&str]| words.iter().any(|words| last.as_deref().is_some_and(|last| last.contains(words)));
    let filtered = said(&["accept4: "]) || last.is_none() && served.signal == Some(Signal::SIGSYS as i32);
    if served.unanswered && filtered {
        return evidence(Finding::fail(cause::CONNECTIONS_REFUSED, text));
    }
    let finding = evidence(Finding::fail(cause::SERVER_DIED, text));
    if said(&["annot allocate memory", "OS thread", "newosproc", "page summary", "ulimit"]) {
        finding.fix(fix::SCARCE)
    } else {
        words::mended(finding, log)
    }
}

fn signal(number: i32) -> String {
    let name = nix::sys::signal::Signal::try_from(number).map_or("unknown", |signal| signal.as_str());
    format!("{number} ({name})")
}

#[cfg(test)]
mod tests {
    use vgpu_probe_steps::Line;

    use super::*;
    use crate::check::child::ended;
    use crate::diagnosis::Status;

    const CUDA: &str = r#"level=INFO msg="inference compute" id=0 library=CUDA name=CUDA0 description="VGPU-STUB x" libdirs=ollama,cuda_v12 pci_id=0000:00:05.0 total="8.0 GiB""#;
    const CPU: &str = r#"level=INFO msg="inference compute" id=cpu library=cpu name=cpu description=cpu libdirs=ollama pci_id="" total="23.5 GiB""#;

    fn ours() -> Devices {
        Devices {
            addresses: vec!["0000:00:05.0".into()],
            uuids: vec!["GPU-5E".into()],
            names: vec!["VGPU-STUB x".into()],
        }
    }

    fn outcome(served: &Serve, stderr: &str) -> ChildOutcome {
        let line = Line::end("serve", !served.lines.is_empty(), served);
        let stdout = serde_json::to_string(&line).unwrap();
        ended(ChildEnd::Exit(0), &stdout, stderr)
    }

    fn judged(served: &Serve, stderr: &str) -> Finding {
        judge(&outcome(served, stderr), &ours()).unwrap()
    }

    fn said(lines: &[&str]) -> Finding {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        judged(&Serve { lines, ms: 320, ..Serve::default() }, "")
    }

    #[test]
    fn a_server_on_the_device() {
        let finding = said(&[CUDA]);
        assert_eq!(finding.status, Status::Pass);
        assert_eq!(finding.found, "ollama serve finds VGPU-STUB x with 8.0 GiB through cuda_v12 in 0.3 s");
        assert_eq!(finding.details, [CUDA]);
        let old = r#"msg="inference compute" id=GPU-5e library=cuda variant=v12 name="VGPU-STUB x" total="8.0 GiB""#;
        assert_eq!(said(&[old]).status, Status::Pass, "by its UUID");
    }

    #[test]
    fn a_server_on_one_of_two_devices() {
        let devices = Devices { addresses: vec!["0000:00:05.0".into(), "0000:00:06.0".into()], ..ours() };
        let served = Serve { lines: vec![CUDA.into()], ms: 320, ..Serve::default() };
        let log = "time=x level=INFO source=y msg=\"skipping CUDA device\" cc=12.0 archs=[5.0 6.1]\n";
        let finding = judge(&outcome(&served, log), &devices).unwrap();
        assert_eq!((finding.status, finding.cause), (Status::Warn, Some(cause::SOME_DEVICES)));
        assert!(finding.in_part(), "{}", finding.found);
        assert!(
            finding.found.ends_with("it drops the other: \"skipping CUDA device\" cc=12.0 archs=[5.0 6.1]"),
            "{}",
            finding.found
        );
    }

    #[test]
    fn a_server_on_something_else() {
        let finding = judged(
            &Serve { lines: vec![CPU.into()], ..Serve::default() },
            "load_backend: failed to load /l/libggml-cuda.so: why\nGIN x\n",
        );
        assert_eq!(finding.cause, Some(cause::FOUND_CPU));
        assert_eq!(finding.details, ["load_backend: failed to load /l/libggml-cuda.so: why"]);
        let finding = said(&[&CUDA.replace("00:05", "01:00")]);
        assert_eq!(finding.cause, Some(cause::FOUND_CPU));
        assert!(finding.found.contains("VGPU-STUB x with 8.0 GiB"), "{}", finding.found);
    }

    #[test]
    fn a_server_that_died() {
        let dump = "runtime: cannot allocate memory\nfatal error: x\n\ngoroutine 1\n";
        let finding = judged(&Serve { code: Some(2), ..Serve::default() }, dump);
        assert_eq!(finding.cause, Some(cause::SERVER_DIED));
        assert_eq!(finding.found, "ollama serve ended with exit code 2: runtime: cannot allocate memory");
        assert!(finding.fix.unwrap().text.contains("LimitAS="));
        let finding = judged(&Serve { signal: Some(31), ..Serve::default() }, "");
        assert!(finding.found.contains("killed by signal 31 (SIGSYS)"), "{}", finding.found);
    }

    #[test]
    fn a_server_that_is_silent_and_a_launcher_that_refuses() {
        let finding =
            judged(&Serve { silent: true, ..Serve::default() }, "msg=\"discovering available GPUs...\"\n");
        assert_eq!(finding.cause, Some(cause::SERVER_SILENT));
        let refusal = "vgpu-run: failed to find a device\nhint: add it\ncheck: pci/device-absent: x\n";
        let finding = judged(&Serve { code: Some(125), ..Serve::default() }, refusal);
        assert_eq!(finding.cause, Some(cause::LAUNCHER_REFUSED));
        assert_eq!(finding.details, ["hint: add it", "check: pci/device-absent: x"]);
        let warned = format!("vgpu-run: warning: the log goes to stderr\nhint: look there\n{refusal}");
        let finding = judged(&Serve { code: Some(125), ..Serve::default() }, &warned);
        assert_eq!(finding.found, "vgpu-run does not start ollama serve: failed to find a device");
        assert_eq!(finding.fix.unwrap().text, "add it");
    }

    #[test]
    fn a_server_that_says_nothing_is_seen_by_its_processes() {
        let of = |with_shims, without_shims, session| {
            let answered = Some("127.0.0.1:5".parse().unwrap());
            let output = Some("/dev/null".into());
            let served = Serve { output, answered, with_shims, without_shims, session, ..Serve::default() };
            judge(&outcome(&served, ""), &ours())
        };
        let finding = of(true, false, true).unwrap();
        assert_eq!(finding.status, Status::Pass);
        assert!(finding.found.contains("its output goes to /dev/null"), "{}", finding.found);
        assert_eq!(of(true, true, true).unwrap().cause, Some(cause::FOUND_CPU));
        assert!(of(true, false, false).unwrap_err().contains("not seen with a session"));
        assert!(of(false, false, false).unwrap_err().contains("no process of it was seen"));
        let waits = judged(&Serve { silent: true, waits_for: Some(712), ..Serve::default() }, "");
        assert!(waits.found.ends_with("a lock that process 712 holds"), "{}", waits.found);
    }

    #[test]
    fn what_is_not_known_is_no_finding() {
        let outcome = |stdout: &str, stderr: &str| ended(ChildEnd::Exit(1), stdout, stderr);
        let why = |stdout: &str, stderr: &str| judge(&outcome(stdout, stderr), &ours()).unwrap_err();
        let refused = "Failed to start transient service unit: Access denied";
        assert_eq!(why("", refused), refused);
        let failed = r#"{"step":"serve","ok":false,"error":"there is no place"}"#;
        assert_eq!(why(failed, ""), "there is no place");
        let stopped = Serve { stopped: true, ms: 2100, ..Serve::default() };
        let stopped = judge(&self::outcome(&stopped, ""), &ours());
        assert_eq!(stopped.unwrap_err(), "there was no time left after 2.1 s");
    }
}
