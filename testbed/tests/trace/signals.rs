//! Programs that a signal ends, to them or to the `vgpu-run` that waits for them.

use rustix::process::{Pid, Signal, kill_process};
use vgpu_trace_format::RecordKind;

use super::bed::start_standin;

fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

#[test]
fn the_call_that_a_killed_process_was_in_is_named() {
    let mut running = start_standin("stuck");
    let program = running.ready();
    send(program, Signal::KILL);
    let traced = running.finish();
    let head = traced.head();
    assert!(
        head.contains("SIGKILL") && head.contains("ended inside cuDeviceGetCount("),
        "{}",
        traced.summary
    );
    assert!(traced.summary.contains("in flight 1"), "{}", traced.summary);
    assert_eq!(traced.status.code(), Some(128 + 9));
}

#[test]
fn a_signal_to_the_waiting_launcher_is_the_programs_and_has_its_name() {
    for (signal, name) in [
        (Signal::TERM, "SIGTERM"),
        (Signal::HUP, "SIGHUP"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::TERM, "SIGTERM"),
    ] {
        let mut running = start_standin("idle");
        running.ready();
        send(running.launcher.id(), signal);
        let traced = running.finish();
        let head = traced.head();
        assert!(head.starts_with(&format!("the program was ended by {name};")), "{}", traced.summary);
        assert_eq!(traced.status.code(), Some(128 + signal.as_raw()));
    }
}

/// When a program is killed, the summary names the launch for which it was waiting.
#[test]
fn the_launch_that_a_hanging_program_waits_for_is_named() {
    let mut running = start_standin("hang");
    let program = running.ready();
    // Until a wait has gone on for long enough to be written down.
    running.until_written(RecordKind::Stall);
    send(program, Signal::INT);
    let traced = running.finish();
    let head = traced.head();
    assert!(head.contains("SIGINT") && head.contains("ended inside cuMemcpyDtoH_v2("), "{}", traced.summary);
    assert!(head.contains("the host has not carried out the launch of kernel "), "{}", traced.summary);
    assert!(head.contains("endless") && !head.contains("quick"), "{}", traced.summary);
}
