//! Runs the suite against a libcuda: `vgpu-conformance /usr/lib/x86_64-linux-gnu/libcuda.so.1 [FILTER]
//! [OPTION]...`.
//!
//! Filter and options are those of Rust's test harness. Cases that do not apply to the driver or its devices
//! are shown as ignored, with the reason.

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use vgpu_conformance::{Case, Outcome, calls};

/// Set for the process of a case: the case's name.
const CASE: &str = "VGPU_CONFORMANCE_CASE";

fn main() -> ExitCode {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let Some(libcuda) = words.next().filter(|word| !word.starts_with('-')) else {
        eprintln!("usage: {program} LIBCUDA [FILTER] [OPTION]...");
        return ExitCode::from(2);
    };
    if let Ok(name) = std::env::var(CASE) {
        let case = vgpu_conformance::find(&name).expect("a case of the suite");
        if let Err(error) = calls::load(&libcuda) {
            eprintln!("load the driver: {error}");
            return ExitCode::FAILURE;
        }
        (case.run)();
        return ExitCode::SUCCESS;
    }
    let trial = |case: &Case| {
        let (libcuda, name) = (libcuda.clone(), case.name);
        Trial::ignorable_test(name, move || {
            let mut command = Command::new(std::env::current_exe().map_err(Failed::from)?);
            match vgpu_conformance::run(command.arg(libcuda).env(CASE, name)) {
                Outcome::Passed => Ok(Completion::Completed),
                Outcome::NotApplicable(reason) => Ok(Completion::ignored_with(reason.trim())),
                Outcome::Failed(text) => Err(text.into()),
            }
        })
    };
    let arguments = Arguments::from_iter(std::iter::once(program).chain(words));
    libtest_mimic::run(&arguments, vgpu_conformance::all().map(trial).collect()).exit_code()
}
