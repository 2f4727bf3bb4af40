//! State of a walk: the options, and the facts that earlier links gathered for later ones.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::process::Command;
use vgpu_transport::{PciFunction, sysfs_root};

use super::child;
use super::facts::{
    DeviceReport, ExaminedBackend, OpenedFunction, ResolvedLibrary, RunningServer, TargetProgram,
};
use super::identity::Become;
use super::messages::RefusedCalls;
use super::staging::StagedShims;
use super::subject::Subject;
use super::unit::{self, Unit, UnitError};
use crate::cli::{CheckOptions, Operand, Options, OwnWords};
use crate::env::Environment;
use crate::error::Failure;
use crate::launch::user::User;
use crate::ollama::variant::Variant;
use crate::program::Program;
use crate::waits;

/// State that the links of a walk share.
#[derive(Debug)]
pub struct CheckContext {
    /// Options that all commands share, such as `--user` and `--via`.
    pub launch: Options,
    /// Options of `check`.
    pub options: CheckOptions,
    /// Environment of PROGRAM: the inherited one, or with `--service` what the unit sets. It names the
    /// libraries once they are delivered. Children that represent PROGRAM are started with exactly this
    /// environment.
    pub environment: Environment,
    /// Directory that is used as `/sys`.
    pub root: PathBuf,
    /// Time at which the whole walk must have ended.
    pub deadline: Instant,
    /// Links that could not be examined, for lack of time or because check itself failed.
    pub incomplete: Vec<String>,
    /// Names of the operations that were pending when the time of a link ran out.
    pub unanswered: Vec<String>,

    /// Unit that `--service` names, once it has been read.
    pub unit: Option<Unit>,
    /// Reason why [`CheckContext::unit`] is missing although `--service` was given.
    pub unit_error: Option<UnitError>,
    /// User who opens the device, once [`CheckContext::subject`] has determined it.
    pub found_subject: Option<Subject>,

    /// Functions of this guest, from link `pci`.
    pub functions: Vec<PciFunction>,
    /// Results of the worker for each function, from link `device`.
    pub opened: Vec<OpenedFunction>,
    /// Facts about the usable functions that CUDA_VISIBLE_DEVICES does not hide, in its order. Set by link
    /// `device` and extended by later ones.
    pub devices: Vec<DeviceReport>,
    /// Program that is to get the GPU, once [`CheckContext::target`] has found it.
    pub target: Option<TargetProgram>,
    /// Script that becomes [`CheckContext::target`] when it is started, from link `loader`.
    pub script: Option<PathBuf>,
    /// Says of a script that it started no Ollama, and how it ended, from link `loader`.
    pub followed: Option<String>,
    /// Whether [`CheckContext::runs_as`] is final and the environment is that user's. Set by link `shims`, or
    /// by the first later link that runs.
    pub user_chosen: bool,
    /// User that children become which represent Ollama. `None` if they run as the caller.
    pub runs_as: Option<Become>,
    /// Reason why these children run as the caller although Ollama does not.
    pub reservation: Option<String>,
    /// Copy of [`CheckContext::environment`] from before it named the libraries, for starting PROGRAM's
    /// launcher. Set by link `shims`.
    pub plain: Option<Environment>,
    /// Libraries and probe that are available to these children. Set by link `shims`.
    pub staged: Option<StagedShims>,
    /// File that the loader selects for each name, from link `loader`.
    pub libraries: Vec<ResolvedLibrary>,
    /// Versions of all components that have one, by component.
    pub versions: BTreeMap<&'static str, String>,
    /// Backends that Ollama would try, in its order, from link `backend`.
    pub backends: Vec<ExaminedBackend>,
    /// Backend that started, with its CUDA major version, from link `init`.
    pub started: Option<(Variant, Option<u32>)>,
    /// Server that already runs at the address in OLLAMA_HOST, if there is one. Set by link `service`.
    pub running: Option<RunningServer>,
    /// Calls that a filter refuses where the server was started, from link `truth`.
    pub calls: RefusedCalls,
    /// Whether a running Ollama with vgpu-run's libraries has the address at which another server would
    /// listen. Set by link `truth`.
    pub held: bool,
}

impl CheckContext {
    /// Creates the state for the start of a walk.
    pub fn new(launch: Options, options: CheckOptions) -> Self {
        let deadline = Instant::now() + options.limit();
        Self {
            launch,
            options,
            environment: Environment::inherited(),
            root: sysfs_root(),
            deadline,
            incomplete: Vec::new(),
            unanswered: Vec::new(),
            unit: None,
            unit_error: None,
            found_subject: None,
            functions: Vec::new(),
            opened: Vec::new(),
            devices: Vec::new(),
            target: None,
            script: None,
            followed: None,
            user_chosen: false,
            runs_as: None,
            reservation: None,
            plain: None,
            staged: None,
            libraries: Vec::new(),
            versions: BTreeMap::from([("vgpu-run", env!("CARGO_PKG_VERSION").to_owned())]),
            backends: Vec::new(),
            started: None,
            running: None,
            calls: RefusedCalls::default(),
            held: false,
        }
    }

    /// Reads the unit that `--service` names. From then on the environment is the service's.
    pub async fn load_unit(&mut self) {
        let Some(name) = self.options.service.clone() else { return };
        match unit::find(&name, &self.environment).await {
            Ok(unit) => {
                self.environment = service_environment(&self.environment, &unit);
                self.unit = Some(unit);
            }
            Err(error) => self.unit_error = Some(error),
        }
    }

    /// Returns the user who opens the device, which the first call determines.
    pub fn subject(&mut self) -> Result<&Subject, Failure> {
        let subject = match self.found_subject.take() {
            Some(subject) => subject,
            None => Subject::find(self.unit.as_ref(), &self.launch)?,
        };
        Ok(self.found_subject.insert(subject))
    }

    /// Creates a command that represents Ollama or one of its children, run as the same user as Ollama.
    pub fn program(&self, program: &Path) -> Command {
        let Some(user) = &self.runs_as else { return Command::new(program) };
        let mut command = child::ourselves(Some(user));
        command.args(["run", "--"]).arg(program);
        command
    }

    /// Adds the variables of `user` to the environment, as systemd does, or the launcher for `--user`.
    pub fn dress(&mut self, user: &User) {
        user.dress(&mut self.environment);
        let given = self.found_subject.as_ref().is_some_and(|subject| subject.given_to.is_some());
        // The unit's variables take precedence, unless the launcher became the user afterwards.
        for (name, value) in self.unit.iter().filter(|_| !given).flat_map(Unit::environment) {
            self.environment.set(&name, value);
        }
    }

    /// Returns the time for a step: `wanted`, or the remaining time of the walk if that is less.
    pub fn time(&self, wanted: Duration) -> Duration {
        wanted.min(self.deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns the program that is to get the GPU: PROGRAM or `--ollama`, otherwise the service's, otherwise
    /// `ollama` on PATH. The first call searches for it.
    pub fn target(&mut self) -> &TargetProgram {
        let target = match self.target.take() {
            Some(target) => target,
            None => self.find_target(),
        };
        self.target.insert(target)
    }

    fn find_target(&self) -> TargetProgram {
        let _waits = waits::on("the files of the program");
        let served = self.unit.as_ref().and_then(|unit| program_of(&unit.command()));
        let named = self.options.program.clone().or_else(|| self.options.ollama.clone());
        let name = named.or(served).unwrap_or_else(|| "ollama".into());
        let program = Program::find(name.as_os_str(), self.environment.get(crate::env::PATH));
        let ollama = program.as_ref().ok().and_then(crate::ollama::recognise);
        TargetProgram { program, ollama }
    }
}

/// Variables that a service has and whose values are taken from the caller. A service does not see other
/// variables of the caller's shell.
const INHERITED: [&str; 6] = ["PATH", "LANG", "HOME", "USER", "LOGNAME", "SHELL"];

/// Returns the environment of a service: systemd's own variables, our own, and what the unit sets.
fn service_environment(caller: &Environment, unit: &Unit) -> Environment {
    let kept = |name: &str| INHERITED.contains(&name) || name.starts_with("VGPU_");
    let mut environment: Environment =
        caller.iter().filter(|(name, _)| name.to_str().is_some_and(kept)).collect();
    for (name, value) in unit.environment() {
        environment.set(&name, value);
    }
    environment
}

/// Returns the program in a service's command: the word after vgpu-run and its options, or otherwise the
/// command itself.
fn program_of(command: &[String]) -> Option<PathBuf> {
    let (first, rest) = command.split_first()?;
    if !first.ends_with("vgpu-run") {
        return Some(first.into());
    }
    OwnWords::read(rest.iter().map(OsStr::new)).operand.map(|operand| match operand {
        Operand::Word(program) | Operand::Program(program) => program.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_behind_the_launcher() {
        let program = |command: &str| {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            program_of(&words).map(|path| path.display().to_string())
        };
        assert_eq!(program("/usr/local/bin/ollama serve").unwrap(), "/usr/local/bin/ollama");
        assert_eq!(program("/usr/bin/vgpu-run --user x -v ollama serve").unwrap(), "ollama");
        assert_eq!(program("/usr/bin/vgpu-run --allow-cpu -- /opt/ollama serve").unwrap(), "/opt/ollama");
        assert_eq!(program("/usr/bin/vgpu-run --user"), None);
    }

    #[test]
    fn a_service_does_not_see_what_the_shell_exports() {
        let caller = Environment::from_iter([
            ("PATH", "/home/x/bin"),
            ("CUDA_VISIBLE_DEVICES", "-1"),
            ("VGPU_SYSFS", "/bus"),
        ]);
        let unit = Unit::with(&[("Environment", "PATH=/usr/bin OLLAMA_HOST=:1")]);
        let environment = service_environment(&caller, &unit);
        assert_eq!(
            environment,
            Environment::from_iter([("PATH", "/usr/bin"), ("VGPU_SYSFS", "/bus"), ("OLLAMA_HOST", ":1")])
        );
    }
}
