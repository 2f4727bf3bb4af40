//! A session and its worker process in a device's saved state.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::fstat;
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
        let (tail, backlog) = self.ring.save();
        let mut state = WorkerState {
            known: self.known,
            retirements: self.retirements,
            files: self.files,
            tail,
            backlog,
            usage: self.quota.save(),
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
        kept.map_err(|error| NotSaved::Descriptor(error.to_string()))?;
        Ok(state)
    }

    fn restore(
        context: &ExecutorContext,
        host: &SessionHost,
        state: &WorkerState,
        descriptors: &mut KeptDescriptors,
    ) -> Result<Self, RestoreError> {
        let charge = host.charges().charge(Resource::HostBytes, RING_BYTES + STATUS_PAGE_BYTES)?;
        let name = |what| KeptDescriptors::of_session(host.session(), what);
        let mut take = |what| descriptors.take(&name(what));
        let page = map(&name(PAGE), take(PAGE)?, STATUS_PAGE_BYTES)?;
        let ring = map(&name(RING), take(RING)?, RING_BYTES)?;
        let socket = take(SOCKET)?;
        let pidfd = state.pidfd.then(|| take(PIDFD)).transpose()?;
        let page = Arc::new(StatusPage::new(page));
        let link = WorkerProcess::restore(host.clone(), Arc::clone(&page), socket, pidfd, state)?;
        let link = Arc::new(link);
        let quota = context.pool.reopen(&page, &state.usage);
        // Nobody else has shown them to the guest yet.
        link.show(host.gauges());
        host.set_worker(Some(Arc::clone(&link) as _));
        Ok(Self {
            ring: RingWriter::restore(ring, page, state.tail, &state.backlog),
            link,
            quota,
            supervisor: None,
            known: state.known,
            retirements: state.retirements,
            files: state.files,
            _charge: charge,
        })
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
