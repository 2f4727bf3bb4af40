//! Link `host`: checks that the host accepts sessions and answers, and that its description of the device is
//! plausible. The worker of link `device` gathers the data.

use vgpu_transport::PciAddress;
use vgpu_transport_v1::lock_files;
use vgpu_wire::AddressRange;

use super::device::{failed, report, time};
use super::environment::LAYERS;
use super::together;
use crate::check::context::CheckContext;
use crate::check::facts::{DeviceReport, OpenedFunction};
use crate::check::limits;
use crate::check::messages::{Echoes, Facts, Memory};
use crate::check::unit::Unit;
use crate::device::silence::Silence;
use crate::device::survey::size;
use crate::diagnosis::cause::host as cause;
use crate::diagnosis::fix::{environment, host as fix};
use crate::diagnosis::{Finding, LinkId};
use crate::env::Environment;
use crate::ollama::era::Era;

const LINK: LinkId = LinkId::Host;
/// Round trip in microseconds above which an echo counts as slow: a hundred times the usual time.
const SLOW_US: f64 = 1000.0;
/// Round trip in microseconds above which an echo counts as slow on version 1.
const V1_SLOW_US: f64 = 20_000.0;
/// Device memory below which few models fit, in bytes.
const LITTLE: u64 = 512 << 20;
/// Device memory at or below which no model fits, in bytes.
const LEAST: u64 = LITTLE / 4;
/// Memory that llama.cpp leaves free on each device when it chooses the layers (`--fit-target`), in MiB.
const LLAMA_FIT_TARGET_MIB: u64 = 1024;
/// Memory that Ollama before 0.30 leaves free when it chooses the layers itself (`MinimumMemory`), in MiB.
const MINIMUM_MIB: u64 = 457;
/// Variable with the memory in MiB that llama.cpp leaves free on each device.
const FIT_TARGET: &str = "LLAMA_ARG_FIT_TARGET";
/// Variable with which llama.cpp is told whether it chooses the layers by the memory that is free.
const FIT: &str = "LLAMA_ARG_FIT";
/// Values that llama.cpp takes for "no" (common/arg.cpp, `is_falsey`).
const NO: [&str; 4] = ["off", "disabled", "false", "0"];
/// Variable with memory in bytes that Ollama before 0.30 leaves free in addition.
const OVERHEAD: &str = "OLLAMA_GPU_OVERHEAD";
/// Total device memory in bytes from which Ollama uses a default context length, which is the second value.
const CONTEXTS: [(u64, &str); 2] = [(47 << 30, "262144"), (23 << 30, "32768")];

/// Examines the link: each device, and then all devices together.
pub async fn examine(context: &mut CheckContext) -> Finding {
    let left_free = left_free(context);
    let judged =
        |opened: &OpenedFunction| (opened.function.address.to_string(), judge(opened, left_free.bytes));
    let findings: Vec<(String, Finding)> = context.opened.iter().map(judged).collect();
    let all_work = findings.iter().all(|(_, finding)| finding.holds());
    let of_all = || {
        shared_addresses(&context.opened)
            .or_else(|| limited(context.unit.as_ref(), &context.opened))
            .or_else(|| memory(&context.devices, &left_free, context.unit.as_ref()))
    };
    if let Some(finding) = all_work.then(of_all).flatten() {
        return finding;
    }
    let total = context.devices.iter().map(|device| device.total).sum();
    match together(findings) {
        Some(finding) if all_work => finding.details(default_context(total)),
        Some(finding) => finding,
        None => Finding::skip(LINK, "there is no device"),
    }
}

/// Judges the memory again, once a script has shown which Ollama it starts: until then it was not known how
/// much that one leaves free.
pub fn reconsider(context: &mut CheckContext, findings: &mut [Finding]) {
    let Some(finding) = findings.iter_mut().find(|finding| finding.link == LINK && finding.holds()) else {
        return;
    };
    let left_free = left_free(context);
    if let Some(lacking) = memory(&context.devices, &left_free, context.unit.as_ref()) {
        let before = std::mem::replace(finding, lacking);
        finding.elapsed = before.elapsed;
    }
}

/// Returns a sentence about the context length that Ollama derives from the memory of all devices.
fn default_context(total: u64) -> Option<String> {
    let (bytes, context) = CONTEXTS.iter().find(|(bytes, _)| total >= *bytes)?;
    Some(format!("with {} of memory and more, Ollama's default context is {context} tokens", size(*bytes)))
}

/// Memory that the program leaves free on each device.
#[derive(Clone, Debug, Default)]
struct LeftFree {
    /// Memory in bytes. A device with no more free memory gets no layer.
    bytes: u64,
    /// Program that leaves it free, as a clause for messages.
    why: String,
    /// Variable that raises the memory, and the memory in bytes without it.
    raised: Option<(&'static str, u64)>,
}

/// Determines how much memory the program leaves free on each device. A device with no more free memory than
/// that gets no layer.
fn left_free(context: &mut CheckContext) -> LeftFree {
    const MIB: u64 = 1 << 20;
    let environment = context.environment.clone();
    let number = |name: &str| environment.get(name)?.to_str()?.trim().parse::<u64>().ok();
    let fits = chooses_layers(&environment);
    match context.target().ollama.as_ref().map(|ollama| ollama.era) {
        Some(Era::C) if fits => {
            let (usual, set) = (LLAMA_FIT_TARGET_MIB * MIB, number(FIT_TARGET));
            let bytes = set.map_or(usual, |mib| mib.saturating_mul(MIB));
            let why = format!("llama-server leaves {} of each device free ({FIT_TARGET})", size(bytes));
            LeftFree { bytes, why, raised: (bytes > usual).then_some((FIT_TARGET, usual)) }
        }
        Some(Era::A | Era::B) => {
            let usual = MINIMUM_MIB * MIB;
            let bytes = usual.saturating_add(number(OVERHEAD).unwrap_or_default());
            let why = format!("Ollama leaves {} of each device free ({OVERHEAD} adds to it)", size(bytes));
            LeftFree { bytes, why, raised: (bytes > usual).then_some((OVERHEAD, usual)) }
        }
        _ => LeftFree { bytes: LEAST, why: format!("no model fits into {}", size(LEAST)), raised: None },
    }
}

/// Returns whether llama.cpp chooses the layers by the memory that is free. It does not if it is told so,
/// or if the number of layers is given: it then puts them onto the device and leaves nothing free.
fn chooses_layers(environment: &Environment) -> bool {
    let off = environment.get(FIT).is_some_and(|value| NO.iter().any(|no| value == *no));
    let given = environment.get(LAYERS).and_then(|value| value.to_str());
    !off && given.is_none_or(|value| ["", "auto", "-1"].contains(&value.trim()))
}

/// Returns a finding if no device has memory for a layer.
fn memory(devices: &[DeviceReport], left_free: &LeftFree, unit: Option<&Unit>) -> Option<Finding> {
    let LeftFree { bytes, why, raised } = left_free;
    let bytes = *bytes;
    let most = devices.iter().max_by_key(|device| device.free)?;
    if most.free > bytes {
        return None;
    }
    let shown = devices.iter().map(|device| {
        format!("{}: {} of {} are free", device.address, size(device.free), size(device.total))
    });
    let finding = if devices.iter().any(|device| device.total > bytes) {
        let found = format!("{} has {} of {} free, and {why}", most.name, size(most.free), size(most.total));
        Finding::fail(cause::NO_MEMORY, found)
    } else {
        let found = format!("{} has {} of memory, and {why}", most.name, size(most.total));
        Finding::fail(cause::MEMORY_TOO_SMALL, found)
    };
    // Without the variable the memory would be enough.
    let raised = raised.filter(|(_, usual)| most.free > *usual).map(|(variable, _)| variable);
    let finding = match (raised, unit) {
        (Some(variable), Some(unit)) => {
            finding.fix(environment::IN_UNIT).with("variable", variable).with("unit", &unit.name)
        }
        (Some(variable), None) => finding.fix(fix::KEPT_FREE).with("variable", variable),
        (None, _) => finding,
    };
    Some(finding.expected(format!("more than {} free", size(bytes))).details(shown))
}

/// Returns a finding for a limit in the service's unit that leaves its processes less address space than the
/// devices need.
fn limited(unit: Option<&Unit>, opened: &[OpenedFunction]) -> Option<Finding> {
    let unit = unit?;
    let limit: u64 = unit.get("LimitAS").parse().ok()?;
    let needed = limits::needed(opened);
    let found = || {
        format!(
            "in {} LimitAS={limit} leaves {} of address space, and a process reserves {} for the device",
            unit.name,
            size(limit),
            size(needed)
        )
    };
    (limit < needed).then(|| {
        Finding::fail(cause::ADDRESSES_UNAVAILABLE, found()).fix(fix::UNIT_LIMIT).with("unit", &unit.name)
    })
}

/// Returns a finding for the first two devices whose addresses overlap. Each works alone, and a process
/// cannot use both.
fn shared_addresses(opened: &[OpenedFunction]) -> Option<Finding> {
    let ranges: Vec<(PciAddress, AddressRange)> = opened
        .iter()
        .filter_map(|opened| {
            let Facts { address_base: base, address_bytes: bytes, .. } = opened.steps.succeeded()?;
            (bytes != 0).then_some((opened.function.address, AddressRange { base, bytes }))
        })
        .collect();
    let pairs =
        ranges.iter().enumerate().flat_map(|(at, one)| ranges[..at].iter().map(move |other| (other, one)));
    let ((one, range), (other, _)) = pairs.into_iter().find(|((_, one), (_, other))| one.overlaps(other))?;
    let found = format!("{one} and {other} share device addresses ({range})");
    Some(
        Finding::fail(cause::ADDRESSES_SHARED, found)
            .expected("addresses of its own for each device")
            .details(ranges.iter().map(|(name, range)| format!("{name} has {range}"))),
    )
}

/// Judges one device. `left_free` is the memory in bytes that programs leave free on it.
fn judge(opened: &OpenedFunction, left_free: u64) -> Finding {
    if let Some(finding) = failed(opened, LINK) {
        return finding;
    }
    if let Some(facts) = opened.steps.succeeded::<Facts>()
        && let Some(wrong) = nonsense(&facts)
    {
        let found = format!("{}: {wrong}", opened.function.address);
        return Finding::fail(cause::BAD_FACTS, found).details(shown(&facts));
    }
    match opened.steps.open.as_deref() {
        Some(step @ ("attach" | "echo" | "memory" | "window")) => {
            let name = opened.function.address.to_string();
            let what = match step {
                "attach" => Silence::Greeting.found(&name),
                "echo" => Silence::Echo.found(&name),
                "memory" => format!("the host behind {name} did not say how much memory is free"),
                _ => format!("the host behind {name} did not give window memory"),
            };
            return Finding::fail(cause::NO_ECHO, what)
                .expected("an answer within a second")
                .details(opened.trouble.iter().map(|trouble| format!("the process that asked {trouble}")));
        }
        Some(step) => {
            let trouble = opened.trouble.clone().unwrap_or_default();
            return Finding::unknown(LINK, format!("the process that asked the host {trouble}"))
                .detail(format!("it was at the step {step}"));
        }
        None => {}
    }
    let Some(echo) = opened.steps.said::<Echoes>() else {
        // No channel, or no window: it is their link that is broken.
        return Finding::skip(LINK, "not reached (needs a session)");
    };
    if let Some(Memory { free, total }) = opened.steps.succeeded() {
        let name = report(opened).map_or_else(|| "the device".into(), |device| device.name);
        let found = format!("{name} has {} of {} free", size(free), size(total));
        // One device with memory is enough; see `memory`.
        if free == 0 || free < LITTLE.max(left_free) && total >= LITTLE {
            return Finding::warn(cause::NO_MEMORY, found).expected("memory for a model");
        }
    }
    let Some(device) = report(opened) else {
        return Finding::fail(cause::BAD_FACTS, format!("{} describes no GPU", opened.function.address));
    };
    let micros = echo.median_us;
    let driver =
        if device.driver.is_empty() { "driver unknown".into() } else { format!("driver {}", device.driver) };
    let found = format!(
        "{}, {} of {} free, compute capability {}.{}, {}, echo {}",
        device.name,
        size(device.free),
        size(device.total),
        device.capability.0,
        device.capability.1,
        driver,
        time(micros),
    );
    // A call of version 1 is some register accesses, each an exit of the virtual machine, and the way to the
    // mediator and back.
    let version_1 = !lock_files(&opened.function).is_empty();
    let (slow, expected) = if version_1 {
        (V1_SLOW_US, "an echo within a few milliseconds, as a call of version 1 takes")
    } else {
        (SLOW_US, "an echo within a few microseconds")
    };
    if micros > slow {
        return Finding::warn(cause::ECHO_SLOW, found).expected(expected);
    }
    Finding::pass(LINK, found)
}

/// Describes a fact that is implausible for a GPU, if there is one. A host that does not know its driver's
/// version leaves it empty, and Ollama keeps the device.
fn nonsense(facts: &Facts) -> Option<String> {
    let Facts { cc_major: major, cc_minor: minor, cuda, total, .. } = *facts;
    let driver: Option<u32> = facts.driver.split('.').next().and_then(|part| part.parse().ok());
    if facts.name.is_empty() {
        Some("the device has no name".into())
    } else if total < 64 << 20 {
        Some(format!("the device says that it has {} of memory", size(total)))
    } else if total > 1 << 50 {
        Some(format!("the device says that it has {} of memory, more than any GPU", size(total)))
    } else if !(2..=30).contains(&major) || minor > 9 {
        Some(format!("the device says that its compute capability is {major}.{minor}"))
    } else if !(5000..100_000).contains(&cuda) {
        Some(format!(
            "the device says that its driver's CUDA version is {}.{}",
            cuda / 1000,
            cuda % 1000 / 10
        ))
    } else if !facts.driver.is_empty() && driver.is_none_or(|major| major == 0) {
        Some(format!("the device says that its driver's version is \"{}\"", facts.driver))
    } else if facts.uuid.bytes().skip(4).all(|byte| matches!(byte, b'0' | b'-')) {
        Some("the device has no UUID".into())
    } else if facts.warp <= 0 || facts.threads <= 0 || facts.processors <= 0 {
        Some("the device says that it has no processors, warps or threads".into())
    } else {
        None
    }
}

/// Formats the facts as lines of evidence.
fn shown(facts: &Facts) -> Vec<String> {
    let fields = serde_json::to_value(facts).unwrap_or_default();
    ["name", "uuid", "total", "cc_major", "cc_minor", "cuda", "driver", "processors", "warp", "threads"]
        .iter()
        .filter_map(|field| Some(format!("{field}: {}", fields.get(*field)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::opened;
    use super::*;
    use crate::check::facts::TargetProgram;
    use crate::cli::{CheckOptions, Options};
    use crate::diagnosis::Status;
    use crate::ollama::Ollama;
    use crate::program::Program;

    const ATTACH: &str = r#"{"step":"attach","ok":true}"#;

    fn facts(change: &str) -> String {
        let mut facts: serde_json::Value = serde_json::from_str(
            r#"{"step":"facts","ok":true,"name":"Soft","driver":"580.65.06","cuda":13000,"cc_major":6,"cc_minor":1,
                "total":8589934592,"uuid":"GPU-1234","warp":32,"threads":1024,"processors":8}"#,
        )
        .unwrap();
        let change: serde_json::Value = serde_json::from_str(change).unwrap();
        facts.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        facts.to_string()
    }

    fn issue(lines: &[&str]) -> Option<String> {
        judge(&opened(lines, None), 0).issue()
    }

    #[test]
    fn a_host_that_works() {
        let lines = [
            &facts(r#"{"total":51539607552}"#),
            ATTACH,
            r#"{"step":"echo","ok":true,"median_us":0.6}"#,
            r#"{"step":"memory","ok":true,"free":51539607552,"total":51539607552}"#,
        ];
        let finding = judge(&opened(&lines, None), 0);
        assert_eq!(finding.status, Status::Pass);
        assert!(
            finding.found.starts_with("Soft, 48 GiB of 48 GiB free")
                && finding.found.ends_with(", driver 580.65.06, echo 0.6 \u{b5}s")
        );
        let unnamed = facts(r#"{"driver":""}"#);
        let finding = judge(&opened(&[&unnamed, lines[1], lines[2], lines[3]], None), 0);
        assert!(
            finding.status == Status::Pass && finding.found.contains(", driver unknown, "),
            "{finding:?}"
        );
        assert!(default_context(48 << 30).unwrap().contains("262144"));
    }

    #[test]
    fn descriptions_that_make_no_sense() {
        for change in [
            r#"{"cc_major":0}"#,
            r#"{"cuda":0}"#,
            r#"{"name":""}"#,
            r#"{"total":0}"#,
            r#"{"driver":"soon"}"#,
            r#"{"uuid":"GPU-00000000-0000"}"#,
            r#"{"warp":0}"#,
        ] {
            assert_eq!(issue(&[&facts(change)]).unwrap(), "host/bad-facts", "{change}");
        }
    }

    /// Version 1 has a limit of its own for slow echoes, because each of its calls exits the virtual machine.
    #[test]
    fn version_1_is_held_to_what_it_can_do() {
        let lines = |us: u32| {
            let echo = format!(r#"{{"step":"echo","ok":true,"median_us":{us}}}"#);
            let mut opened = opened(&[&facts("{}"), ATTACH, &echo], None);
            opened.function.bars[0].bytes = 0x1000;
            judge(&opened, 0)
        };
        assert_eq!(lines(5_000).status, Status::Pass);
        let version_2 = {
            let mut opened =
                opened(&[&facts("{}"), ATTACH, r#"{"step":"echo","ok":true,"median_us":5000}"#], None);
            opened.function.bars[0].bytes = vgpu_wire::pci::V2_BAR0_BYTES;
            judge(&opened, 0)
        };
        assert!(version_2.expected.unwrap().contains("microseconds"));
        let slow = lines(40_000);
        assert_eq!(slow.issue().unwrap(), "host/echo-slow");
        assert!(slow.expected.unwrap().contains("milliseconds"));
        for (cause, fix) in [("context-lost", "Restart the mediator"), ("owners-taken", "End GPU programs")] {
            let refused =
                format!(r#"{{"step":"attach","ok":false,"link":"host","cause":"{cause}","found":"no"}}"#);
            let finding = judge(&opened(&[&facts("{}"), &refused], None), 0);
            assert_eq!(finding.issue().unwrap(), format!("host/{cause}"));
            assert!(finding.fix.unwrap().text.starts_with(fix));
        }
    }

    fn device(total: u64, free: u64) -> DeviceReport {
        DeviceReport { name: "Soft".into(), total: total << 20, free: free << 20, ..DeviceReport::default() }
    }

    #[test]
    fn a_given_number_of_layers_leaves_nothing_free() {
        let chooses = |entries: &[(&str, &str)]| chooses_layers(&entries.iter().copied().collect());
        assert!(chooses(&[]) && chooses(&[(LAYERS, "auto")]) && chooses(&[(FIT, "on")]));
        assert!(!chooses(&[(LAYERS, "1")]) && !chooses(&[(LAYERS, "all")]));
        assert!(NO.into_iter().all(|no| !chooses(&[(FIT, no)])));
    }

    #[test]
    fn one_device_with_memory_is_enough() {
        let left = LeftFree { bytes: 1 << 30, ..LeftFree::default() };
        let of = |devices: &[DeviceReport]| memory(devices, &left, None).and_then(|finding| finding.issue());
        assert_eq!(of(&[device(8192, 0)]).unwrap(), "host/no-memory");
        assert_eq!(of(&[device(640, 640)]).unwrap(), "host/memory-too-small");
        assert_eq!(of(&[device(8192, 0), device(640, 640)]).unwrap(), "host/no-memory");
        assert_eq!(of(&[device(8192, 0), device(4096, 4096)]), None);
        let set = LeftFree { raised: Some((FIT_TARGET, 512 << 20)), ..left.clone() };
        let command = |free| memory(&[device(640, free)], &set, None).unwrap().fix.unwrap().command;
        assert_eq!(command(640).as_deref(), Some("unset LLAMA_ARG_FIT_TARGET"));
        assert_eq!(command(512), None, "it is full without the variable, too");
    }

    #[test]
    fn the_memory_is_judged_again_when_a_script_has_shown_its_ollama() {
        let mut context = CheckContext::new(Options::default(), CheckOptions::default());
        context.devices = vec![device(520, 520)];
        let (program, ollama) = (Program::find("/bin/sh".as_ref(), None).unwrap(), None);
        context.target = Some(TargetProgram { program: Ok(program), ollama });
        let mut findings = [Finding::pass(LINK, "fine")];
        reconsider(&mut context, &mut findings);
        assert_eq!(findings[0].status, Status::Pass, "which Ollama it is, is not known");
        let ollama = Some(Ollama { era: Era::C, libraries: "/l".into() });
        context.environment = Environment::default();
        context.target.as_mut().unwrap().ollama = ollama;
        reconsider(&mut context, &mut findings);
        assert_eq!(findings[0].cause, Some(cause::MEMORY_TOO_SMALL), "{}", findings[0].found);
    }

    #[test]
    fn units_that_limit_addresses() {
        let mut one =
            opened(&[&facts(r#"{"address_base":1099511627776,"address_bytes":1099511627776}"#)], None);
        one.function.address = "0000:00:05.0".parse().unwrap();
        let issue = |limit: &str| {
            limited(Some(&Unit::with(&[("LimitAS", limit)])), std::slice::from_ref(&one))
                .and_then(|finding| finding.issue())
        };
        assert_eq!(issue("107374182400").unwrap(), "host/addresses-unavailable");
        assert_eq!((issue("infinity"), issue("")), (None, None));
    }

    #[test]
    fn devices_that_share_addresses_are_told() {
        let look = |slot: &str, base: u64, bytes: u64| {
            let change = format!(r#"{{"address_base":{base},"address_bytes":{bytes}}}"#);
            let mut opened = opened(&[&facts(&change)], None);
            opened.function.address = format!("0000:00:{slot}.0").parse().unwrap();
            opened
        };
        let (one, beside) = (look("05", 1 << 46, 1 << 40), look("06", (1 << 46) + (1 << 40), 1 << 40));
        let (older, overlapping) = (look("07", 0, 0), look("08", (1 << 46) + (1 << 39), 1 << 39));
        assert_eq!(shared_addresses(&[one.clone(), beside.clone(), older.clone(), older.clone()]), None);
        let finding = shared_addresses(&[older, one, beside, overlapping]).unwrap();
        assert_eq!(finding.issue().unwrap(), "host/addresses-shared");
        assert!(finding.found.starts_with("0000:00:05.0 and 0000:00:08.0 share"), "{}", finding.found);
        assert!(finding.details.len() == 3 && finding.fix.is_some());
        let refused =
            r#"{"step":"attach","ok":false,"link":"host","cause":"addresses-unavailable","found":"taken"}"#;
        let finding = judge(&opened(&[&facts("{}"), refused], None), 0);
        assert_eq!(finding.issue().unwrap(), "host/addresses-unavailable");
        assert_eq!(finding.fix.unwrap().command.as_deref(), Some("ulimit -v unlimited"));
    }

    #[test]
    fn hosts_that_do_not_answer_are_slow_or_are_full() {
        assert_eq!(issue(&[&facts("{}"), r#"{"step":"attach","begin":true}"#]).unwrap(), "host/no-echo");
        let slow = r#"{"step":"echo","ok":true,"median_us":40000}"#;
        assert_eq!(issue(&[&facts("{}"), ATTACH, slow]).unwrap(), "host/echo-slow");
        let echo = r#"{"step":"echo","ok":true,"median_us":1}"#;
        let memory = r#"{"step":"memory","ok":true,"free":0,"total":8589934592}"#;
        // A warning: another device may have memory.
        assert_eq!(issue(&[&facts("{}"), ATTACH, echo, memory]).unwrap(), "host/no-memory");
        let refused = r#"{"step":"attach","ok":false,"link":"host","cause":"session-refused","found":"no"}"#;
        assert_eq!(issue(&[&facts("{}"), refused]).unwrap(), "host/session-refused");
    }
}
