//! Link `host`: whether the host takes sessions and answers, and whether its description of the device makes
//! sense. The worker of link `device` finds this out.

use vgpu_transport::{PciAddress, turn_files};
use vgpu_wire::AddressRange;

use super::device::{failed, time};
use crate::check::context::Context;
use crate::check::facts::{DeviceReport, Looked};
use crate::check::messages::{Echoes, Facts, Memory};
use crate::device::error::{context_lost, owners_taken};
use crate::device::silence::Silence;
use crate::device::survey::size;
use crate::diagnosis::cause::host as cause;
use crate::diagnosis::{Finding, LinkId};

const LINK: LinkId = LinkId::Host;
/// Echoes above this are slow: a hundred times what they take.
const SLOW_US: f64 = 1000.0;
/// The same for version 1.
const V1_SLOW_US: f64 = 20_000.0;
/// Below this few models of Ollama's go onto the device, and below a quarter of it none.
const LITTLE: u64 = 512 << 20;
/// What Ollama makes of total memory: the context that it loads models with by default.
const CONTEXTS: [(u64, &str); 2] = [(47 << 30, "262144"), (23 << 30, "32768")];

/// Examines the link.
pub async fn examine(context: &mut Context) -> Finding {
    let device = context.device.clone();
    let mut findings = context.looks.iter().map(|looked| judge(looked, device.as_ref()));
    let first = findings.next();
    findings
        .find(|finding| !finding.holds())
        .or_else(|| shared_addresses(&context.looks))
        .or(first)
        .unwrap_or_else(|| Finding::skip(LINK, "there is no device"))
}

/// The first two devices whose addresses overlap. Each works by itself, and a process cannot use both.
fn shared_addresses(looks: &[Looked]) -> Option<Finding> {
    let ranges: Vec<(PciAddress, AddressRange)> = looks
        .iter()
        .filter_map(|looked| {
            let Facts { address_base: base, address_bytes: bytes, .. } = looked.steps.succeeded()?;
            (bytes != 0).then_some((looked.function.address, AddressRange { base, bytes }))
        })
        .collect();
    let pairs =
        ranges.iter().enumerate().flat_map(|(at, one)| ranges[..at].iter().map(move |other| (other, one)));
    let ((one, range), (other, _)) = pairs.into_iter().find(|((_, one), (_, other))| one.overlaps(other))?;
    let found = format!("{one} and {other} share device addresses ({range})");
    Some(
        Finding::fail(cause::ADDRESSES_SHARED, found)
            .expected("addresses of its own for each device")
            .fix("Give each device of this VM another --address-range on the host, where its device processes share no directory of locks.")
            .details(ranges.iter().map(|(name, range)| format!("{name} has {range}"))),
    )
}

fn judge(looked: &Looked, device: Option<&DeviceReport>) -> Finding {
    if let Some(finding) = failed(looked, LINK) {
        return mend(finding);
    }
    if let Some(facts) = looked.steps.succeeded::<Facts>()
        && let Some(wrong) = nonsense(&facts)
    {
        return Finding::fail(cause::BAD_FACTS, wrong)
            .fix("Update the device's host, or look at the GPU that it describes.")
            .details(shown(&facts));
    }
    match looked.steps.open.as_deref() {
        Some(step @ ("attach" | "echo" | "memory" | "window")) => {
            let what = match step {
                "attach" => Silence::Greeting.found(""),
                "echo" => Silence::Echo.found(""),
                "memory" => "the host did not say how much memory is free".into(),
                _ => "the host did not give window memory".into(),
            };
            return Finding::fail(cause::NO_ECHO, what)
                .expected("an answer within a second")
                .fix(Silence::Echo.fix())
                .details(looked.trouble.iter().map(|trouble| format!("the process that asked {trouble}")));
        }
        Some(step) => {
            let trouble = looked.trouble.clone().unwrap_or_default();
            return Finding::unknown(LINK, format!("the process that asked the host {trouble}"))
                .detail(format!("it was at the step {step}"));
        }
        None => {}
    }
    let Some(echo) = looked.steps.said::<Echoes>() else {
        // No channel, or no window: it is their link that is broken.
        return Finding::skip(LINK, "not reached (needs a session)");
    };
    if let Some(Memory { free, total }) = looked.steps.succeeded() {
        let found = format!("{} of {} are free", size(free), size(total));
        if free == 0 || free < LITTLE && total >= LITTLE {
            let finding = if free < LITTLE / 4 {
                Finding::fail(cause::NO_MEMORY, found)
            } else {
                Finding::warn(cause::NO_MEMORY, found)
            };
            return finding
                .expected("memory for a model")
                .fix("End other programs that hold the device's memory, in this VM or on the host.");
        }
    }
    let Some(device) = device else {
        return Finding::fail(cause::BAD_FACTS, "the device describes no GPU");
    };
    let micros = echo.median_us;
    let found = format!(
        "{}, {} of {} free, compute capability {}.{}, driver {}, echo {}",
        device.name,
        size(device.free),
        size(device.total),
        device.capability.0,
        device.capability.1,
        device.driver,
        time(micros),
    );
    let details = CONTEXTS.iter().find(|(bytes, _)| device.total >= *bytes).map(|(bytes, context)| {
        format!("with {} of memory and more, Ollama's default context is {context} tokens", size(*bytes))
    });
    // A call of version 1 is some register accesses, each an exit of the virtual machine, and the way to the
    // mediator and back.
    let version_1 = !turn_files(&looked.function).is_empty();
    let (slow, expected) = if version_1 {
        (V1_SLOW_US, "an echo within a few milliseconds, as a call of version 1 takes")
    } else {
        (SLOW_US, "an echo within a few microseconds")
    };
    if micros > slow {
        return Finding::warn(cause::ECHO_SLOW, found)
            .expected(expected)
            .fix("Is the VM or its host overloaded? Give both processors of their own.")
            .details(details);
    }
    Finding::pass(LINK, found).details(details)
}

/// What mends what the child found.
fn mend(finding: Finding) -> Finding {
    if finding.fix.is_some() {
        return finding;
    }
    match finding.cause {
        Some(cause::CONTEXT_LOST) => Finding { fix: Some(context_lost()), ..finding },
        Some(cause::OWNERS_TAKEN) => Finding { fix: Some(owners_taken()), ..finding },
        Some(cause::ADDRESSES_UNAVAILABLE) => finding
            .fix("Is there a limit on address space? A service has LimitAS=. If the program's own memory lies there, have the host give the device another --address-range.")
            .command("ulimit -v"),
        Some(cause::SESSION_REFUSED) => {
            finding.fix("Look at the device's host: its log says why it refuses processes.")
        }
        Some(cause::BAD_FACTS) => {
            finding.fix("Update the device's host, or look at the GPU that it describes.")
        }
        _ => finding,
    }
}

/// What cannot be true of a GPU.
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
    } else if driver.is_none_or(|major| major == 0) {
        Some(format!("the device says that its driver's version is \"{}\"", facts.driver))
    } else if facts.uuid.bytes().skip(4).all(|byte| matches!(byte, b'0' | b'-')) {
        Some("the device has no UUID".into())
    } else if facts.warp <= 0 || facts.threads <= 0 || facts.processors <= 0 {
        Some("the device says that it has no processors, warps or threads".into())
    } else {
        None
    }
}

/// The facts, as evidence.
fn shown(facts: &Facts) -> Vec<String> {
    let fields = serde_json::to_value(facts).unwrap_or_default();
    ["name", "uuid", "total", "cc_major", "cc_minor", "cuda", "driver", "processors", "warp", "threads"]
        .iter()
        .filter_map(|field| Some(format!("{field}: {}", fields.get(*field)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::looked;
    use super::*;
    use crate::diagnosis::Status;

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

    fn device() -> DeviceReport {
        DeviceReport {
            name: "Soft".into(),
            driver: "580".into(),
            total: 48 << 30,
            free: 48 << 30,
            ..DeviceReport::default()
        }
    }

    fn issue(lines: &[&str]) -> Option<String> {
        judge(&looked(lines, None), Some(&device())).issue()
    }

    #[test]
    fn a_host_that_works() {
        let lines = [
            &facts("{}"),
            ATTACH,
            r#"{"step":"echo","ok":true,"median_us":0.6}"#,
            r#"{"step":"memory","ok":true,"free":51539607552,"total":51539607552}"#,
        ];
        let finding = judge(&looked(&lines, None), Some(&device()));
        assert_eq!(finding.status, Status::Pass);
        assert!(
            finding.found.starts_with("Soft, 48 GiB of 48 GiB free")
                && finding.found.ends_with("echo 0.6 \u{b5}s")
        );
        assert!(finding.details[0].contains("262144"));
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

    /// What takes microseconds on version 2 takes exits of the virtual machine on version 1.
    #[test]
    fn version_1_is_held_to_what_it_can_do() {
        let lines = |us: u32| {
            let echo = format!(r#"{{"step":"echo","ok":true,"median_us":{us}}}"#);
            let mut looked = looked(&[&facts("{}"), ATTACH, &echo], None);
            looked.function.bars[0].bytes = 0x1000;
            judge(&looked, Some(&device()))
        };
        assert_eq!(lines(5_000).status, Status::Pass);
        let version_2 = {
            let mut looked =
                looked(&[&facts("{}"), ATTACH, r#"{"step":"echo","ok":true,"median_us":5000}"#], None);
            looked.function.bars[0].bytes = vgpu_wire::pci::V2_BAR0_BYTES;
            judge(&looked, Some(&device()))
        };
        assert!(version_2.expected.unwrap().contains("microseconds"));
        let slow = lines(40_000);
        assert_eq!(slow.issue().unwrap(), "host/echo-slow");
        assert!(slow.expected.unwrap().contains("milliseconds"));
        for (cause, fix) in [("context-lost", "Restart the mediator"), ("owners-taken", "End GPU programs")] {
            let refused =
                format!(r#"{{"step":"attach","ok":false,"link":"host","cause":"{cause}","found":"no"}}"#);
            let finding = judge(&looked(&[&facts("{}"), &refused], None), Some(&device()));
            assert_eq!(finding.issue().unwrap(), format!("host/{cause}"));
            assert!(finding.fix.unwrap().text.starts_with(fix));
        }
    }

    #[test]
    fn devices_that_share_addresses_are_told() {
        let look = |slot: &str, base: u64, bytes: u64| {
            let change = format!(r#"{{"address_base":{base},"address_bytes":{bytes}}}"#);
            let mut looked = looked(&[&facts(&change)], None);
            looked.function.address = format!("0000:00:{slot}.0").parse().unwrap();
            looked
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
        let finding = judge(&looked(&[&facts("{}"), refused], None), Some(&device()));
        assert_eq!(finding.issue().unwrap(), "host/addresses-unavailable");
        assert_eq!(finding.fix.unwrap().command.as_deref(), Some("ulimit -v"));
    }

    #[test]
    fn hosts_that_do_not_answer_are_slow_or_are_full() {
        assert_eq!(issue(&[&facts("{}"), r#"{"step":"attach","begin":true}"#]).unwrap(), "host/no-echo");
        let slow = r#"{"step":"echo","ok":true,"median_us":40000}"#;
        assert_eq!(issue(&[&facts("{}"), ATTACH, slow]).unwrap(), "host/echo-slow");
        let echo = r#"{"step":"echo","ok":true,"median_us":1}"#;
        let memory = r#"{"step":"memory","ok":true,"free":0,"total":8589934592}"#;
        assert_eq!(issue(&[&facts("{}"), ATTACH, echo, memory]).unwrap(), "host/no-memory");
        let refused = r#"{"step":"attach","ok":false,"link":"host","cause":"session-refused","found":"no"}"#;
        assert_eq!(issue(&[&facts("{}"), refused]).unwrap(), "host/session-refused");
    }
}
