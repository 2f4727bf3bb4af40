//! One function behind a vfio-user socket, served to virtual machines until the process is told to stop, or
//! executes another program.

use anyhow::Result;
use vgpu_device::{ControlSocket, KeptDescriptors};

use crate::figures::FigureThread;
use crate::lifetime::{Lifetime, Served};
use crate::reload::{CONTROL, RunningDevice, SocketThread, keep_machine};
use crate::takeover::{Opened, Shape};

/// A function whose socket is open.
pub(crate) struct Machine<'a> {
    pub(crate) shape: Shape<'a>,
    pub(crate) opened: Opened,
    /// The device that the function presents, if another program can continue it.
    pub(crate) running: Option<RunningDevice>,
}

/// What is announced, and stays until the end.
pub(crate) trait Announced {
    /// Adds the descriptors of what another program continues.
    fn keep(&self, kept: &mut KeptDescriptors) -> Result<()>;
}

impl Announced for () {
    fn keep(&self, _kept: &mut KeptDescriptors) -> Result<()> {
        Ok(())
    }
}

impl Announced for (ControlSocket, Option<FigureThread>) {
    fn keep(&self, kept: &mut KeptDescriptors) -> Result<()> {
        Ok(kept.keep(CONTROL.to_owned(), self.0.listener())?)
    }
}

impl Machine<'_> {
    /// Serves the function until `lifetime` ends. Calls `announce` when machines can connect, and `end` when
    /// none is served any more. `served` is what can be asked of it.
    ///
    /// After an error this process counts as dead: where the next one can continue, the connection stays open.
    pub(crate) fn serve<T: Announced>(
        self,
        lifetime: &Lifetime,
        served: Served,
        announce: impl FnOnce(Served) -> Result<T>,
        end: impl FnOnce(),
    ) -> Result<()> {
        let Self { shape, opened: Opened { socket, keeper, past, priority }, running } = self;
        let thread = SocketThread::start(lifetime, socket)?;
        drop(priority);
        let ended = announce(Served { past, ..served }).and_then(|announced| {
            lifetime.wait_or_reload(|| {
                let Some(running) = &running else { return Lifetime::not_reloaded() };
                let keeper = keeper.as_ref().map(|(keeper, _)| &**keeper);
                let Err(error) = running.reload(lifetime, &thread, &|socket, kept| {
                    keep_machine(shape, socket, keeper, running.device.bar2(), kept)?;
                    announced.keep(kept)
                });
                format!("{error:#}")
            })
        });
        // There is no socket if the thread has panicked.
        let socket = thread.end()?;
        match (&ended, &keeper) {
            (Err(_), Some(_)) => drop(socket.and_then(vgpu_vfio_user::FunctionSocket::save)),
            (_, keeper) => {
                drop(socket);
                if let Some((keeper, listener)) = keeper {
                    keeper.end(listener);
                }
            }
        }
        end();
        ended
    }
}
