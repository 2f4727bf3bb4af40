//! Helpers of many tests: start the launcher on a device's bus, and read the report of a test bed command.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use vgpu_testbed::programs;

/// Returns the launcher's command for the bus at `sysfs`, without `CUDA_VISIBLE_DEVICES`.
pub fn launcher(sysfs: &Path) -> Command {
    let mut command = Command::new(programs::launcher().unwrap());
    command.env("VGPU_SYSFS", sysfs).env_remove("CUDA_VISIBLE_DEVICES").stdin(Stdio::null());
    command
}

/// Returns a test bed command that starts its own devices.
pub fn testbed(arguments: &[&str]) -> Command {
    let mut command = Command::new(programs::testbed().unwrap());
    command.args(arguments).env_remove("VGPU_SYSFS").stdin(Stdio::null());
    command
}

/// Runs a command, and returns the JSON that it printed and whether it succeeded.
#[track_caller]
pub fn report_of(command: &mut Command) -> (Value, bool) {
    let output = command.output().unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{command:?}: {error}: {}", errors(&output)));
    (report, output.status.success())
}

/// Runs a command, which must succeed, and returns the JSON that it printed.
#[track_caller]
pub fn good_report_of(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}: {}", output.status, errors(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns what a command printed on stderr.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the lines by which a C program reports failed checks.
pub fn failed_checks(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter(|line| line.starts_with("not ok")).map(str::to_owned).collect()
}
