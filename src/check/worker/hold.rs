//! Implements `__worker hold`, which keeps the libraries and the probe available to processes of this user
//! until its input ends.

use std::io::Read;

use nix::sys::prctl::set_dumpable;

use super::say;
use crate::check::messages::Hold;
use crate::check::staging::StagedShims;
use crate::cli::Options;
use crate::diagnosis::Finding;
use crate::diagnosis::cause::shims::HANDOVER_REFUSED;
use crate::embedded::OBJECTS;
use crate::env::Environment;
use crate::inject::{DeliveryMode, DeliveryPlan};

/// Delivers the libraries and the probe, reports their paths, and waits for the end of the input.
pub fn hold(options: &Options, fixed: bool, objects: &[String]) {
    let objects = objects.iter().filter_map(|name| OBJECTS.iter().find(|object| object.soname == name));
    let plan =
        DeliveryPlan { mode: options.via.unwrap_or(DeliveryMode::Memory), fixed, objects: objects.collect() };
    // The directory in /proc of a process that changed its user is root's until the process says otherwise.
    // There is nothing to hide here: the process holds copies of its program's own libraries.
    if let Err(error) = set_dumpable(true) {
        let refused = Finding { fix: None, ..Finding::fail(HANDOVER_REFUSED, error.to_string()) };
        return say::failed::<Hold>(&refused.into());
    }
    match StagedShims::here(&plan, &Environment::inherited()) {
        Ok(staged) => {
            say::done(&staged.message());
            // Only the end of the input matters, not what it brings.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            drop(staged);
        }
        Err(finding) => say::failed::<Hold>(&(*finding).into()),
    }
}
