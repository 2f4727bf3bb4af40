//! An instance of the unit that a domain owns: the settings that its metadata adds, and the start and the
//! stop by systemctl.
//!
//! The settings lie beside the unit's runtime directory, which systemd removes also when it gives the unit
//! up, while the domain runs on. Beside them lies the domain's UUID: what another domain or an operator has
//! started is neither taken nor stopped.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::control::LIBVIRT;
use crate::programs::{self, ProgramError};

/// Maximum time of a start. A device that measures what a context costs takes a minute.
const START_MOST: Duration = Duration::from_mins(2);
/// Maximum time of a stop; systemd kills a unit after 90 s.
const STOP_MOST: Duration = Duration::from_secs(100);
/// Maximum time of a question.
const ASK_MOST: Duration = Duration::from_secs(20);
/// Extension of the file with the settings, which the unit reads.
const SETTINGS: &str = "toml";
/// Extension of the file with the UUID of the domain.
const OWNER: &str = "domain";
/// Extension of the file that a hook locks while it changes the others. It stays: with a file that is
/// removed, one hook could lock the old and another the new one.
const LOCK: &str = "lock";

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
    #[error("{unit} is not ready")]
    Start {
        unit: String,
        /// When the start began.
        since: SystemTime,
        #[source]
        source: ProgramError,
    },
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
    name: String,
    /// Directory of the runtime directories of all instances.
    folder: PathBuf,
    /// The operator's settings.
    pub(super) configuration: PathBuf,
}

impl Instance {
    /// `root` stands for `/`. The name is that of a unit.
    pub(super) fn new(root: &Path, name: &str) -> Self {
        Self {
            unit: format!("vgpu-device@{name}.service"),
            name: name.to_owned(),
            folder: root.join("run/vgpu-device"),
            configuration: root.join("etc/vgpu-device").join(format!("{name}.toml")),
        }
    }

    /// Returns the socket that the device has if no setting names another.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join(&self.name).join("device")
    }

    /// Returns a file of the hook's.
    fn file(&self, extension: &str) -> PathBuf {
        self.folder.join(LIBVIRT).join(format!("{}.{extension}", self.name))
    }

    /// Starts the unit for a domain, with the settings of its metadata in a configuration file's syntax, and
    /// waits until it is ready. `names` are these settings. A unit that the operator has started is left as
    /// it is, if the domain asks for nothing else.
    pub(super) fn start(&self, domain: &str, text: &str, names: &[String]) -> Result<(), InstanceError> {
        let Some(_lock) = self.lock(FlockOperation::NonBlockingLockExclusive)? else {
            return Err(InstanceError::Busy { unit: self.unit.clone() });
        };
        let owner = self.owner()?;
        let State { active, job } = self.state()?;
        if active == "deactivating" || (active == "active" && job && owner.is_none()) {
            // The end of a domain's last run, which may only be about to begin, or the operator's. It is free
            // after it.
            self.stop_unit()?;
        } else if !["inactive", "failed"].contains(&active.as_str()) {
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
        for (extension, text) in [(OWNER, domain), (SETTINGS, text)] {
            let path = self.file(extension);
            fs::write(&path, text).map_err(failed("write", &path))?;
        }
        // Starts of other domains, minutes ago, do not count against the limit of the unit's starts.
        self.reset_failed();
        let since = SystemTime::now();
        let started = programs::run("systemctl", &["start", &self.unit], START_MOST);
        started.map(drop).map_err(|source| InstanceError::Start { unit: self.unit.clone(), since, source })
    }

    /// Tells systemd to stop the unit, if this domain owns it, which is then nobody's.
    ///
    /// Its end is not waited for: when the host shuts down, systemd stops the unit once all domains have
    /// ended, and this one has not before the hook returns.
    pub(super) fn stop(&self, domain: &str) -> Result<(), InstanceError> {
        let Some(_lock) = self.owned(domain)? else { return Ok(()) };
        programs::run("systemctl", &["stop", "--no-block", &self.unit], ASK_MOST)?;
        self.forget()
    }

    /// Ends a start of this domain's that has failed ([`InstanceError::Start`]): systemd would go on trying.
    pub(super) fn give_up(&self, domain: &str) -> Result<(), InstanceError> {
        let Some(_lock) = self.owned(domain)? else { return Ok(()) };
        let stopped = self.stop_unit();
        self.reset_failed();
        self.forget().and(stopped)
    }

    /// Returns the last error that the unit's program has written to the journal since then.
    pub(super) fn last_error(&self, since: SystemTime) -> Option<String> {
        let unit = format!("--unit={}", self.unit);
        let since = since.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let since = format!("--since=@{}", since.as_secs());
        let arguments = [unit.as_str(), &since, "--lines=50", "--output=cat", "--no-pager"];
        let lines = programs::run("journalctl", &arguments, ASK_MOST).ok()?;
        let last = lines.lines().rev().find_map(|line| line.strip_prefix("vgpu-device: "))?;
        Some(last.to_owned())
    }

    /// Locks the hook's files, or returns `None` if another hook has them and is not to be waited for.
    fn lock(&self, how: FlockOperation) -> Result<Option<File>, InstanceError> {
        for folder in [self.folder.clone(), self.folder.join(LIBVIRT)] {
            let failed = failed("make", &folder);
            let made = !folder.exists();
            let open = vgpu_paths::make_private(&folder).map(drop);
            // Whatever the umask is: other users pass through to the sockets.
            let open = open.and_then(|()| {
                if made { fs::set_permissions(&folder, Permissions::from_mode(0o755)) } else { Ok(()) }
            });
            open.map_err(failed)?;
        }
        let path = self.file(LOCK);
        let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = lock.map_err(failed("open", &path))?;
        match flock(&lock, how) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(failed("lock", &path)(error.into())),
        }
    }

    /// Locks the hook's files, if they are this domain's. A hook of another domain is waited for: it soon
    /// finds that it has to leave the unit to this domain, or has the unit, and this domain has it no longer.
    fn owned(&self, domain: &str) -> Result<Option<File>, InstanceError> {
        if self.owner()?.as_deref() != Some(domain) {
            return Ok(None);
        }
        let lock = self.lock(FlockOperation::LockExclusive)?;
        let still = self.owner()?.as_deref() == Some(domain);
        Ok(lock.filter(|_| still))
    }

    /// Returns the UUID of the domain for which the unit was started.
    fn owner(&self) -> Result<Option<String>, InstanceError> {
        let path = self.file(OWNER);
        match fs::read_to_string(&path) {
            Ok(owner) => Ok(Some(owner.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &path)(error)),
        }
    }

    fn state(&self) -> Result<State, InstanceError> {
        let said = programs::run("systemctl", &["show", "--property=ActiveState,Job", &self.unit], ASK_MOST)?;
        let value = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let active = value("ActiveState").unwrap_or_default().to_owned();
        // The number of the job. A unit without one has 0, or no such line.
        let job = value("Job").is_some_and(|job| !["", "0"].contains(&job));
        Ok(State { active, job })
    }

    /// Has systemd forget failures and starts of the unit, which it counts.
    fn reset_failed(&self) {
        // A unit that has not failed, or that systemd does not know yet, has nothing to be reset.
        let _ = programs::run("systemctl", &["reset-failed", &self.unit], ASK_MOST);
    }

    fn stop_unit(&self) -> Result<(), InstanceError> {
        programs::run("systemctl", &["stop", &self.unit], STOP_MOST)?;
        Ok(())
    }

    /// Removes the domain's files. The lock is held.
    fn forget(&self) -> Result<(), InstanceError> {
        // The owner last: as long as it is there, another try finds it.
        for extension in [SETTINGS, OWNER] {
            let path = self.file(extension);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What systemd says of a unit.
struct State {
    active: String,
    /// Whether something is about to be done with it, such as a stop that was not waited for.
    job: bool,
}

/// Returns what makes an error of one of the kernel's.
fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstanceError + use<> {
    let path = path.to_owned();
    move |source| InstanceError::File { what, path, source }
}
