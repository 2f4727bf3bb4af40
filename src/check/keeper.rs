//! Who keeps the libraries and the probe in place while check needs them: this process; or, where Ollama runs as another user, a
//! child that became that user. Memory files are reached through `/proc/PID/fd`, which is open to processes of the same user alone.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::child;
use super::subject::Become;
use crate::diagnosis::Fix;
use crate::embedded::{OBJECTS, Object, PROBE};
use crate::env::Environment;
use crate::error::Failure;
use crate::inject::owner::Owner;
use crate::inject::{InjectError, Injection, Placed, Plan, Way};

static PROBE_OBJECT: Object = Object { soname: "vgpu-probe", bytes: PROBE };
/// Making nine files takes milliseconds.
const LIMIT: Duration = Duration::from_secs(5);

/// What is in place as long as this is kept.
#[derive(Debug)]
pub struct Kept {
    /// The libraries.
    pub libraries: Placed,
    /// The probe.
    pub probe: PathBuf,
    _by: Keeper,
}

/// Who keeps it.
#[derive(Debug)]
#[expect(dead_code, reason = "both are kept for what happens when they are dropped")]
enum Keeper {
    Ourselves([Injection; 2]),
    /// It takes everything away when its input ends, and ends.
    Another(Box<Child>),
}

/// Why nothing is in place.
#[derive(Debug)]
pub struct Refused {
    /// What was found.
    pub found: String,
    /// What mends it.
    pub fix: Option<Fix>,
}

impl<R: crate::error::LauncherError + 'static> From<R> for Refused {
    fn from(error: R) -> Self {
        let failure = Failure::from(error);
        let fix = failure.finding().and_then(|finding| finding.fix);
        Self { found: failure.sentence(), fix }
    }
}

impl Kept {
    /// Puts them in place for children of this process.
    pub fn here(plan: &Plan, environment: &Environment) -> Result<Self, Refused> {
        let owner = Owner::this().map_err(InjectError::Process)?;
        let libraries = Injection::carry_out(plan, environment, owner)?;
        let probe = Plan { way: Way::Memory, fixed: false, objects: vec![&PROBE_OBJECT] };
        let probe = Injection::carry_out(&probe, environment, owner)?;
        let path = probe.placed().objects.into_iter().next().map(|(_, path)| path).unwrap_or_default();
        Ok(Self { libraries: libraries.placed(), probe: path, _by: Keeper::Ourselves([libraries, probe]) })
    }

    /// Has a child put them in place that becomes `user` first.
    pub async fn by(user: &Become, plan: &Plan, environment: &Environment) -> Result<Self, Refused> {
        let refused = |found: String| Refused { found, fix: None };
        let mut command = child::ourselves(Some(user));
        command.arg("hold");
        if let Some(way) = plan.way.to_possible_value() {
            command.args(["--via", way.get_name()]);
        }
        if plan.fixed {
            command.arg("--fixed");
        }
        command.args(plan.objects.iter().map(|object| object.soname));
        command.env_clear().envs(environment.iter());
        // A terminal's signals are not for it: it has to clear up.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().map_err(|error| refused(error.to_string()))?;
        let Some(stdout) = child.stdout.take() else { return Err(refused("it has no output".into())) };
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(LIMIT, lines.next_line()).await;
        let line = line.ok().and_then(Result::ok).flatten().unwrap_or_default();
        let said: Map<String, Value> = serde_json::from_str(&line).unwrap_or_default();
        let ok = said.get("ok").and_then(Value::as_bool) == Some(true);
        if let Some((libraries, probe)) = placed(&said).filter(|_| ok) {
            return Ok(Self { libraries, probe, _by: Keeper::Another(Box::new(child)) });
        }
        let found = said.get("error").or(said.get("found")).and_then(Value::as_str);
        let found = found.unwrap_or("the process that should keep the libraries ended");
        let fix = said.get("fix").cloned().and_then(|fix| serde_json::from_value(fix).ok());
        Err(Refused { found: format!("as the user {}: {found}", user.user), fix })
    }

    /// What [`Kept::by`] reads.
    pub fn said(&self) -> Value {
        let Placed { way, objects, folder } = &self.libraries;
        let objects: Vec<_> = objects.iter().map(|(soname, path)| json!([soname, path])).collect();
        json!({"way": way, "objects": objects, "folder": folder, "probe": self.probe})
    }
}

/// Reads [`Kept::said`].
fn placed(said: &Map<String, Value>) -> Option<(Placed, PathBuf)> {
    let way = Way::from_str(said.get("way")?.as_str()?, false).ok()?;
    let objects = said.get("objects")?.as_array()?.iter().map(|pair| {
        let soname = pair.get(0)?.as_str()?;
        let object = OBJECTS.iter().find(|object| object.soname == soname)?;
        Some((object.soname, PathBuf::from(pair.get(1)?.as_str()?)))
    });
    let folder = said.get("folder").and_then(Value::as_str).map(PathBuf::from);
    Some((
        Placed { way, objects: objects.collect::<Option<_>>()?, folder },
        said.get("probe")?.as_str()?.into(),
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_said_is_read() {
        for way in [Way::Memory, Way::Folder] {
            let plan = Plan::new(Some(way), false, &BTreeSet::new());
            let kept = Kept::here(&plan, &Environment::inherited()).unwrap();
            let Value::Object(said) = kept.said() else { panic!("an object") };
            assert_eq!(placed(&said), Some((kept.libraries.clone(), kept.probe.clone())));
            assert!(kept.probe.is_file() && kept.libraries.objects.iter().all(|(_, path)| path.is_file()));
        }
        assert_eq!(placed(&Map::new()), None);
    }
}
