//! Link `pci`: whether the function is there, is a VGPU-STUB, has addresses, and is left alone.

use std::path::Path;

use super::broken;
use crate::check::context::Context;
use crate::device::error::decoding;
use crate::device::survey;
use crate::diagnosis::cause::pci as cause;
use crate::diagnosis::{Finding, LinkId};

const LINK: LinkId = LinkId::Pci;

/// Examines the link.
pub async fn examine(context: &mut Context) -> Finding {
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
        let found = format!("memory decoding of {} is off", function.address);
        let fix = decoding(&function.dir);
        // Who starts as root need do nothing.
        let turned_on = context.subject().is_ok_and(|subject| subject.uid.is_root());
        let finding = if turned_on {
            Finding::warn(cause::MEMORY_DECODING_OFF, format!("{found}; vgpu-run, as root, turns it on"))
        } else {
            Finding::fail(cause::MEMORY_DECODING_OFF, found)
        };
        return Finding { fix: Some(fix), ..finding }.details(evidence(&root));
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

/// What the bus shows.
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
