//! The thread that serves a VMM, which rests while the device is saved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use vgpu_device::threads;
use vgpu_vfio_user::{FunctionSocket, Stop};

use crate::lifetime::Lifetime;

/// Time within which the thread rests: that of one request.
const REST_MOST: Duration = Duration::from_secs(2);

/// The thread, as the one that serves the process sees it.
pub(crate) struct SocketThread {
    stop: Stop,
    /// Whether the thread is to give the socket away when it stops. It takes that back when it does.
    wanted: Arc<AtomicBool>,
    resting: Receiver<FunctionSocket>,
    serve: Sender<FunctionSocket>,
    thread: JoinHandle<()>,
}

impl SocketThread {
    /// Starts to serve. The command ends if the socket cannot be served any more.
    pub(crate) fn start(lifetime: &Lifetime, mut socket: FunctionSocket) -> Result<Self> {
        let (stop, fails) = (socket.stopper(), lifetime.failer());
        let (rests, resting) = channel();
        let (serve, again) = channel();
        let wanted = Arc::<AtomicBool>::default();
        let asked = Arc::clone(&wanted);
        let serve_all = move || {
            loop {
                if let Err(error) = socket.serve() {
                    fails(error.into());
                } else if !asked.swap(false, Ordering::AcqRel) {
                    // Nobody waits for it any more.
                    continue;
                }
                if rests.send(socket).is_err() {
                    return;
                }
                match again.recv() {
                    Ok(rested) => socket = rested,
                    // The command ends.
                    Err(_) => return,
                }
            }
        };
        let thread = threads::spawn("vfio-user", serve_all).context("start the thread `vfio-user`")?;
        Ok(Self { stop, wanted, resting, serve, thread })
    }

    /// Has the thread rest between two requests. What a VMM asks meanwhile waits in its socket.
    pub(crate) fn rest(&self) -> Result<FunctionSocket> {
        self.wanted.store(true, Ordering::Release);
        self.stop.stop().context("stop the thread `vfio-user`")?;
        if let Ok(socket) = self.resting.recv_timeout(REST_MOST) {
            return Ok(socket);
        }
        if self.wanted.swap(false, Ordering::AcqRel) {
            self.stop.clear().context("start the thread `vfio-user`")?;
            bail!("an access of the VM has not ended within {REST_MOST:?}");
        }
        // It has just come to rest.
        self.resting.recv().context("wait for the thread `vfio-user`")
    }

    /// Has the thread serve again.
    pub(crate) fn go_on(&self, socket: FunctionSocket) -> Result<()> {
        // The thread gets the socket whether or not the wake-up could be taken back: it serves either way.
        let cleared = self.stop.clear().context("start the thread `vfio-user`");
        self.serve.send(socket).map_err(|_| anyhow!("the thread `vfio-user` has ended"))?;
        cleared
    }

    /// Ends the thread. Returns the socket unless the thread has panicked.
    pub(crate) fn end(self) -> Result<Option<FunctionSocket>> {
        self.wanted.store(true, Ordering::Release);
        self.stop.stop().context("stop the thread `vfio-user`")?;
        let socket = self.resting.recv().ok();
        drop(self.serve);
        // A panic has been reported.
        drop(self.thread.join());
        Ok(socket)
    }
}
