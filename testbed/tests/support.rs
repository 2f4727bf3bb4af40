//! What many tests do: start the launcher on a device's bus, and read what a command of the test bed reports.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use vgpu_testbed::programs;

/// Returns the launcher on the bus at `sysfs`, with no device hidden from what it starts.
pub fn launcher(sysfs: &Path) -> Command {
    let mut command = Command::new(programs::launcher().unwrap());
    command.env("VGPU_SYSFS", sysfs).env_remove("CUDA_VISIBLE_DEVICES").stdin(Stdio::null());
    command
}

/// Returns the command line of the test bed, which starts devices of its own.
pub fn testbed(arguments: &[&str]) -> Command {
    let mut command = Command::new(programs::testbed().unwrap());
    command.args(arguments).env_remove("VGPU_SYSFS").stdin(Stdio::null());
    command
}

/// What a command printed as JSON, and whether it succeeded.
#[track_caller]
pub fn report_of(command: &mut Command) -> (Value, bool) {
    let output = command.output().unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{command:?}: {error}: {}", errors(&output)));
    (report, output.status.success())
}

/// What a command printed as JSON. It must succeed.
#[track_caller]
pub fn good_report_of(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}: {}", output.status, errors(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a command printed on stderr.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the lines of a C program by which it says that a check failed.
pub fn failed_checks(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter(|line| line.starts_with("not ok")).map(str::to_owned).collect()
}
