//! An instance of the unit that a domain owns: the settings that its metadata adds, and the start and the stop by
//! systemctl.
//!
//! The settings lie in the unit's runtime directory, which systemd removes when the unit stops. Beside them lies the
//! domain's UUID: what another domain or an operator has started is neither taken nor stopped.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::programs::{self, ProgramError};

/// Maximum time of a start. A device that measures what a context costs takes a minute.
const START_MOST: Duration = Duration::from_mins(2);
/// Maximum time of a stop; systemd kills a unit after 90 s.
const STOP_MOST: Duration = Duration::from_secs(100);
/// Maximum time of a question.
const ASK_MOST: Duration = Duration::from_secs(20);
/// Name of the file with the settings, which the unit reads.
const SETTINGS: &str = "libvirt.toml";
/// Name of the file with the UUID of the domain.
const OWNER: &str = "libvirt.domain";

/// Reason for which an instance cannot be a domain's.
#[derive(Debug, thiserror::Error)]
pub(super) enum InstanceError {
    #[error("{what} {}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Systemd(#[from] ProgramError),
    /// The unit was told to start with the domain's settings, and is not ready.
    #[error(transparent)]
    Start(ProgramError),
    #[error("{unit} is in use by the domain {domain}: give each domain an instance of its own")]
    Other { unit: String, domain: String },
    #[error("{unit} is being started or stopped for another domain")]
    Busy { unit: String },
    #[error(
        "{unit} was not started for this domain, so that {settings} of its metadata would not count: stop it \
         (systemctl disable --now {unit}), or take them out of the metadata"
    )]
    Foreign { unit: String, settings: String },
}

/// An instance of the unit, by its name.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) unit: String,
    /// The unit's runtime directory.
    folder: PathBuf,
    /// The operator's settings.
    pub(super) configuration: PathBuf,
}

impl Instance {
    /// `root` stands for `/`. The name is that of a unit.
    pub(super) fn new(root: &Path, name: &str) -> Self {
        Self {
            unit: format!("vgpu-device@{name}.service"),
            folder: root.join("run/vgpu-device").join(name),
            configuration: root.join("etc/vgpu-device").join(format!("{name}.toml")),
        }
    }

    /// Returns the socket that the device has if no setting names another.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("device")
    }

    /// Starts the unit for a domain, with the settings of its metadata in a configuration file's syntax, and waits
    /// until it is ready. `names` are these settings. A unit that the operator has started is left as it is, if
    /// the domain asks for nothing else.
    pub(super) fn start(&self, domain: &str, text: &str, names: &[String]) -> Result<(), InstanceError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| InstanceError::File { what, path, source }
        };
        // The directory of all instances, too. systemd sets the modes of its own.
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&self.folder);
        made.map_err(failed("make", &self.folder))?;
        let lock = File::open(&self.folder).map_err(failed("open", &self.folder))?;
        let busy = || InstanceError::Busy { unit: self.unit.clone() };
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(busy()),
            locked => locked.map_err(|error| failed("lock", &self.folder)(error.into()))?,
        }
        let owner = self.owner();
        let state = self.state()?;
        if state == "deactivating" {
            // The end of the domain's last run, or the operator's. It is free after it.
            self.stop_unit()?;
        } else if !["inactive", "failed"].contains(&state.as_str()) {
            match owner {
                None if names.is_empty() => return Ok(()),
                None => {
                    let (unit, settings) = (self.unit.clone(), names.join(", "));
                    return Err(InstanceError::Foreign { unit, settings });
                }
                Some(other) if other != domain => {
                    return Err(InstanceError::Other { unit: self.unit.clone(), domain: other });
                }
                // Left by an end that libvirt did not tell, as when the host's libvirt was killed.
                Some(_) => self.stop_unit()?,
            }
        }
        // systemd may have removed it with the unit.
        fs::create_dir_all(&self.folder).map_err(failed("make", &self.folder))?;
        for (name, text) in [(SETTINGS, text), (OWNER, domain)] {
            let path = self.folder.join(name);
            fs::write(&path, text).map_err(failed("write", &path))?;
        }
        programs::run("systemctl", &["start", &self.unit], START_MOST).map_err(InstanceError::Start)?;
        Ok(())
    }

    /// Tells systemd to stop the unit, if this domain owns it. systemd removes its runtime directory.
    ///
    /// Its end is not waited for: when the host shuts down, systemd stops the unit once all domains have ended, and
    /// this one has not before the hook returns.
    pub(super) fn stop(&self, domain: &str) -> Result<(), InstanceError> {
        if self.owner().as_deref() == Some(domain) {
            programs::run("systemctl", &["stop", "--no-block", &self.unit], ASK_MOST)?;
        }
        Ok(())
    }

    /// Ends a start that has failed ([`InstanceError::Start`]): systemd would go on trying.
    pub(super) fn give_up(&self) -> Result<(), InstanceError> {
        let stopped = self.stop_unit();
        // A unit that has not failed has nothing to be reset.
        let _ = programs::run("systemctl", &["reset-failed", &self.unit], ASK_MOST);
        self.forget();
        stopped
    }

    /// Returns the last error that the unit's program has written to the journal.
    pub(super) fn last_error(&self) -> Option<String> {
        let unit = format!("--unit={}", self.unit);
        let arguments = [unit.as_str(), "--lines=50", "--output=cat", "--no-pager"];
        let lines = programs::run("journalctl", &arguments, ASK_MOST).ok()?;
        let last = lines.lines().rev().find_map(|line| line.strip_prefix("vgpu-device: "))?;
        Some(last.to_owned())
    }

    /// Returns the UUID of the domain for which the unit was started.
    fn owner(&self) -> Option<String> {
        Some(fs::read_to_string(self.folder.join(OWNER)).ok()?.trim().to_owned())
    }

    fn state(&self) -> Result<String, InstanceError> {
        let asked = ["show", "--property=ActiveState", "--value", &self.unit];
        Ok(programs::run("systemctl", &asked, ASK_MOST)?.trim().to_owned())
    }

    fn stop_unit(&self) -> Result<(), InstanceError> {
        programs::run("systemctl", &["stop", &self.unit], STOP_MOST)?;
        Ok(())
    }

    /// Removes what systemd has not removed with the unit.
    fn forget(&self) {
        for name in [SETTINGS, OWNER] {
            let _ = fs::remove_file(self.folder.join(name));
        }
        // Not if it has other files.
        let _ = fs::remove_dir(&self.folder);
    }
}
