//! Has vgpu-probe run: the helper program that does what needs a dynamic loader (see its own `lib.rs` for what it prints).
//!
//! It lies in a memory file or a private folder, as the shims do, and the loader is started with it as its argument: so neither needs to be
//! executable itself, which systems with `vm.memfd_noexec` or `noexec` mounts would refuse.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::child::{self, Outcome};
use super::context::Context;
use crate::embedded::{Object, PROBE};
use crate::env::Environment;
use crate::inject::owner::Owner;
use crate::inject::{Injection, Plan, Way};

/// Where the loader is when the program that is looked at does not say it.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

static OBJECT: Object = Object { soname: "vgpu-probe", bytes: PROBE };

/// The probe, in place as long as this is kept.
#[derive(Debug)]
pub struct Probe {
    loader: PathBuf,
    path: PathBuf,
    _place: Injection,
}

impl Probe {
    /// Puts it in place. `loader`: that of the program which is looked at, where one is known.
    pub fn place(loader: Option<&Path>) -> Result<Self, String> {
        let plan = Plan { way: Way::Memory, fixed: false, objects: vec![&OBJECT] };
        let owner = Owner::this().map_err(|error| format!("this process is not in /proc: {error}"))?;
        let place = Injection::carry_out(&plan, &Environment::inherited(), owner)
            .map_err(|error| error.to_string())?;
        let path = place.objects().next().map(|(_, path)| path).unwrap_or_default();
        Ok(Self { loader: loader.unwrap_or(Path::new(LOADER)).to_owned(), path, _place: place })
    }

    /// Runs it in `environment`.
    pub async fn run<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
        environment: &Environment,
        limit: Duration,
    ) -> Result<Outcome, String> {
        let mut command = Command::new(&self.loader);
        command.arg(&self.path).args(words);
        let failed = |error| format!("{} could not be started: {error}", self.loader.display());
        child::run(command, environment, limit).await.map_err(failed)
    }
}

/// Runs the probe with what is known of the program that is looked at; an error is check's own, and no finding.
pub async fn run<S: AsRef<OsStr>>(
    context: &Context,
    words: impl IntoIterator<Item = S>,
    environment: &Environment,
    limit: Duration,
) -> Result<Outcome, String> {
    let program = context.target.as_ref().and_then(|target| target.program.as_ref().ok());
    let elf = program.and_then(|program| crate::program::elf::Elf::read(program.file()?).ok());
    let loader = elf.and_then(|elf| elf.interpreter).map(PathBuf::from).filter(|path| path.is_file());
    Probe::place(loader.as_deref())?.run(words, environment, context.time(limit)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_from_memory_and_says_which_file_a_name_gets() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let probe = Probe::place(None).unwrap();
        let environment = Environment::default();
        let words = ["resolve", "libc.so.6", "libno-such.so.1"];
        let outcome = runtime.block_on(probe.run(words, &environment, Duration::from_mins(1))).unwrap();
        let steps = outcome.steps();
        assert!(steps.get("libc.so.6").unwrap().text("path").ends_with("libc.so.6"), "{outcome:?}");
        let missing = steps.get("libno-such.so.1").unwrap();
        assert!(!missing.ok && missing.text("error").contains("cannot open"), "{outcome:?}");
    }
}
