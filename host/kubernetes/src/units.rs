//! Units of the host's systemd. It owns the instances, so that they go on whatever becomes of the plugin,
//! with the restarts, the descriptor store and the confinement of `vgpu-device@.service`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::command::{CommandError, HostCommands};

/// Time for an order that systemd only queues, and for a question.
const SHORT: Duration = Duration::from_secs(10);
/// Time for which a start is waited for. The kubelet gives PreStartContainer 30 s.
const START: Duration = Duration::from_secs(25);
/// Number of last lines of the journal in which a reason is looked for.
const LINES: &str = "20";
/// Start of the line by which the program says why it ends.
const OWN_WORDS: &str = "vgpu-device: ";

/// State of a unit, as far as the plugin tells states apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitState {
    /// It does not run.
    Inactive,
    /// It starts, or waits to be started again after a crash.
    Starting,
    /// It has said that it is ready.
    Active,
    /// It ends.
    Stopping,
    /// systemd has given it up.
    Failed,
}

/// The units of instances.
#[derive(Clone, Debug)]
pub(crate) struct Units {
    commands: HostCommands,
}

impl Units {
    pub(crate) const fn new(commands: HostCommands) -> Self {
        Self { commands }
    }

    /// Has a new process serve an instance, whether one runs or not. Does not wait for it.
    pub(crate) async fn renew(&self, name: &str) -> Result<(), CommandError> {
        self.forget_failures(name).await;
        self.commands.run(&["systemctl", "restart", "--no-block", &unit(name)], SHORT).await.map(drop)
    }

    /// Waits until an instance is ready, which is started if it does not run.
    pub(crate) async fn ready(&self, name: &str) -> Result<(), CommandError> {
        self.forget_failures(name).await;
        self.commands.run(&["systemctl", "start", &unit(name)], START).await.map(drop)
    }

    /// Has an instance end. Does not wait for it.
    pub(crate) async fn stop(&self, name: &str) -> Result<(), CommandError> {
        self.commands.run(&["systemctl", "stop", "--no-block", &unit(name)], SHORT).await.map(drop)
    }

    /// Has systemd forget that it has given an instance up, so that it can be started at once.
    pub(crate) async fn forget_failures(&self, name: &str) {
        // A unit that was never started is not known, which is as good.
        let _ = self.commands.run(&["systemctl", "reset-failed", &unit(name)], SHORT).await;
    }

    /// Returns the states of instances by their names.
    pub(crate) async fn states(&self, names: &[String]) -> Result<BTreeMap<String, UnitState>, CommandError> {
        let units: Vec<String> = names.iter().map(|name| unit(name)).collect();
        let mut words = vec!["systemctl", "show", "--property=Id,ActiveState"];
        words.extend(units.iter().map(String::as_str));
        Ok(parse(&self.commands.run(&words, SHORT).await?))
    }

    /// Returns why an instance has ended or does not start, in its own words.
    pub(crate) async fn reason(&self, name: &str) -> Option<String> {
        let unit = unit(name);
        let words =
            ["journalctl", "--unit", &unit, "--lines", LINES, "--output", "cat", "--no-pager", "--quiet"];
        let text = self.commands.run(&words, SHORT).await.ok()?;
        text.lines().rev().find_map(|line| line.strip_prefix(OWN_WORDS)).map(str::to_owned)
    }
}

/// Returns the unit of an instance.
fn unit(name: &str) -> String {
    format!("vgpu-device@{name}.service")
}

/// Reads what `systemctl show` prints: properties of a unit, an empty line, those of the next one.
fn parse(text: &str) -> BTreeMap<String, UnitState> {
    let mut states = BTreeMap::new();
    for block in text.split("\n\n") {
        let value = |key: &str| block.lines().find_map(|line| line.strip_prefix(key));
        let Some(id) = value("Id=vgpu-device@").and_then(|id| id.strip_suffix(".service")) else { continue };
        let state = match value("ActiveState=") {
            // A reload replaces the program under a VM that goes on.
            Some("active" | "reloading" | "refreshing") => UnitState::Active,
            Some("activating") => UnitState::Starting,
            Some("deactivating") => UnitState::Stopping,
            Some("failed") => UnitState::Failed,
            _ => UnitState::Inactive,
        };
        // systemd writes a name's hyphens as they are given.
        states.insert(id.to_owned(), state);
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_by_unit() {
        let text = "Id=vgpu-device@a-0.service\nActiveState=active\n\n\
                    ActiveState=failed\nId=vgpu-device@b.service\n\n\
                    Id=vgpu-device@c.service\nActiveState=inactive\n\n\
                    Id=other.service\nActiveState=active\n";
        let states = parse(text);
        assert_eq!(states.get("a-0"), Some(&UnitState::Active));
        assert_eq!(states.get("b"), Some(&UnitState::Failed));
        assert_eq!(states.get("c"), Some(&UnitState::Inactive));
        assert_eq!(states.len(), 3);
    }
}
