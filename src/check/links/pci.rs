//! Link `pci`: checks that the function exists, is a VGPU-STUB, has addresses, and is not bound to a driver.

use std::path::Path;

use nix::unistd::Uid;
use vgpu_transport::PciFunction;

use super::broken;
use crate::check::context::CheckContext;
use crate::device::{prepare, survey};
use crate::diagnosis::cause::pci as cause;
use crate::diagnosis::fix::pci as fix;
use crate::diagnosis::{Finding, LinkId, Status};
use crate::error::Failure;

const LINK: LinkId = LinkId::Pci;

/// Examines the link and returns its finding.
pub async fn examine(context: &mut CheckContext) -> Finding {
    let root = context.root.clone();
    let functions = match survey::find(&root) {
        Ok(functions) => functions,
        Err(error) => return broken(LINK, error).details(evidence(&root)),
    };
    context.functions.clone_from(&functions);
    for function in &functions {
        if let Err(error) = survey::examine(function) {
            return broken(LINK, error).details(evidence(&root));
        }
    }
    let off = functions.iter().find(|function| survey::decoding_off(&function.dir));
    if let Some(function) = off {
        let by_root = context.subject().is_ok_and(|subject| subject.uid.is_root());
        return decoding_off(function, &functions, by_root).details(evidence(&root));
    }
    let names: Vec<String> = functions.iter().map(|function| function.address.to_string()).collect();
    let window = functions.first().map_or(0, |function| function.bars[2].bytes);
    let found = match names.len() {
        1 if window == 0 => format!("{}, of version 1", names[0]),
        1 => format!("{}, window of {}", names[0], survey::size(window)),
        many => format!("{many} functions: {}", names.join(", ")),
    };
    let others: Vec<_> = survey::candidates(&root)
        .into_iter()
        .filter(|candidate| !names.contains(&candidate.name))
        .map(|candidate| format!("{} has the same ids and is not used: {}", candidate.name, bars(&candidate)))
        .collect();
    Finding::pass(LINK, found).details(others)
}

/// Judges a function whose memory decoding is off. `by_root` tells that vgpu-run is started as root and will
/// turn decoding on. If the check runs as root, it turns decoding on too, because nothing else of the device
/// could be examined otherwise.
fn decoding_off(function: &PciFunction, all: &[PciFunction], by_root: bool) -> Finding {
    let found = format!("memory decoding of {} is off", function.address);
    let folder = function.dir.display();
    let off = |found: String| Finding::fail(cause::MEMORY_DECODING_OFF, found).with("folder", &folder);
    if !by_root {
        return off(found);
    }
    if !Uid::effective().is_root() {
        return Finding { status: Status::Warn, ..off(format!("{found}; vgpu-run, as root, turns it on")) };
    }
    match prepare(all, None) {
        Ok(()) if all.iter().any(|function| survey::decoding_off(&function.dir)) => {
            off(format!("{found}, and stays off although check has turned it on"))
                .fix(fix::STAYS_OFF)
                .with("folder", &folder)
        }
        Ok(()) => {
            let found = format!("memory decoding of {} was off; check has turned it on", function.address);
            Finding { status: Status::Warn, ..off(found) }
        }
        Err(error) => {
            let failure = Failure::from(error);
            let finding = off(format!("{found}, and {}", failure.sentence()));
            Finding { fix: failure.finding().and_then(|finding| finding.fix), ..finding }
        }
    }
}

/// Describes the functions on the bus as evidence.
fn evidence(root: &Path) -> Vec<String> {
    let devices = root.join("bus/pci/devices");
    let mut lines = match survey::functions(root) {
        Ok(count) => vec![format!("{}: {count} functions", devices.display())],
        Err(error) => vec![format!("{}: {error}", devices.display())],
    };
    lines.extend(survey::candidates(root).iter().map(|candidate| {
        let driver = survey::driver(&candidate.dir).unwrap_or_else(|| "none".into());
        format!(
            "{} [10de:2331] class {:06x}, {}, driver {driver}",
            candidate.name,
            candidate.class,
            bars(candidate)
        )
    }));
    lines
}

fn bars(candidate: &survey::Candidate) -> String {
    let shown: Vec<_> = candidate
        .bars
        .iter()
        .enumerate()
        .filter(|(_, bar)| bar.1 > 0)
        .map(|(index, bar)| {
            let place = if bar.0 == 0 { " without an address" } else { "" };
            format!("BAR{index} {}{place}", survey::size(bar.1))
        })
        .collect();
    let unset = if candidate.unset { " (the kernel found no room for all)" } else { "" };
    if shown.is_empty() { "no BARs".into() } else { format!("{}{unset}", shown.join(", ")) }
}
