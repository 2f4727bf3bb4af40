//! Starts the server through the launcher, as PROGRAM would be started, under a worker that ends it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use nix::unistd::Uid;
use tokio::process::Command;

use super::transient;
use crate::check::child;
use crate::check::context::CheckContext;
use crate::cli::OwnWords;
use crate::env::Environment;

/// Returns the worker's command and environment, or the reason why it cannot be started.
pub fn command(context: &mut CheckContext) -> Result<(Command, Environment), String> {
    let program = program(context)?;
    let environment = context.plain.as_ref().unwrap_or(&context.environment).clone();
    let Some(unit) = &context.unit else {
        let via = context.launch.via.and_then(|way| way.to_possible_value());
        let via = via.map(|way| way.get_name().into());
        let mut command = child::ourselves(context.runs_as.as_ref());
        command.args(["serve", "--"]).args(launch("/proc/self/exe".into(), via, program));
        return Ok((command, environment));
    };
    if !Uid::effective().is_root() {
        return Err(format!("only root can start what {} would start", unit.name));
    }
    // Another process starts it, in which /proc/self is a different file.
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let words = unit.command();
    let (launcher, via) = launcher(&words).unwrap_or_else(|| (own.clone().into(), None));
    // systemd makes the worker the unit's user. vgpu-run's own user comes after that.
    let given = context.found_subject.as_ref().is_some_and(|subject| subject.given_to.is_some());
    let other = context.runs_as.as_ref().filter(|_| given);
    let worker = child::ourselves(other);
    let mut supervised: Vec<OsString> = vec![own.into()];
    supervised.extend(worker.as_std().get_args().map(OsStr::to_owned));
    supervised.extend(["serve".into(), "--".into()]);
    supervised.extend(launch(launcher, via, program));
    let mut command = Command::new("systemd-run");
    command.args(transient::arguments(unit, &environment, Path::new("/"))).arg("--").args(supervised);
    Ok((command, Environment::inherited()))
}

/// Returns the path of PROGRAM, or of the script that becomes it.
fn program(context: &mut CheckContext) -> Result<PathBuf, String> {
    if let Some(script) = &context.script {
        return Ok(script.clone());
    }
    match &context.target().program {
        Ok(program) => Ok(program.path.clone()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the command line `vgpu-run [--via WAY] -- PROGRAM serve`.
fn launch(launcher: OsString, via: Option<OsString>, program: PathBuf) -> Vec<OsString> {
    let mut words = vec![launcher];
    if let Some(via) = via {
        words.extend(["--via".into(), via]);
    }
    words.extend(["--".into(), program.into(), "serve".into()]);
    words
}

/// Returns the launcher in a unit's command, and its `--via`. Returns `None` if the unit starts its program
/// without a launcher.
fn launcher(words: &[String]) -> Option<(OsString, Option<OsString>)> {
    let (first, rest) = words.split_first()?;
    let own = OwnWords::read(rest.iter().map(OsStr::new));
    first.ends_with("vgpu-run").then(|| (first.into(), own.via.map(OsStr::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_gets_what_it_would_get() {
        let words = |via: Option<&str>| launch("/v".into(), via.map(Into::into), "/usr/bin/ollama".into());
        assert_eq!(words(None), ["/v", "--", "/usr/bin/ollama", "serve"]);
        assert_eq!(words(Some("folder")), ["/v", "--via", "folder", "--", "/usr/bin/ollama", "serve"]);
    }

    #[test]
    fn the_launcher_of_a_unit() {
        let of = |command: &str| launcher(&command.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("/usr/bin/ollama serve"), None);
        assert_eq!(
            of("/usr/bin/vgpu-run -v -- /usr/bin/ollama serve"),
            Some(("/usr/bin/vgpu-run".into(), None))
        );
        let folder = of("/opt/vgpu-run --user ollama --via folder ollama serve");
        assert_eq!(folder, Some(("/opt/vgpu-run".into(), Some("folder".into()))));
    }
}
