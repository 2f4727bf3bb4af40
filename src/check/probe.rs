//! Runs vgpu-probe, the helper program for checks that need a dynamic loader. [`vgpu_probe_steps`] describes
//! its output.
//!
//! The probe is in a memory file or a private directory, as the shims are, and is passed to the loader as an
//! argument. Therefore it need not be executable itself, which systems with `vm.memfd_noexec` or `noexec`
//! mounts would refuse.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::child::{self, ChildOutcome};
use super::context::CheckContext;
use crate::env::Environment;
use crate::waits;

/// Path of the loader if the examined program does not name one.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Runs the probe as the same user as Ollama, with the loader of the examined program. An error is a failure
/// of check itself rather than a finding.
pub async fn run_probe<S: AsRef<OsStr>>(
    context: &CheckContext,
    words: impl IntoIterator<Item = S>,
    environment: &Environment,
    limit: Duration,
) -> Result<ChildOutcome, String> {
    let staged = context.staged.as_ref().ok_or("it is not in place")?;
    let program = context.target.as_ref().and_then(|target| target.program.as_ref().ok());
    let elf = program.and_then(|program| crate::program::elf::Elf::read(program.file()?).ok());
    let loader = elf.and_then(|elf| elf.interpreter).map(PathBuf::from).filter(|path| path.is_file());
    let loader = loader.as_deref().unwrap_or(Path::new(LOADER));
    let mut command = context.program(loader);
    let words: Vec<S> = words.into_iter().collect();
    let said: Vec<_> = words.iter().take(2).map(|word| word.as_ref().to_string_lossy()).collect();
    command.arg(&staged.probe).args(&words);
    let failed = |error| format!("{} could not be started: {error}", loader.display());
    let _waits = waits::on(format!("vgpu-probe {}", said.join(" ")));
    child::run_unnamed(command, environment, context.time(limit)).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use vgpu_probe_steps::{Fault, Resolved};

    use super::*;
    use crate::check::staging::StagedShims;
    use crate::check::steps::Steps;
    use crate::cli::{CheckOptions, Options};
    use crate::inject::DeliveryPlan;

    #[test]
    fn it_runs_from_memory_and_says_which_file_a_name_gets() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let minute = Duration::from_mins(1);
        let options = CheckOptions { timeout: Some(minute), ..CheckOptions::default() };
        let mut context = CheckContext::new(Options::default(), options);
        let plan = DeliveryPlan::new(None, false, &BTreeSet::new());
        context.staged = Some(StagedShims::here(&plan, &Environment::inherited()).unwrap());
        let words = ["resolve", "libc.so.6", "libno-such.so.1"];
        let outcome = runtime.block_on(run_probe(&context, words, &Environment::default(), minute)).unwrap();
        let steps = Steps::read(&outcome.stdout);
        assert!(
            steps.get("libc.so.6").unwrap().said::<Resolved>().unwrap().path.ends_with("libc.so.6"),
            "{outcome:?}"
        );
        let missing = steps.get("libno-such.so.1").unwrap();
        assert!(!missing.ok && missing.said::<Fault>().unwrap().error.contains("cannot open"), "{outcome:?}");
    }
}
