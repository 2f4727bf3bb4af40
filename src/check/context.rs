//! The state of a walk: the options, and the facts that earlier links gathered for later ones.

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

/// The state of a walk.
#[derive(Debug)]
pub struct CheckContext {
    /// The options that hold for all commands: `--user`, `--via`.
    pub launch: Options,
    /// The options of `check`.
    pub options: CheckOptions,
    /// The environment of PROGRAM: inherited, or with `--service` what the unit sets. Once the libraries are
    /// in place it names them. Children that stand for PROGRAM are started with exactly this.
    pub environment: Environment,
    /// The directory that stands for `/sys`.
    pub root: PathBuf,
    /// When the whole walk must have ended.
    pub deadline: Instant,
    /// Links that could not be examined, for lack of time or because check itself failed.
    pub incomplete: Vec<String>,
    /// Names of what was waited for when the time of a link ran out.
    pub unanswered: Vec<String>,

    /// The unit that `--service` names.
    pub unit: Option<Unit>,
    /// Reason for which [`CheckContext::unit`] is missing although it was asked for.
    pub unit_error: Option<UnitError>,
    /// The user who opens the device, once [`CheckContext::subject`] has found it.
    pub found_subject: Option<Subject>,

    /// Link `pci`: the functions that are there.
    pub functions: Vec<PciFunction>,
    /// Link `device`: what a worker found at each function.
    pub opened: Vec<OpenedFunction>,
    /// Link `device` and those after it: what is known of the usable functions that CUDA_VISIBLE_DEVICES does
    /// not hide, in their order.
    pub devices: Vec<DeviceReport>,
    /// The program that is to get the GPU, once [`CheckContext::target`] has found it.
    pub target: Option<TargetProgram>,
    /// Link `loader`: the script that becomes [`CheckContext::target`] when it is started.
    pub script: Option<PathBuf>,
    /// Link `shims`, or the first one after it that is reached: whether [`CheckContext::runs_as`] has been found
    /// out, and the environment made that user's.
    pub user_chosen: bool,
    /// The user that children which stand for Ollama become. None: they run as the caller.
    pub runs_as: Option<Become>,
    /// Reason for which they run as the caller although Ollama does not.
    pub reservation: Option<String>,
    /// Link `shims`: what [`CheckContext::environment`] was before it named the libraries: what PROGRAM's launcher
    /// is started with.
    pub plain: Option<Environment>,
    /// Link `shims`: the libraries and the probe, in place for these children.
    pub staged: Option<StagedShims>,
    /// Link `loader`: the file that is loaded for each name.
    pub libraries: Vec<ResolvedLibrary>,
    /// Versions of everything that has one, by name.
    pub versions: BTreeMap<&'static str, String>,
    /// Link `backend`: the backends that Ollama would try, in its order.
    pub backends: Vec<ExaminedBackend>,
    /// Link `init`: the backend that started, with its CUDA major.
    pub started: Option<(Variant, Option<u32>)>,
    /// Link `service`: the server that runs already, if one answers where OLLAMA_HOST says.
    pub running: Option<RunningServer>,
}

impl CheckContext {
    /// The state at the beginning.
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
        }
    }

    /// Finds the unit that `--service` names. From then on the environment is the service's.
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

    /// The user who opens the device.
    pub fn subject(&mut self) -> Result<&Subject, Failure> {
        let subject = match self.found_subject.take() {
            Some(subject) => subject,
            None => Subject::find(self.unit.as_ref(), &self.launch)?,
        };
        Ok(self.found_subject.insert(subject))
    }

    /// A command that stands for Ollama, or for what it starts. It runs as the same user as Ollama.
    pub fn program(&self, program: &Path) -> Command {
        let Some(user) = &self.runs_as else { return Command::new(program) };
        let mut command = child::ourselves(Some(user));
        command.args(["run", "--"]).arg(program);
        command
    }

    /// Gives the environment the variables of `user`, as systemd does, or the launcher for `--user`.
    pub fn dress(&mut self, user: &User) {
        user.dress(&mut self.environment);
        let given = self.found_subject.as_ref().is_some_and(|subject| subject.given_to.is_some());
        // What the unit sets counts for more, unless the launcher became the user after that.
        for (name, value) in self.unit.iter().filter(|_| !given).flat_map(Unit::environment) {
            self.environment.set(&name, value);
        }
    }

    /// The time that is left for a step, at most `wanted`.
    pub fn time(&self, wanted: Duration) -> Duration {
        wanted.min(self.deadline.saturating_duration_since(Instant::now()))
    }

    /// The program that is to get the GPU: PROGRAM or `--ollama`, otherwise the service's, otherwise `ollama`
    /// on PATH. It is searched for once.
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

/// Variables of the caller that a service has too. It does not see what the caller's shell exports.
const INHERITED: [&str; 6] = ["PATH", "LANG", "HOME", "USER", "LOGNAME", "SHELL"];

/// The environment of a service: systemd's own variables, our own, and what the unit sets.
fn service_environment(caller: &Environment, unit: &Unit) -> Environment {
    let kept = |name: &str| INHERITED.contains(&name) || name.starts_with("VGPU_");
    let mut environment: Environment =
        caller.iter().filter(|(name, _)| name.to_str().is_some_and(kept)).collect();
    for (name, value) in unit.environment() {
        environment.set(&name, value);
    }
    environment
}

/// The program of a service's command: what follows vgpu-run and its options, or the command itself.
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
