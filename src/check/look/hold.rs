//! `__look hold`: keeps the libraries and the probe in place for processes of this user, until its input ends.

use std::io::Read;

use nix::sys::prctl::set_dumpable;
use serde_json::json;

use super::end;
use crate::check::keeper::{Kept, Refused};
use crate::cli::Options;
use crate::embedded::OBJECTS;
use crate::env::Environment;
use crate::inject::{Plan, Way};

/// Puts them in place, says where, and waits.
pub fn hold(options: &Options, fixed: bool, objects: &[String]) {
    let objects = objects.iter().filter_map(|name| OBJECTS.iter().find(|object| object.soname == name));
    let plan = Plan { way: options.via.unwrap_or(Way::Memory), fixed, objects: objects.collect() };
    // Who changed its user has a folder in /proc that is root's until it says otherwise. There is nothing to hide here: it holds
    // copies of its program's own libraries.
    if let Err(error) = set_dumpable(true) {
        return end("hold", false, json!({"found": error.to_string()}));
    }
    match Kept::here(&plan, &Environment::inherited()) {
        Ok(kept) => {
            end("hold", true, kept.said());
            // Its end is what is waited for, whatever it brings.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            drop(kept);
        }
        Err(Refused { found, fix }) => end("hold", false, json!({"found": found, "fix": fix})),
    }
}
