//! `vgpu-testbed bench transport`: what a round trip, a submission and a byte cost through CUDA's driver API,
//! and how many exits of a virtual machine a token takes: for both versions of the contract, on the simulated
//! bus and in booted guests, as root and as a user.

mod guest;
mod options;
mod simulated;

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

pub use options::TransportArgs;

use options::Bus;

/// Explanation of exits for the reader of the figures.
const EXITS: &str = "accesses to the device's registers, and to the data window of version 1, as the device model counts them, from the \
                     third token on, over the tokens that followed: each is an exit of the virtual machine. On the simulated bus none is, \
                     and the same count is what would be. With version 2 the window and guest pages are mapped and cost none; what is left \
                     is looks after the device each 0.4 s and doorbells, which a guest rings when it finds the host asleep: the more, the \
                     slower the guest is against the host, as emulated ones are. With version 1 looks at a call under way are included, which are \
                     the more the longer the host takes";
/// Explanation of what guests with an emulated processor cannot show.
const EMULATED: &str = "the guest's processor is emulated: memory types of mappings have no effect there, so neither what write-combining \
                        gains nor what reads of a BAR cost where a hypervisor honours them is in these figures; an access costs a trip \
                        to another process";

/// Measures each bus and prints the rows.
pub fn run_transport(arguments: &TransportArgs) -> Result<ExitCode> {
    // Guests come first, so that a failed boot is reported at once.
    let guests = if arguments.only == Some(Bus::Sim) { Vec::new() } else { guest::rows(arguments)? };
    let mut answers = if arguments.only == Some(Bus::Vm) { Vec::new() } else { simulated::rows(arguments)? };
    answers.extend(guests);
    if arguments.json {
        let notes = json!({ "exits": EXITS, "guests": EMULATED });
        println!("{:#}", json!({ "executor": arguments.executor, "notes": notes, "ways": answers }));
        return Ok(ExitCode::SUCCESS);
    }
    for answer in &answers {
        println!("{}", line(answer));
    }
    println!("exits: {EXITS}");
    println!("guests: {EMULATED}");
    Ok(ExitCode::SUCCESS)
}

fn line(answer: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let micro = |value: &Value| number(value) / 1e3;
    let exits = match answer["exits_per_token"].as_f64() {
        Some(exits) => format!("{exits:.1} exits a token"),
        None => format!("exits a token: {}", answer["exits_missing"].as_str().unwrap_or("none counted")),
    };
    let reading = answer["window"].as_str().map(|text| format!("\n    {text}")).unwrap_or_default();
    format!(
        "{:22} round trip {:8.2} us (99 %: {:8.2}), submit {:8.2} us (99 %: {:8.2}), {:9.0} done/s, to device {:8.4} GB/s, from it {:8.4} GB/s, {exits}{reading}",
        answer["way"].as_str().unwrap_or_default(),
        micro(&answer["round_trip_ns"]["p50"]),
        micro(&answer["round_trip_ns"]["p99"]),
        micro(&answer["submit_ns"]["p50"]),
        micro(&answer["submit_ns"]["p99"]),
        number(&answer["submissions_per_second"]),
        number(&answer["to_device_gb_s"]),
        number(&answer["from_device_gb_s"]),
    )
}
