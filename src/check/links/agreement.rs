//! Link `agreement`: checks that the driver, the runtime, NVML and sysfs describe the device alike. Ollama
//! joins their descriptions and drops devices for which that fails.

use std::time::Duration;

use serde_json::Value;
use vgpu_probe_steps::{Driver, Fault, Gpu, Nvml, Runtime};

use super::ask_with_backend;
use super::backend::soname;
use crate::check::child::ChildOutcome;
use crate::check::context::CheckContext;
use crate::check::facts::DeviceReport;
use crate::check::steps::Steps;
use crate::diagnosis::cause::agreement as cause;
use crate::diagnosis::fix::agreement as fix;
use crate::diagnosis::{Cause, Finding, LinkId};
use crate::ollama::answers::{self, Dropped};

const LINK: LinkId = LinkId::Agreement;
const LIMIT: Duration = Duration::from_secs(10);
/// CUDA version from which Ollama uses its CUDA 13 build.
const CUDA_13: i32 = 13_000;

/// Examines the link and returns its finding.
pub async fn examine(context: &mut CheckContext) -> Finding {
    let words = |major| ["facts".to_owned(), "--runtime".to_owned(), soname("libcudart", major)];
    let (outcome, major) = match ask_with_backend(context, LINK, words, None, LIMIT).await {
        Ok(answer) => answer,
        Err(finding) => return finding,
    };
    let functions: Vec<String> =
        context.functions.iter().map(|function| function.address.to_string()).collect();
    let chosen = context.environment.get("OLLAMA_CONTEXT_LENGTH").is_some();
    if let Some(finding) = twins(&Steps::read(&outcome.stdout)) {
        return finding.details(super::init::lines(&outcome.stderr));
    }
    let finding = judge(&outcome, &functions, major, chosen);
    if !finding.holds() {
        return finding;
    }
    match context.devices.iter().find_map(|device| contradicted(&Steps::read(&outcome.stdout), device)) {
        Some(other) => other.details(finding.details),
        None => finding,
    }
}

/// Returns a finding for two devices with the same UUID, because a lookup by UUID always returns the first.
fn twins(steps: &Steps) -> Option<Finding> {
    let devices = steps.said::<Driver>()?.devices;
    for (index, one) in devices.iter().enumerate() {
        let Some(twin) = devices[..index].iter().find(|other| other.uuid == one.uuid) else { continue };
        let found = format!("{} and {} have the same UUID, {}", twin.pci, one.pci, one.uuid);
        return Some(Finding::fail(cause::UUID, found));
    }
    None
}

/// Compares CUDA's description of a device with the device's own. Returns a finding for the first
/// contradiction.
fn contradicted(steps: &Steps, device: &DeviceReport) -> Option<Finding> {
    let devices = steps.said::<Driver>()?.devices;
    let own = devices.into_iter().find(|one| pci(&one.pci) == pci(&device.address))?;
    let capability = format!("{}.{}", device.capability.0, device.capability.1);
    let said = own.capability;
    if said != capability {
        let found = format!(
            "{}: the device says that its compute capability is {capability}, CUDA says {said}",
            device.address
        );
        return Some(Finding::fail(cause::CAPABILITY, found));
    }
    let total = own.total;
    if total != device.total {
        let found = format!(
            "{}: the device says that it has {} bytes, CUDA says {total}",
            device.address, device.total
        );
        return Some(Finding::fail(cause::MEMORY, found));
    }
    let uuid = own.uuid;
    (!uuid.eq_ignore_ascii_case(&device.uuid)).then(|| {
        let found =
            format!("{}: the device says that it is {}, CUDA says {uuid}", device.address, device.uuid);
        Finding::fail(cause::UUID, found)
    })
}

fn judge(outcome: &ChildOutcome, functions: &[String], major: Option<u32>, context_chosen: bool) -> Finding {
    let steps = Steps::read(&outcome.stdout);
    let said = super::init::lines(&outcome.stderr);
    if steps.open.is_some() || steps.failed().is_some() || steps.report_of::<Nvml>().is_none() {
        return trouble(outcome, &steps).details(said);
    }
    let Driver { version, devices: driver } = steps.said().unwrap_or_default();
    let Runtime { devices: runtime, .. } = steps.said().unwrap_or_default();
    let Nvml { driver: nvidia, devices: nvml } = steps.said().unwrap_or_default();
    let mut details = Vec::new();
    for (who, found) in [("driver", &driver), ("runtime", &runtime), ("NVML", &nvml)] {
        details.extend(found.iter().map(|device| format!("{who}: {}", json(device))));
    }
    for (index, ours) in driver.iter().enumerate() {
        let theirs = [("the runtime", runtime.get(index)), ("NVML", nvml.get(index))];
        if let Some((cause, words)) = differs(ours, &theirs, functions) {
            return Finding::fail(cause, words)
                .expected("the same of all")
                .fix(fix::SAME_RELEASE)
                .details(details);
        }
    }
    if driver.is_empty() {
        return Finding::unknown(LINK, "libcuda shows no device");
    }
    judge_all(&driver, version, &nvidia, major, context_chosen).details(details)
}

/// Judges devices about which all sources agree. Ollama drops devices one by one and uses the remaining ones.
fn judge_all(
    devices: &[Gpu],
    version: i32,
    nvidia: &str,
    major: Option<u32>,
    context_chosen: bool,
) -> Finding {
    let floor = nvidia.split('.').next().and_then(|major| major.parse().ok());
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for device in devices {
        let parsed = device.capability.split_once('.');
        let parsed = parsed.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        match answers::dropped(parsed, None, major, floor, device.total >> 20)
            .and_then(|why| refusal(&why, device, nvidia))
        {
            Some(finding) => dropped.push(finding),
            None => kept.push(device),
        }
    }
    if kept.is_empty()
        && let Some(first) = dropped.first()
    {
        return first.clone();
    }
    let cuda = format!("{}.{}", version / 1000, version % 1000 / 10);
    let each: Vec<String> = kept
        .iter()
        .map(|device| format!("{}, {}, {} MiB", device.pci, device.capability, device.total >> 20))
        .collect();
    let nvidia = if nvidia.is_empty() { "unknown" } else { nvidia };
    let mut found = format!("all say {}, driver {nvidia} for CUDA {cuda}", each.join("; "));
    if version < CUDA_13 {
        found.push_str("; Ollama takes its CUDA 12 build");
    }
    let aside = dropped.into_iter().map(|finding| format!("Ollama drops a device: {}", finding.found));
    let context = answers::default_context(kept.iter().map(|device| device.total).sum());
    if context > 4096 && !context_chosen {
        let found = format!(
            "{found}; with so much memory Ollama's default context is {context} tokens, which takes much of it"
        );
        return Finding::warn(cause::LARGE_CONTEXT, found).details(aside);
    }
    Finding::pass(LINK, found).details(aside)
}

/// Returns a finding for a device that Ollama drops because of its description. A dropped architecture is
/// reported by a later link.
fn refusal(why: &Dropped, device: &Gpu, nvidia: &str) -> Option<Finding> {
    match why {
        Dropped::Memory => {
            Some(Finding::fail(cause::ZERO_MEMORY, format!("{} reports no memory", device.pci)))
        }
        Dropped::Driver(wanted) => {
            let found = format!(
                "the host's driver is {nvidia}, but Ollama requires {wanted} for compute capability {}",
                device.capability
            );
            Some(Finding::fail(cause::DRIVER_FLOOR, found).expected(format!("{wanted} or newer")))
        }
        Dropped::Architecture => None,
    }
}

/// Returns the cause and a description of the first property about which the sources disagree.
fn differs(ours: &Gpu, theirs: &[(&str, Option<&Gpu>)], functions: &[String]) -> Option<(Cause, String)> {
    let Gpu { pci: own, uuid, .. } = ours;
    let place = pci(own)?;
    if !functions.is_empty() && !functions.iter().any(|function| pci(function) == Some(place)) {
        return Some((cause::PCI_ID, format!("libcuda says {own}, but sysfs has {}", functions.join(", "))));
    }
    for (who, other) in theirs {
        let Some(other) = other else {
            return Some((cause::UUID, format!("{who} does not know the device {uuid}")));
        };
        let other_place = &other.pci;
        if pci(other_place) != Some(place) {
            return Some((cause::PCI_ID, format!("libcuda says {own}, {who} says {other_place}")));
        }
        let (ours, other) = (json(ours), json(other));
        for (key, differs) in
            [("uuid", cause::UUID), ("capability", cause::CAPABILITY), ("total", cause::MEMORY)]
        {
            let (one, two) = (&ours[key], &other[key]);
            if one != two {
                return Some((
                    differs,
                    format!("{own}: libcuda says that its {key} is {one}, {who} says {two}"),
                ));
            }
        }
    }
    let (whole, total) = (ours.device_total.unwrap_or_default(), ours.total);
    (whole != total).then(|| {
        (
            cause::MEMORY,
            format!("{own}: libcuda says that it has {whole} bytes, and {total} when asked for what is free"),
        )
    })
}

/// Formats a description of a device as JSON for messages.
fn json(device: &Gpu) -> Value {
    serde_json::to_value(device).unwrap_or_default()
}

/// Parses domain, bus, device and function. NVML writes the domain with eight digits, CUDA with four.
fn pci(text: &str) -> Option<(u32, u32, u32, u32)> {
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.split(':').map(|part| u32::from_str_radix(part, 16).ok());
    let place = (parts.next()??, parts.next()??, parts.next()??, function.trim().parse().ok()?);
    parts.next().is_none().then_some(place)
}

/// Returns the finding for a process that gave no usable answer.
fn trouble(outcome: &ChildOutcome, steps: &Steps) -> Finding {
    if let Some(failed) = steps.failed() {
        let fault: Fault = failed.said().unwrap_or_default();
        let found = format!("{}: {} says {}{}", failed.step, fault.call, fault.error, fault.code_text());
        return Finding::unknown(LINK, found);
    }
    let at = steps.open.as_deref().map(|step| format!(" while it asked {step}")).unwrap_or_default();
    let how = outcome.trouble().unwrap_or_else(|| "ended without an answer".into());
    Finding::unknown(LINK, format!("vgpu-probe {how}{at}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::check::child::ChildEnd;
    use crate::check::child::ended;
    use crate::diagnosis::Status;

    fn device(pci: &str) -> Value {
        let total = 8_u64 << 30;
        json!({"pci": pci, "uuid": "GPU-1", "capability": "6.1", "total": total, "device_total": total})
    }

    fn outcome(driver: &Value, runtime: &Value, nvml: &Value, version: u64, nvidia: &str) -> ChildOutcome {
        let lines = [
            json!({"step": "driver", "ok": true, "version": version, "devices": [driver]}),
            json!({"step": "runtime", "ok": true, "devices": [runtime]}),
            json!({"step": "nvml", "ok": true, "driver": nvidia, "devices": [nvml]}),
        ];
        let stdout = lines.map(|line| line.to_string()).join("\n");
        ended(ChildEnd::Exit(0), &stdout, "")
    }

    fn judged(change: impl FnOnce(&mut Value, &mut Value, &mut Value)) -> Finding {
        let (mut driver, mut runtime, mut nvml) =
            (device("0000:00:05.0"), device("0000:00:05.0"), device("00000000:00:05.0"));
        change(&mut driver, &mut runtime, &mut nvml);
        judge(&outcome(&driver, &runtime, &nvml, 13_000, "580.65"), &["0000:00:05.0".into()], Some(12), false)
    }

    #[test]
    fn those_that_agree_pass() {
        let finding = judged(|_, _, _| ());
        assert_eq!(finding.status, Status::Pass, "{finding:?}");
        assert!(
            finding.found.contains("0000:00:05.0, 6.1, 8192 MiB, driver 580.65 for CUDA 13.0"),
            "{}",
            finding.found
        );
    }

    #[test]
    fn each_difference_has_its_cause() {
        assert_eq!(judged(|_, _, nvml| nvml["pci"] = "00000000:00:06.0".into()).cause, Some(cause::PCI_ID));
        assert_eq!(judged(|driver, _, _| driver["pci"] = "0000:00:09.0".into()).cause, Some(cause::PCI_ID));
        assert_eq!(judged(|_, _, nvml| nvml["uuid"] = "GPU-2".into()).cause, Some(cause::UUID));
        assert_eq!(
            judged(|_, runtime, _| runtime["capability"] = "8.9".into()).cause,
            Some(cause::CAPABILITY)
        );
        assert_eq!(judged(|_, _, nvml| nvml["total"] = 1.into()).cause, Some(cause::MEMORY));
        assert_eq!(judged(|driver, _, _| driver["device_total"] = 1.into()).cause, Some(cause::MEMORY));
        let zero = |driver: &mut Value, runtime: &mut Value, nvml: &mut Value| {
            for device in [driver, runtime, nvml] {
                device["total"] = 0.into();
                device["device_total"] = 0.into();
            }
        };
        assert_eq!(judged(zero).cause, Some(cause::ZERO_MEMORY));
    }

    #[test]
    fn the_device_s_own_words_count() {
        let same = device("0000:00:05.0");
        let steps = Steps::read(&outcome(&same, &same, &same, 13_000, "580").stdout);
        let report = DeviceReport {
            address: "0000:00:05.0".into(),
            capability: (6, 1),
            total: 8 << 30,
            uuid: "gpu-1".into(),
            ..DeviceReport::default()
        };
        let cause = |report: &DeviceReport| contradicted(&steps, report).and_then(|finding| finding.cause);
        assert_eq!(cause(&report), None);
        assert_eq!(cause(&DeviceReport { capability: (8, 6), ..report.clone() }), Some(cause::CAPABILITY));
        assert_eq!(cause(&DeviceReport { total: 1, ..report.clone() }), Some(cause::MEMORY));
        assert_eq!(cause(&DeviceReport { uuid: "GPU-2".into(), ..report }), Some(cause::UUID));
        let lines =
            json!({"step": "driver", "ok": true, "devices": [same, device("0000:00:06.0")]}).to_string();
        let twins = ended(ChildEnd::Exit(0), &lines, "");
        assert_eq!(
            super::twins(&Steps::read(&twins.stdout)).and_then(|finding| finding.cause),
            Some(cause::UUID)
        );
    }

    #[test]
    fn old_drivers_and_much_memory_are_told() {
        let of = |version, nvidia, gib: u64, major, chosen| {
            let mut same = device("0000:00:05.0");
            same["total"] = (gib << 30).into();
            same["device_total"] = (gib << 30).into();
            judge(&outcome(&same, &same, &same, version, nvidia), &[], Some(major), chosen)
        };
        assert_eq!(of(12_040, "560.1", 8, 12, false).cause, Some(cause::DRIVER_FLOOR));
        let older = of(12_080, "575.1", 8, 12, false);
        assert!(older.status == Status::Pass && older.found.ends_with("CUDA 12 build"), "{older:?}");
        assert_eq!(of(13_000, "580.1", 24, 13, false).cause, Some(cause::LARGE_CONTEXT));
        assert_eq!(of(13_000, "580.1", 24, 13, true).status, Status::Pass);
    }

    #[test]
    fn addresses_are_compared_as_numbers() {
        assert_eq!(pci("0000:00:05.0"), pci("00000000:00:05.0"));
        assert_eq!(pci("0000:0A:1f.7"), Some((0, 10, 31, 7)));
        for text in ["", "0:0.0", "0:0:0:0.0", "x:0:0.0", "0:0:0"] {
            assert_eq!(pci(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_breaks_the_addresses(text in ".{0,24}") {
            let _ = pci(&text);
        }
    }
}
