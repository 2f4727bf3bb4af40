//! What the test bed's command line and its tests share: devices in a process of their own
//! ([`bed`]), the programs of this workspace ([`programs`]), one of them in a state of its choice
//! ([`state`]), backends to load ([`backends`]), language models in guests ([`guest`]), one of them with
//! random weights ([`random_model`]), and what they send ([`traffic`]), virtual machines ([`machine`]),
//! their device as a service ([`unit`](mod@unit)) of a manager ([`manager`]), a VMM without a machine
//! ([`vmm`]) and a guest without shims ([`copies`]), and libraries that do nothing ([`nothing`]).

pub mod backends;
pub mod bed;
pub mod copies;
pub mod guest;
pub mod machine;
pub mod manager;
pub mod nothing;
pub mod programs;
pub mod random_model;
pub mod state;
pub mod traffic;
pub mod unit;
pub mod vmm;

use std::io::Write as _;

/// Prints what a long test is doing to stderr directly, which the test harness does not capture.
pub fn announce(what: &str) {
    // Failures are ignored, since the message is only informative.
    let _ = writeln!(std::io::stderr(), "... {what}");
}
