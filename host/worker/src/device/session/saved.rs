//! A session and its worker process in a device's saved state.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid};
use serde_json::{Value, json};
use vgpu_device::{KeptDescriptors, NotSaved, Resource, RestoreError, SessionHost, Window, WorkerLink as _};

use super::{SessionWorker, WorkerSession};
use crate::device::context::ExecutorContext;
use crate::device::process::WorkerProcess;
use crate::device::ring_writer::RingWriter;
use crate::device::saved::{WorkerSessionState, WorkerState};
use crate::shared::frame::RING_BYTES;
use crate::shared::status_page::{STATUS_PAGE_BYTES, StatusPage};

/// Names of a worker's descriptors, after that of the session.
const RING: &str = "ring";
const PAGE: &str = "page";
const SOCKET: &str = "socket";
const PIDFD: &str = "pidfd";
const BACKLOG: &str = "backlog";

impl WorkerSession {
    pub(super) fn save_worker(&mut self, descriptors: &mut KeptDescriptors) -> Result<Value, NotSaved> {
        let worker = self.worker.as_mut().map(|worker| worker.save(&self.host, descriptors)).transpose()?;
        Ok(json!(WorkerSessionState { worker }))
    }

    /// Restores a session, and its worker if it has one. Nobody supervises the worker before
    /// [`vgpu_device::Session::resume`].
    pub(crate) fn restore(
        context: Arc<ExecutorContext>,
        host: SessionHost,
        state: &WorkerSessionState,
        descriptors: &mut KeptDescriptors,
    ) -> Result<Self, RestoreError> {
        let worker = state.worker.as_ref();
        let worker = worker.map(|worker| SessionWorker::restore(&context, &host, worker, descriptors));
        let worker = worker.transpose()?;
        Ok(Self { context, host, worker })
    }
}

impl SessionWorker {
    /// Has the supervisor stop between two reports, and describes the worker.
    fn save(
        &mut self,
        host: &SessionHost,
        descriptors: &mut KeptDescriptors,
    ) -> Result<WorkerState, NotSaved> {
        self.link.pause_reports()?;
        let tail = self.ring.save();
        let backlog = self.ring.backlog().map(|frame| frame.len() as u64).sum();
        let mut state = WorkerState {
            known: self.known,
            retirements: self.retirements,
            files: self.files,
            tail,
            backlog,
            usage: self.usage.save(),
            ..self.link.save()
        };
        state.retired.sort_unstable_by_key(|retired| retired.0);
        let name = |what| KeptDescriptors::of_session(host.session(), what);
        let pidfd = self.link.pidfd.as_ref();
        let kept = descriptors
            .keep(name(RING), self.ring.file())
            .and_then(|()| descriptors.keep(name(PAGE), self.link.page.file()))
            .and_then(|()| descriptors.keep(name(SOCKET), &self.link.socket))
            .and_then(|()| pidfd.map_or(Ok(()), |pidfd| descriptors.keep(name(PIDFD), pidfd)));
        let kept = kept.and_then(|()| match backlog {
            0 => Ok(()),
            _ => descriptors.keep_bytes(name(BACKLOG), self.ring.backlog()),
        });
        kept.map_err(|error| NotSaved::Descriptor(error.to_string()))?;
        Ok(state)
    }

    fn restore(
        context: &ExecutorContext,
        host: &SessionHost,
        state: &WorkerState,
        descriptors: &mut KeptDescriptors,
    ) -> Result<Self, RestoreError> {
        let charge = host.charges().adopt(Resource::HostBytes, RING_BYTES + STATUS_PAGE_BYTES);
        let name = |what| KeptDescriptors::of_session(host.session(), what);
        let mut take = |what| descriptors.take(&name(what));
        let page = map(&name(PAGE), take(PAGE)?, STATUS_PAGE_BYTES)?;
        let ring = map(&name(RING), take(RING)?, RING_BYTES)?;
        let socket = take(SOCKET)?;
        let pidfd = state.pidfd.then(|| take(PIDFD)).transpose()?;
        let backlog = match state.backlog {
            0 => Vec::new(),
            bytes => descriptors.take_bytes(&name(BACKLOG), bytes)?,
        };
        let page = Arc::new(StatusPage::new(page));
        let ring = RingWriter::restore(ring, Arc::clone(&page), state.tail, &backlog, host.charges())?;
        let link = WorkerProcess::restore(host.clone(), Arc::clone(&page), socket, pidfd, state)?;
        link.restore_retired(&state.retired)?;
        let watch = context.program.watch.as_ref();
        let watched = watch.map(|watch| watch.started(state.pid)).transpose();
        let watched = watched.map_err(|source| RestoreError::Descriptor { name: name("process"), source })?;
        let link = Arc::new(link.watched(watched));
        let usage = context.pool.reopen(&page, &state.usage);
        // Nobody else has shown them to the guest yet.
        link.show(host.gauges());
        host.set_worker(Some(Arc::clone(&link) as _));
        Ok(Self {
            ring,
            link,
            usage,
            supervisor: None,
            known: state.known,
            retirements: state.retirements,
            files: state.files,
            _charge: charge,
        })
    }
}

/// Ends the worker of a saved session that cannot be restored.
pub(crate) fn abandon(worker: &WorkerState) {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let Some(pid) = Pid::from_raw(worker.pid.cast_signed()) else { return };
    // A number that is not a child's is somebody else's.
    if waitid(WaitId::Pid(pid), look).is_ok() {
        let _ = kill_process(pid, Signal::KILL);
        while matches!(waitpid(Some(pid), WaitOptions::empty()), Err(Errno::INTR)) {}
    }
}

/// Maps a memory file of this size.
fn map(name: &str, file: OwnedFd, bytes: u64) -> Result<Window, RestoreError> {
    let wrong = |source: io::Error| RestoreError::Descriptor { name: name.to_owned(), source };
    // Beyond the end of a file an access would kill the process.
    let found = fstat(&file).map_err(|error| wrong(error.into()))?.st_size.cast_unsigned();
    if found != bytes {
        return Err(wrong(io::Error::other(format!("its file has {found} bytes, not {bytes}"))));
    }
    Ok(Window::from_file_range(file.into(), 0, bytes)?)
}
