//! What a program finds that is executed by a device's process: the state and the descriptors that the
//! program before it has left. Whatever fails here ends the process. Where the service manager keeps
//! descriptors, the next one then takes the place of a dead device ([`crate::takeover`]).

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use vgpu_device::{Addresses, DeviceConfig, DeviceState, Executor, KeptDescriptors, RaisedPriority, Window};
use vgpu_vfio_user::record::{ConnectionImage, FileId, ProcessEntry, Record, Recorded};
use vgpu_vfio_user::{Function, FunctionSocket, SavedConnection, SharedRam, V2};

use crate::executor::{ExecutorOptions, SavedExecutor};
use crate::keeper::{CONNECTION, Keeper, LISTENER, RECORD, RecordedRam, WINDOW, listener_name, ram_name};
use crate::knobs::Knobs;
use crate::lifetime::{ReloadReport, Reloaded};
use crate::reload::running::{ADDRESSES, CONTROL, Identity, SLOT, STATE};
use crate::reload::saved::{SavedProcess, clock};
use crate::store::Store;
use crate::takeover::{Found, Opened, Past, Shape};

/// A device that goes on in this program.
pub(crate) struct Handover {
    process: SavedProcess,
    state: DeviceState,
    kept: KeptDescriptors,
    store: Option<Arc<Store>>,
    record: Arc<Record>,
    /// Workers as the program before this one has recorded them. They are recorded anew as their sessions are
    /// restored.
    workers: Vec<ProcessEntry>,
    crashes: u32,
    listener: Option<(String, OwnedFd)>,
    window: Option<OwnedFd>,
    connection: Option<SavedConnection>,
    /// Files of the guest's memory.
    files: BTreeSet<FileId>,
    /// The priority with which the program before this one has executed it.
    priority: Option<RaisedPriority>,
}

/// Adds what serves the VMM to the descriptors that survive. `keeper` has the record, if there is one.
pub(crate) fn keep_machine(
    shape: Shape<'_>,
    socket: &FunctionSocket,
    keeper: Option<&Keeper>,
    window: &Window,
    kept: &mut KeptDescriptors,
) -> Result<()> {
    let Some((listener, connection)) = socket.copy().context("copy the sockets")? else {
        bail!("the socket was given up");
    };
    kept.insert(listener_name(shape.path).context("look at the socket's file")?, listener)?;
    kept.keep(WINDOW.to_owned(), window.file()).context("copy the window")?;
    let made;
    let record = if let Some(keeper) = keeper {
        keeper.record()
    } else {
        made = Record::new().context("make a record")?;
        made.change(|_| ());
        &made
    };
    if let Some(connection) = connection {
        let RecordedRam { regions, files } =
            RecordedRam::of(&connection.regions).context("look at the guest's memory")?;
        for (id, file) in files {
            kept.keep(ram_name(id), file.as_fd()).context("copy the guest's memory")?;
        }
        if keeper.is_none() {
            let (limits, config) = (connection.limits, connection.config);
            record.change(|image| image.connection = Some(ConnectionImage { limits, config, regions }));
        }
        if let Some(loss) = record.image().loss {
            bail!("the record has no connection: {loss}");
        }
        kept.insert(CONNECTION.to_owned(), connection.socket)?;
    }
    kept.keep(RECORD.to_owned(), record.file()).context("copy the record")
}

impl Handover {
    /// Takes what was handed over. Returns `None` if this program was started anew.
    pub(crate) fn take(
        inherited: Vec<(String, OwnedFd)>,
        priority: Option<RaisedPriority>,
    ) -> Result<Option<Self>> {
        if inherited.is_empty() {
            return Ok(None);
        }
        let (found, others) = Found::sort(inherited);
        let Found { record, mut windows, connection, mut listeners, files } = found;
        let missing = |what| format!("the program before this one has handed over no {what}");
        let mut kept = KeptDescriptors::default();
        for (name, descriptor) in others {
            kept.insert(name, descriptor)?;
        }
        let (process, state) = SavedProcess::read(File::from(kept.take(STATE)?))?;
        let (record, recorded) = Record::open(record.with_context(|| missing(RECORD))?)?;
        let (record, Recorded { image, answering, .. }) = (Arc::new(record), recorded);
        let connection = image.connection.as_ref().map(|recorded| {
            let socket = connection.with_context(|| missing(CONNECTION))?;
            let mut connection = SavedConnection::of_record(recorded, answering, socket, &files)?;
            if process.reply.is_some() {
                // It goes on where it was, so that nothing is in doubt.
                (connection.reply, connection.in_doubt) = (process.reply.clone(), None);
            }
            Ok::<_, anyhow::Error>(connection)
        });
        Ok(Some(Self {
            state,
            kept,
            store: Store::of_manager().context("find the service manager's socket")?.ok().map(Arc::new),
            workers: record.entries(),
            record,
            crashes: image.crashes,
            listener: Some(listeners.pop().with_context(|| missing(LISTENER))?),
            window: Some(windows.pop().with_context(|| missing(WINDOW))?),
            connection: connection.transpose()?,
            files: files.into_keys().collect(),
            process,
            priority,
        }))
    }

    /// Returns the settings, the start and the number of reloads of the device, this one included.
    pub(crate) fn identity(&self) -> Identity {
        let SavedProcess { settings, started, reloads, .. } = &self.process;
        Identity { settings: settings.clone(), started: *started, reloads: reloads + 1 }
    }

    /// Returns the reloads so far. The VM's accesses are answered from now on.
    pub(crate) fn reloaded(&self) -> Reloaded {
        let paused = clock().saturating_sub(self.process.paused) / 1000;
        let last = ReloadReport { from: self.process.program.clone(), pause_us: paused };
        Reloaded { reloads: self.process.reloads + 1, last: Some(last) }
    }

    /// Returns the executor as it was saved.
    pub(crate) const fn saved_executor(&self) -> &SavedExecutor {
        &self.process.executor
    }

    /// Returns the listening socket of operators.
    pub(crate) fn take_control(&mut self) -> Result<OwnedFd> {
        Ok(self.kept.take(CONTROL)?)
    }

    /// Returns the record of worker processes, if it is of use.
    pub(crate) fn record(&self) -> Option<&Arc<Record>> {
        self.store.is_some().then_some(&self.record)
    }

    /// Makes the executor, without asking the driver, and the VM's slot.
    pub(crate) fn executor(
        &mut self,
        options: &ExecutorOptions,
        knobs: &Knobs,
    ) -> Result<(Arc<dyn Executor>, Addresses)> {
        let SavedProcess { executor, slot, .. } = &self.process;
        if let (Some(slot), Some(share)) = (slot, &options.share) {
            share.restore(slot, self.kept.take(SLOT)?).context("take the VM's share of the GPU over")?;
        }
        let lock = self.kept.iter().any(|(name, _)| name == ADDRESSES);
        let lock = lock.then(|| self.kept.take(ADDRESSES)).transpose()?;
        let addresses = self.process.addresses(lock)?;
        let made = options.restore_executor(executor, addresses.clone(), knobs)?;
        Ok((made, addresses))
    }

    /// Makes the device with its sessions. `ram` gets the guest's memory.
    pub(crate) fn function(&mut self, config: &DeviceConfig, ram: &SharedRam) -> Result<V2> {
        if let Some(connection) = &mut self.connection {
            connection.map(ram)?;
        }
        let window = self.window.take().context("the device was made already")?;
        let window = Window::from_file_range(window.into(), 0, config.window_bytes)?;
        Ok(V2::restore(config, &self.state, &mut self.kept, window)?)
    }

    /// Makes the socket of the device. Accesses of the VM that have waited are answered once it is served.
    pub(crate) fn open(
        mut self,
        shape: Shape<'_>,
        function: Arc<dyn Function>,
        ram: SharedRam,
    ) -> Result<Opened> {
        self.workers.clear();
        let left: Vec<&str> = self.kept.iter().map(|(name, _)| name).collect();
        if !left.is_empty() {
            tracing::error!("descriptors were handed over that nobody has taken: {}", left.join(", "));
        }
        let (name, listener) = self.listener.take().context("the socket was opened already")?;
        let connection = self.connection.take();
        let mut socket = FunctionSocket::restore(shape.path, listener, connection, function, ram)?;
        let past = match (self.process.lost, self.crashes) {
            (true, _) => Past::Lost,
            (false, 0) => Past::None,
            (false, _) => Past::Kept(Arc::clone(&self.record)),
        };
        let files = std::mem::take(&mut self.files);
        let keeper = self.store.take().map(|store| {
            let keeper = Arc::new(Keeper::new(store, Arc::clone(&self.record), files));
            socket.record(Arc::clone(&keeper) as _);
            (keeper, name)
        });
        Ok(Opened { socket, keeper, past, priority: self.priority.take() })
    }
}

/// Where nobody keeps the connection for another process, the VMM sees its end, and not a reset, by which
/// QEMU would end.
impl Drop for Handover {
    fn drop(&mut self) {
        if self.store.is_none()
            && let Some(connection) = self.connection.take()
        {
            connection.close();
        }
    }
}
