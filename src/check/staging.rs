//! Makes the libraries and the probe available as long as `check` needs them. This process holds them or, if
//! Ollama runs as another user, a child that became that user, because only processes of the same user can
//! open memory files through `/proc/PID/fd`.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use clap::ValueEnum;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use vgpu_findings::busy;

use super::child;
use super::identity::Become;
use super::messages::{Hold, StepFailure};
use super::steps::{StepReport, Steps};
use crate::diagnosis::cause::shims::HANDOVER_REFUSED;
use crate::diagnosis::{Finding, LinkId, catalogue};
use crate::embedded::{EmbeddedObject, OBJECTS, PROBE};
use crate::env::Environment;
use crate::error::{self, LauncherError};
use crate::inject::owner::Owner;
use crate::inject::{DeliveryMode, DeliveryPlan, InjectError, Injection, Placed};

static PROBE_OBJECT: EmbeddedObject = EmbeddedObject { soname: "vgpu-probe", bytes: PROBE };
/// Time limit for the child that makes the files, which takes milliseconds.
const LIMIT: Duration = Duration::from_secs(5);

/// The delivered libraries and the probe. Dropping this removes them.
#[derive(Debug)]
pub struct StagedShims {
    /// Paths of the shim libraries.
    pub libraries: Placed,
    /// Path of the probe.
    pub probe: PathBuf,
    _holder: Holder,
}

/// Process that holds the files.
#[derive(Debug)]
#[expect(dead_code, reason = "both are kept for what happens when they are dropped")]
enum Holder {
    Ourselves([Injection; 2]),
    /// A child holds them. It removes everything and exits when its input ends.
    Another(Box<Child>),
}

/// Converts an error of the launcher to a finding of the link `shims`.
fn refused(error: impl LauncherError + 'static) -> Box<Finding> {
    let failure = error::Failure::from(error);
    let finding = failure.finding();
    let cause = finding.as_ref().and_then(|finding| finding.cause);
    let cause = cause.filter(|cause| cause.link() == LinkId::Shims).unwrap_or(HANDOVER_REFUSED);
    let fix = finding.and_then(|finding| finding.fix);
    Box::new(Finding { fix, ..Finding::fail(cause, failure.sentence()) })
}

impl StagedShims {
    /// Makes the files available to children of this process.
    pub fn here(plan: &DeliveryPlan, environment: &Environment) -> Result<Self, Box<Finding>> {
        let owner = Owner::this().map_err(|error| refused(InjectError::Process(error)))?;
        let libraries = Injection::carry_out(plan, environment, owner).map_err(refused)?;
        let probe = DeliveryPlan { mode: DeliveryMode::Memory, fixed: false, objects: vec![&PROBE_OBJECT] };
        let probe = Injection::carry_out(&probe, environment, owner).map_err(refused)?;
        let path = probe.placed().objects.into_iter().next().map(|(_, path)| path).unwrap_or_default();
        Ok(Self {
            libraries: libraries.placed(),
            probe: path,
            _holder: Holder::Ourselves([libraries, probe]),
        })
    }

    /// Starts a child that becomes `user` and makes the files available.
    pub async fn by(
        user: &Become,
        plan: &DeliveryPlan,
        environment: &Environment,
    ) -> Result<Self, Box<Finding>> {
        let refused =
            |found: String| Box::new(Finding { fix: None, ..Finding::fail(HANDOVER_REFUSED, found) });
        let mut command = child::ourselves(Some(user));
        command.arg("hold");
        if let Some(mode) = plan.mode.to_possible_value() {
            command.args(["--via", mode.get_name()]);
        }
        if plan.fixed {
            command.arg("--fixed");
        }
        command.args(plan.objects.iter().map(|object| object.soname));
        command.env_clear().envs(environment.iter());
        // A terminal's signals are not for it: it has to clear up.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        child::lead_group(&mut command);
        let mut child = command.spawn().map_err(|error| refused(error.to_string()))?;
        let Some(stdout) = child.stdout.take() else { return Err(refused("it has no output".into())) };
        let mut lines = BufReader::new(stdout).lines();
        let Some(line) = busy::within(LIMIT, lines.next_line()).await else {
            let found =
                format!("the process that should keep the libraries did not answer in {} s", LIMIT.as_secs());
            return Err(refused(format!("as the user {}: {found}", user.user)));
        };
        let line = line.ok().flatten().unwrap_or_default();
        let steps = Steps::read(&line);
        if let Some((libraries, probe)) = steps.succeeded().and_then(placed) {
            return Ok(Self { libraries, probe, _holder: Holder::Another(Box::new(child)) });
        }
        let failure: Option<StepFailure> = steps.failed().and_then(StepReport::said);
        let StepFailure { found, error, fix, cause, .. } = failure.unwrap_or_else(|| StepFailure {
            found: "the process that should keep the libraries ended".into(),
            ..StepFailure::default()
        });
        let found = if error.is_empty() { found } else { error };
        // It says a cause of the link shims alone.
        let cause =
            if cause.is_empty() { HANDOVER_REFUSED } else { catalogue::find_cause(LinkId::Shims, &cause) };
        let found = format!("as the user {}: {found}", user.user);
        Err(Box::new(Finding { fix, ..Finding::fail(cause, found) }))
    }

    /// Describes the staged files for [`StagedShims::by`].
    pub fn message(&self) -> Hold {
        let Placed { mode, objects, folder } = &self.libraries;
        Hold {
            way: Some(*mode),
            objects: objects.iter().map(|(soname, path)| ((*soname).to_owned(), path.clone())).collect(),
            folder: folder.clone(),
            probe: self.probe.clone(),
        }
    }
}

/// Parses [`StagedShims::message`]. Returns `None` if it names a library that this program does not embed.
fn placed(message: Hold) -> Option<(Placed, PathBuf)> {
    let objects = message.objects.into_iter().map(|(soname, path)| {
        let object = OBJECTS.iter().find(|object| object.soname == soname)?;
        Some((object.soname, path))
    });
    let objects = objects.collect::<Option<_>>()?;
    Some((Placed { mode: message.way?, objects, folder: message.folder }, message.probe))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_said_is_read() {
        for mode in [DeliveryMode::Memory, DeliveryMode::Folder] {
            let plan = DeliveryPlan::new(Some(mode), false, &BTreeSet::new());
            let kept = StagedShims::here(&plan, &Environment::inherited()).unwrap();
            let line = serde_json::to_string(&kept.message()).unwrap();
            let read = placed(serde_json::from_str(&line).unwrap());
            assert_eq!(read, Some((kept.libraries.clone(), kept.probe.clone())));
            assert!(kept.probe.is_file() && kept.libraries.objects.iter().all(|(_, path)| path.is_file()));
        }
        assert_eq!(placed(Hold::default()), None);
    }
}
