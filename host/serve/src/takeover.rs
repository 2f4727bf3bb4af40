//! What a start finds of a process that has died, and whether it can take its place: the VM's connection, the
//! guest's memory, the window and the record, as the service manager has kept them ([`crate::keeper`]).
//!
//! A device that takes a place is one that was reset: its generation is a new one and its sessions are lost,
//! but the VM keeps its connection, its addresses and its configuration space. Where that cannot be, the
//! start is one without a past, and the log says why in one sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustix::fs::{SealFlags, fcntl_get_seals};
use vgpu_device::{Device, PreviousDevice, RaisedPriority, Window, listen_for};
use vgpu_vfio_user::record::{FileId, Image, Record, RecordError, Recorded};
use vgpu_vfio_user::{Function, FunctionSocket, SavedConnection, SharedRam, end_connection};

use crate::keeper::{CONNECTION, Keeper, LISTENER, RAM, RECORD, WINDOW, listener_name, ram_name};
use crate::orphans;
use crate::store::{NoStore, Store};

/// What must be as it was for a connection to be continued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'a> {
    /// Path of the vfio-user socket.
    pub(crate) path: &'a Path,
    /// Group whose users may connect.
    pub(crate) group: Option<u32>,
    pub(crate) window_bytes: u64,
    pub(crate) channels: u32,
}

/// Reason for which a connection is not continued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotContinued {
    #[error("the record of the process before this one cannot be used: {0}")]
    Record(#[from] RecordError),
    #[error("the record of the process before this one is missing")]
    NoRecord,
    #[error("{0}")]
    Loss(vgpu_vfio_user::record::Loss),
    #[error("the VM had not begun to use it")]
    Begun,
    #[error("the window had {was} bytes and now has {now}")]
    WindowBytes { was: u64, now: u64 },
    #[error("the device had {was} channels and now has {now}")]
    Channels { was: u32, now: u32 },
    #[error("the memory of the window is missing")]
    NoWindow,
    #[error("{0}")]
    Connection(#[from] vgpu_vfio_user::RestoreError),
    #[error("{0}")]
    Socket(#[from] vgpu_vfio_user::SocketError),
}

/// How the device came to its VM.
#[derive(Clone, Debug)]
pub(crate) enum Past {
    /// No process has died, or no VM was connected.
    None,
    /// A process has died, and the VM has kept its device. The record counts the deaths since it connected.
    Kept(Arc<Record>),
    /// A process has died, and the VM has lost its device.
    Lost,
}

/// What a start has of the process before it, and where it leaves what the next one needs.
#[derive(Debug, Default)]
pub(crate) struct Takeover {
    kept: Option<Kept>,
}

/// What is kept, if there is a store.
#[derive(Debug)]
struct Kept {
    store: Arc<Store>,
    record: Arc<Record>,
    /// Names of all descriptors in the store.
    names: BTreeSet<String>,
    /// Socket that listens already, with its name in the store.
    listener: Option<(String, OwnedFd)>,
    left: Option<Left>,
    /// Whether a VM has lost its device.
    lost: bool,
}

/// What a process has left that can be continued.
#[derive(Debug)]
struct Left {
    image: Image,
    connection: SavedConnection,
    window: Option<Window>,
    files: BTreeSet<FileId>,
}

impl Takeover {
    /// Looks at what the service manager has kept, kills the workers of the process before, and judges
    /// whether its connection can be continued. Without a store it says so.
    pub(crate) fn begin(inherited: Vec<(String, OwnedFd)>, shape: Shape<'_>) -> Result<Self> {
        let store = match Store::of_manager().context("find the service manager's socket")? {
            Ok(store) => Arc::new(store),
            Err(none) => {
                let told = "a crash of this process will cost the VM its GPU";
                match none {
                    NoStore::NoManager => tracing::info!("{told}: {none}"),
                    NoStore::None => tracing::warn!("{told}: {none}"),
                }
                return Ok(Self::default());
            }
        };
        let names = inherited.iter().map(|(name, _)| name.clone()).collect();
        let (mut found, unknown) = Found::sort(inherited);
        for (name, _) in unknown {
            tracing::warn!(name, "the service manager has kept a descriptor that is not known");
        }
        let lost = found.connection.is_some();
        let judged = found.judge(shape);
        if let (Err(why), true) = (&judged, lost) {
            tracing::warn!(
                "the VM's connection is closed, because {why}; `vgpu-device replug`, or a restart of the VM, \
                 gives it its GPU back"
            );
        }
        let (record, left) = match judged {
            Ok((record, left)) => (record, Some(left)),
            Err(_) => (Record::new().context("make a record")?, None),
        };
        if let Some(connection) = found.connection.take() {
            end_connection(&connection);
        }
        let lost = lost && left.is_none();
        let listener = found.listeners.into_iter().find(|(name, _)| is_at(name, shape));
        let kept = Kept { store, record: Arc::new(record), names, listener, left, lost };
        Ok(Self { kept: Some(kept) })
    }

    /// Returns the record, if there is one, for the numbers of workers.
    pub(crate) fn record(&self) -> Option<&Arc<Record>> {
        self.kept.as_ref().map(|kept| &kept.record)
    }

    /// Returns the device whose place is taken.
    pub(crate) fn previous(&self) -> Option<PreviousDevice> {
        let Image { generation, pages_key, .. } = self.kept.as_ref()?.left.as_ref()?.image;
        Some(PreviousDevice { generation, pages_key })
    }

    /// Returns the window of that device.
    pub(crate) fn take_window(&mut self) -> Option<Window> {
        self.kept.as_mut()?.left.as_mut()?.window.take()
    }

    /// Makes the socket of a device, continued or anew, and leaves the next process what it needs. `device`
    /// is `None` for a function that cannot be continued.
    pub(crate) fn open(
        self,
        shape: Shape<'_>,
        device: Option<&Device>,
        function: Arc<dyn Function>,
        ram: SharedRam,
    ) -> Result<Opened> {
        let Shape { path, group, .. } = shape;
        let (Some(kept), Some(device)) = (self.kept, device) else {
            let socket = FunctionSocket::bind(path, group, function, ram)?;
            return Ok(Opened { socket, keeper: None, past: Past::None, priority: None });
        };
        let Kept { store, record, mut names, listener, left, lost } = kept;
        let listener = if let Some(listener) = listener {
            listener
        } else {
            let socket = listen_for(path, group).context("open the vfio-user socket")?;
            let name = listener_name(path).with_context(|| format!("look at {}", path.display()))?;
            keep(&store, &name, socket.as_fd())?;
            (name, socket)
        };
        let mut past = if lost { Past::Lost } else { Past::None };
        let mut files = BTreeSet::new();
        let mut continued = None;
        let crashes = left.as_ref().map_or(0, |left| left.image.crashes.saturating_add(1));
        if let Some(left) = left {
            let socket = listener.1.try_clone().context("copy a socket")?;
            let (shown, memory) = (Arc::clone(&function), ram.clone());
            match FunctionSocket::restore(path, socket, Some(left.connection), shown, memory) {
                Ok(socket) => {
                    past = Past::Kept(Arc::clone(&record));
                    files = left.files;
                    names.retain(|name| ![WINDOW, RECORD, CONNECTION].contains(&name.as_str()));
                    names.retain(|name| !files.iter().any(|file| *name == ram_name(*file)));
                    continued = Some(socket);
                }
                Err(error) => {
                    past = Past::Lost;
                    tracing::warn!("the VM's connection is closed, because {}", NotContinued::from(error));
                }
            }
        }
        // What nothing refers to any more, before others get its names.
        names.remove(&listener.0);
        for name in &names {
            store.remove(name).with_context(|| format!("have the service manager forget {name}"))?;
        }
        let window = device.bar2();
        let id = FileId::of(window.file()).context("look at the window")?;
        let is_continued = continued.is_some();
        record.change(|image| {
            let connection = image.connection.take().filter(|_| is_continued);
            *image = Image {
                generation: device.generation(),
                channels: shape.channels,
                window_bytes: window.bytes(),
                window: id,
                pages_key: device.pages_key(),
                crashes: if is_continued { crashes } else { 0 },
                connection,
                loss: None,
            };
        });
        if !is_continued {
            keep(&store, WINDOW, window.file())?;
            keep(&store, RECORD, record.file())?;
        }
        let mut socket = match continued {
            Some(socket) => socket,
            None => FunctionSocket::restore(path, listener.1, None, function, ram)?,
        };
        let keeper = Arc::new(Keeper::new(store, record, files));
        socket.record(Arc::clone(&keeper) as _);
        Ok(Opened { socket, keeper: Some((keeper, listener.0)), past, priority: None })
    }
}

fn keep(store: &Store, name: &str, file: BorrowedFd<'_>) -> Result<()> {
    store.keep(name, file).with_context(|| format!("have the service manager keep {name}"))
}

/// A socket that can be served.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) socket: FunctionSocket,
    /// What keeps it for the next process, and the name of its listener there.
    pub(crate) keeper: Option<(Arc<Keeper>, String)>,
    pub(crate) past: Past,
    /// The priority of this thread, until the socket is served.
    pub(crate) priority: Option<RaisedPriority>,
}

/// Descriptors by the names that [`crate::keeper`] gives them, by what they are.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) record: Option<OwnedFd>,
    pub(crate) windows: Vec<OwnedFd>,
    pub(crate) connection: Option<OwnedFd>,
    pub(crate) listeners: Vec<(String, OwnedFd)>,
    pub(crate) files: BTreeMap<FileId, Arc<File>>,
}

impl Found {
    /// Sorts descriptors. Returns those with other names as well.
    pub(crate) fn sort(inherited: Vec<(String, OwnedFd)>) -> (Self, Vec<(String, OwnedFd)>) {
        let (mut found, mut others) = (Self::default(), Vec::new());
        for (name, file) in inherited {
            match name.as_str() {
                RECORD => found.record = Some(file),
                WINDOW => found.windows.push(file),
                CONNECTION => found.connection = Some(file),
                _ if name.starts_with(RAM) => {
                    if let Ok(id) = FileId::of(&file) {
                        found.files.insert(id, Arc::new(File::from(file)));
                    }
                }
                _ if name.starts_with(LISTENER) => found.listeners.push((name, file)),
                _ => others.push((name, file)),
            }
        }
        (found, others)
    }

    /// Judges whether the connection can be continued. The workers of the process before are dead then.
    fn judge(&mut self, shape: Shape<'_>) -> Result<(Record, Left), NotContinued> {
        let (record, recorded) = Record::open(self.record.take().ok_or(NotContinued::NoRecord)?)?;
        let Recorded { image, answering, processes } = recorded;
        let killed = orphans::end(&processes);
        if killed > 0 {
            tracing::info!(killed, "workers of the process before this one were still there");
        }
        record.forget_processes();
        if let Some(loss) = image.loss {
            return Err(NotContinued::Loss(loss));
        }
        let recorded = image.connection.as_ref().ok_or(NotContinued::Begun)?;
        let Shape { window_bytes, channels, .. } = shape;
        if image.window_bytes != window_bytes {
            return Err(NotContinued::WindowBytes { was: image.window_bytes, now: window_bytes });
        }
        if image.channels != channels {
            return Err(NotContinued::Channels { was: image.channels, now: channels });
        }
        let is_its = |file: &OwnedFd| FileId::of(file).is_ok_and(|id| id == image.window);
        let window = std::mem::take(&mut self.windows).into_iter().find(is_its);
        let window = window.and_then(|file| mapped(file, window_bytes)).ok_or(NotContinued::NoWindow)?;
        let socket = self.connection.take().ok_or(NotContinued::Begun)?;
        let kept = socket.try_clone();
        match SavedConnection::of_record(recorded, answering, socket, &self.files) {
            Ok(connection) => {
                let files = self.files.keys().copied().collect();
                Ok((record, Left { image, connection, window: Some(window), files }))
            }
            Err(error) => {
                self.connection = kept.ok();
                Err(error.into())
            }
        }
    }
}

/// Maps the window of a process before this one, if it has this size and nobody can shrink it.
fn mapped(file: OwnedFd, bytes: u64) -> Option<Window> {
    let sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let file = File::from(file);
    let has_size = file.metadata().is_ok_and(|about| about.len() == bytes);
    if sealed && has_size { Window::from_file_range(file, 0, bytes).ok() } else { None }
}

/// Returns whether a socket of this name listens at the path, for whom it should. A file that is not as it
/// should be, but is this service's own, is removed.
fn is_at(name: &str, shape: Shape<'_>) -> bool {
    let Shape { path, group, .. } = shape;
    if listener_name(path).ok().as_deref() != Some(name) {
        return false;
    }
    let Ok(about) = std::fs::symlink_metadata(path) else { return false };
    let good = match group {
        Some(group) => about.gid() == group && about.mode() & 0o777 == 0o660,
        None => about.mode() & 0o777 == 0o600,
    };
    if !good {
        // Nobody accepts the connections of who finds it.
        let _ = std::fs::remove_file(path);
    }
    good
}
