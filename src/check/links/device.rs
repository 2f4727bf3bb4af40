//! Link `device`: checks that the device answers and is of the same build as the shims. A worker opens it,
//! because a device that does not answer blocks the process. The links `window` and `host` also use the
//! worker's results.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use vgpu_transport::PciFunction;
use vgpu_transport_v1::lock_files;

use super::{together, unable};
use crate::check::child;
use crate::check::context::CheckContext;
use crate::check::facts::{DeviceReport, OpenedFunction};
use crate::check::messages::{Answer, Become, Facts, Memory, Open, StepFailure};
use crate::check::steps::Steps;
use crate::device::silence::Silence;
use crate::device::survey;
use crate::diagnosis::catalogue::{self};
use crate::diagnosis::cause::device as cause;
use crate::diagnosis::fix::device as fix;
use crate::diagnosis::{Finding, LinkId, Status};
use crate::env::CUDA_VISIBLE_DEVICES;

const LINK: LinkId = LinkId::Device;
/// Time limit for the worker. The worker limits its own steps, and extends them while the device makes
/// progress; this limit ends a worker that is blocked itself.
const LIMIT: Duration = Duration::from_secs(30);
/// Duration in microseconds above which a register access counts as slow: thousands of times the usual
/// duration.
const SLOW_US: f64 = 20_000.0;

/// Examines the link of all devices.
pub async fn examine(context: &mut CheckContext) -> Finding {
    // A program that is started as root finds it on; this process may neither turn it on nor look further.
    let off = context.functions.iter().find(|function| survey::decoding_off(&function.dir)).cloned();
    if let Some(function) = off
        && context.subject().is_ok_and(|subject| subject.uid.is_root())
    {
        context.incomplete.push(LINK.as_str().to_owned());
        let name = function.address;
        return Finding::skip(
            LINK,
            format!(
                "not examined: memory decoding of {name} is off, and only root can turn it on; run the check as root"
            ),
        );
    }
    // If the user may choose among devices, one that works is enough.
    let chosen = context.environment.get(CUDA_VISIBLE_DEVICES).is_some();
    let mut findings = Vec::new();
    let mut working = Vec::new();
    for function in context.functions.clone() {
        let opened = match open_function(context, &function).await {
            Ok(opened) => opened,
            Err(error) => return unable(context, LINK, "start a process that opens the device", &error),
        };
        let finding = judge(&opened);
        if finding.holds() {
            working.push(opened);
        }
        findings.push((function.address.to_string(), finding));
    }
    let all_work = working.len() == findings.len();
    let none = || Finding::skip(LINK, "there is no device");
    if !(all_work || chosen && !working.is_empty()) {
        return together(findings).unwrap_or_else(none);
    }
    context.opened = working;
    context.devices = context.opened.iter().filter_map(report).collect();
    let value = context.environment.get(CUDA_VISIBLE_DEVICES).map(|value| value.to_string_lossy());
    if let Some(value) = value {
        let shown = visible(&value, &context.devices);
        // Where it hides all, the link environment says so, of all that there are.
        if !shown.is_empty() {
            context.devices = shown;
        }
    }
    if let Some(device) = context.devices.first() {
        context.versions.insert("driver", device.driver.clone());
        context.versions.insert("cuda", format!("{}.{}", device.cuda / 1000, device.cuda % 1000 / 10));
    }
    if let Some(Open { wire, digest, .. }) = context.opened.first().and_then(|opened| opened.steps.said()) {
        context.versions.insert("wire", format!("{}.{} ({digest})", wire >> 16, wire & 0xffff));
    }
    if all_work {
        return together(findings).unwrap_or_else(none);
    }
    // The chosen ones may all be among those that work.
    let refused = together(findings).unwrap_or_else(none);
    Finding { status: Status::Warn, expected: None, fix: None, ..refused }
}

/// Returns the devices that a value of CUDA_VISIBLE_DEVICES selects, in its order. CUDA reads names, which
/// are numbers or prefixes of UUIDs, until the first invalid one.
fn visible(value: &str, devices: &[DeviceReport]) -> Vec<DeviceReport> {
    let named = |name: &str| {
        if let Ok(index) = name.parse::<usize>() {
            return devices.get(index);
        }
        let name = name.to_ascii_lowercase();
        let starts = |device: &&DeviceReport| device.uuid.to_ascii_lowercase().starts_with(&name);
        devices.iter().find(starts).filter(|_| !name.is_empty())
    };
    value.split(',').map_while(|name| named(name.trim())).cloned().collect()
}

async fn open_function(context: &CheckContext, function: &PciFunction) -> std::io::Result<OpenedFunction> {
    let subject = context.found_subject.as_ref();
    let mut command = child::ourselves(
        subject
            .filter(|_| nix::unistd::Uid::effective().is_root())
            .and_then(|subject| subject.become_by.as_ref()),
    );
    command.args(["device", &function.address.to_string()]);
    let outcome = child::run_limited(command, &context.environment, context.time(LIMIT)).await?;
    let steps = Steps::read(&outcome.stdout);
    tracing::debug!(function = %function.address, ?steps, trouble = outcome.trouble(), "opened");
    Ok(OpenedFunction { function: function.clone(), steps, trouble: outcome.trouble() })
}

/// Converts a failed step to a finding, if it concerns `link`.
pub fn failed(opened: &OpenedFunction, link: LinkId) -> Option<Finding> {
    let failure = opened.steps.broken(|broken| broken == link)?;
    Some(told(failure, link, &opened.function.address.to_string()))
}

/// Returns the finding for a version 1 device whose first call does not return: another process has the turn,
/// or the host does not answer.
fn silent_version_1(opened: &OpenedFunction) -> Finding {
    let name = opened.function.address;
    let fail = |found| Finding::fail(cause::DEVICE_MUTE, found).expected("an answer within a second");
    let finding = match turn_holder(&opened.function) {
        Some((process, program)) => {
            fail(format!("process {process} ({program}) has had its turn at {name} all the time"))
                .fix(fix::TURN)
                .with("process", process)
                .detail("processes of this machine take turns at a device of version 1")
        }
        None => fail(Silence::Mediator.found(&name.to_string())).fix(fix::MEDIATOR),
    };
    finding.details(opened.trouble.iter().map(|trouble| format!("the process that asked {trouble}")))
}

/// Returns the process id and program that hold the turn at a version 1 device. Returns `None` if nobody
/// does, or if the device has another version.
pub fn turn_holder(function: &PciFunction) -> Option<(u32, String)> {
    // The first is the turn's; the second lists owners.
    lock_files(function).first().and_then(|path| holder(path))
}

/// Returns the process id and program that hold the lock (`flock`) on a file.
fn holder(path: &Path) -> Option<(u32, String)> {
    let inode = std::fs::metadata(path).ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // 12: FLOCK  ADVISORY  WRITE 4711 00:1b:339 0 EOF
    let process = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", process, file, ..] = fields[..] else { return None };
        (file.rsplit(':').next() == Some(&inode)).then(|| process.parse().ok())?
    })?;
    let program = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    Some((process, program.trim().to_owned()))
}

/// Converts the failure of the device `name` that a child reported to a finding.
fn told(failure: StepFailure, link: LinkId, name: &str) -> Finding {
    let found = failure.found;
    let found = if found.contains(name) { found } else { format!("{name}: {found}") };
    let finding = Finding::fail(catalogue::find_cause(link, &failure.cause), found);
    Finding { fix: failure.fix.or(finding.fix), ..finding }
}

fn judge(opened: &OpenedFunction) -> Finding {
    let name = opened.function.address;
    if let Some(finding) = failed(opened, LINK) {
        return finding;
    }
    // A failed step of an earlier link is reported here with its own cause, although that link held.
    if let Some(failure) = opened.steps.broken(|link| link < LINK) {
        return Finding { fix: failure.fix, ..Finding::unknown(LINK, failure.found) };
    }
    if let Some(report) = opened.steps.report_of::<Become>().filter(|report| !report.ok) {
        return Finding::unknown(LINK, report.said::<StepFailure>().unwrap_or_default().error);
    }
    let open = opened.steps.open.as_deref();
    match open {
        Some("open") if !lock_files(&opened.function).is_empty() => return silent_version_1(opened),
        Some("open" | "answer") => {
            return Finding::fail(cause::DEVICE_MUTE, Silence::Registers.found(&name.to_string()))
                .expected("an answer within a second")
                .details(opened.trouble.iter().map(|trouble| format!("the process that asked {trouble}")));
        }
        Some(step) if matches!(opened.trouble, Some(ref trouble) if trouble.contains("signal")) => {
            let trouble = opened.trouble.clone().unwrap_or_default();
            return Finding::unknown(LINK, format!("the process that looked at {name} {trouble}"))
                .detail(format!("it was at the step {step}"));
        }
        _ => {}
    }
    let Some(answer) = opened.steps.said::<Answer>() else {
        // The window's trouble came before the registers could be asked; they were read, though.
        if failed(opened, LinkId::Window).is_some() {
            return Finding::pass(LINK, format!("{name} speaks version 2 of the contract"));
        }
        // A version 1 device without a host cannot be opened either, as its registers show.
        if failed(opened, LinkId::Host).is_some() {
            return Finding::pass(LINK, format!("the registers of {name} answer"));
        }
        let trouble = opened.trouble.clone().unwrap_or_else(|| "said nothing".into());
        return Finding::unknown(LINK, format!("the process that looked at {name} {trouble}"));
    };
    let micros = answer.us;
    let found = format!("alive, answers in {}", time(micros));
    let Open { generation, .. } = opened.steps.said().unwrap_or_default();
    if micros > SLOW_US {
        return Finding::warn(cause::DEVICE_SLOW, found).expected("answers within a millisecond");
    }
    Finding::pass(LINK, found).detail(format!("generation {generation}"))
}

/// Extracts the facts of a device from a worker's report.
pub fn report(opened: &OpenedFunction) -> Option<DeviceReport> {
    let facts: Facts = opened.steps.succeeded()?;
    let Memory { free, .. } = opened.steps.said().unwrap_or_default();
    Some(DeviceReport {
        address: opened.function.address.to_string(),
        name: facts.name,
        driver: facts.driver,
        cuda: facts.cuda,
        capability: (facts.cc_major, facts.cc_minor),
        total: facts.total,
        free,
        uuid: facts.uuid,
    })
}

/// Formats a time given in microseconds.
pub fn time(micros: f64) -> String {
    match micros {
        under if under < 10.0 => format!("{under:.1} \u{b5}s"),
        under if under < 1000.0 => format!("{under:.0} \u{b5}s"),
        under if under < 1_000_000.0 => format!("{:.1} ms", under / 1000.0),
        over => format!("{:.1} s", over / 1_000_000.0),
    }
}

/// Tests of the links that interpret a child's output.
#[cfg(test)]
pub mod tests {
    use vgpu_transport::Bar;

    use super::*;
    use crate::check::child::ChildEnd;
    use crate::check::child::ended;
    use crate::diagnosis::Fix;

    /// Creates the report of a worker that printed these lines.
    pub fn opened(lines: &[&str], trouble: Option<&str>) -> OpenedFunction {
        let outcome = ended(ChildEnd::Exit(0), &lines.join("\n"), "");
        let function = PciFunction {
            address: "0000:00:05.0".parse().unwrap(),
            dir: "/sys/bus/pci/devices/0000:00:05.0".into(),
            subsystem: 0,
            bars: [Bar::default(); 6],
        };
        OpenedFunction { function, steps: Steps::read(&outcome.stdout), trouble: trouble.map(str::to_owned) }
    }

    const OPEN: &str = r#"{"step":"open","ok":true,"generation":7}"#;

    #[test]
    fn alive_slow_and_mute() {
        let finding = judge(&opened(&[OPEN, r#"{"step":"answer","ok":true,"us":12.3}"#], None));
        assert_eq!(
            (finding.status, finding.found.as_str()),
            (crate::diagnosis::Status::Pass, "alive, answers in 12 \u{b5}s")
        );
        let finding = judge(&opened(&[OPEN, r#"{"step":"answer","ok":true,"us":700000}"#], None));
        assert_eq!(finding.issue().unwrap(), "device/device-slow");
        let finding =
            judge(&opened(&[OPEN, r#"{"step":"answer","begin":true}"#], Some("ended with exit code 124")));
        assert_eq!(finding.issue().unwrap(), "device/device-mute");
    }

    #[test]
    fn a_device_of_version_1_that_is_silent() {
        let begun = r#"{"step":"open","begin":true}"#;
        let finding = judge(&opened(&[begun], Some("ended with exit code 124")));
        assert_eq!(finding.issue().unwrap(), "device/device-mute");
        assert_eq!(finding.found, "the mediator behind 0000:00:05.0 does not answer its first call");
        let turn = Fix::from(fix::TURN).with("process", 7);
        let killed = (turn.command.as_deref(), turn.needs_root);
        assert_eq!(killed, (Some("kill -KILL 7"), true), "a stopped process does not end by another signal");
    }

    #[test]
    fn devices_that_are_visible() {
        let device = |uuid: &str| DeviceReport { uuid: uuid.into(), ..DeviceReport::default() };
        let all = [device("GPU-aa"), device("GPU-bb")];
        let of = |value: &str| -> Vec<String> {
            visible(value, &all).into_iter().map(|device| device.uuid).collect()
        };
        assert_eq!(of("1,0"), ["GPU-bb", "GPU-aa"]);
        assert_eq!(of("gpu-b"), ["GPU-bb"]);
        assert_eq!(of("1,7,0"), ["GPU-bb"]);
        assert!(of("-1").is_empty() && of("").is_empty());
    }

    #[test]
    fn who_has_locked_a_file_is_known() {
        let path = std::env::temp_dir().join(format!("vgpu-turn-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        assert_eq!(holder(&path), None);
        let locked = nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusive).unwrap();
        let (process, program) = holder(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(process, std::process::id());
        assert!(!program.is_empty());
        drop(locked);
    }

    #[test]
    fn a_cause_that_the_child_named() {
        let line = r#"{"step":"open","ok":false,"link":"device","cause":"version-1","found":"speaks version 1","fix":{"text":"Update.","command":null,"needs_root":false}}"#;
        let finding = judge(&opened(&[line], None));
        assert_eq!(finding.issue().unwrap(), "device/version-1");
        assert_eq!(
            (finding.found.as_str(), finding.fix.unwrap().text.as_str()),
            ("0000:00:05.0: speaks version 1", "Update.")
        );
    }

    #[test]
    fn trouble_with_the_window_is_not_the_devices() {
        let line = r#"{"step":"open","ok":false,"link":"window","cause":"window-unmappable","found":"no resource2"}"#;
        assert!(judge(&opened(&[line], None)).holds());
    }

    #[test]
    fn trouble_with_the_host_is_not_the_devices() {
        let line =
            r#"{"step":"open","ok":false,"link":"host","cause":"session-refused","found":"in quarantine"}"#;
        assert!(judge(&opened(&[line], None)).holds());
    }

    #[test]
    fn what_is_not_understood_is_unknown_with_its_evidence() {
        let finding = judge(&opened(&[], Some("was killed by signal 7 (SIGBUS)")));
        assert_eq!(finding.issue().unwrap(), "device/unknown");
        assert!(finding.found.contains("SIGBUS"));
        let line = r#"{"step":"open","ok":false,"link":"permission","cause":"lockdown","found":"EPERM"}"#;
        assert_eq!(judge(&opened(&[line], None)).issue().unwrap(), "device/unknown");
    }

    #[test]
    fn times() {
        assert_eq!(time(0.61), "0.6 \u{b5}s");
        assert_eq!(time(88.0), "88 \u{b5}s");
        assert_eq!(time(1500.0), "1.5 ms");
        assert_eq!(time(2_000_000.0), "2.0 s");
    }
}
