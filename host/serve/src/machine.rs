//! One function behind a vfio-user socket, served to virtual machines until the process is told to stop.

use std::sync::Arc;
use std::sync::mpsc;

use anyhow::{Context as _, Result};
use vgpu_device::Device;
use vgpu_vfio_user::{Function, SharedRam};

use crate::lifetime::{Lifetime, Served};
use crate::takeover::{Opened, Shape, Takeover};

/// A function, and what a process before this one has left of it.
pub(crate) struct Machine<'a> {
    pub(crate) shape: Shape<'a>,
    pub(crate) takeover: Takeover,
    pub(crate) function: Arc<dyn Function>,
    /// The device that the function presents, if another process can continue it.
    pub(crate) device: Option<&'a Device>,
    /// Will hold the guest's memory.
    pub(crate) ram: SharedRam,
}

impl Machine<'_> {
    /// Serves the function until `lifetime` ends. Calls `announce` when machines can connect, and `end` when
    /// none is served any more. `served` is what can be asked of it.
    ///
    /// After an error this process counts as dead: where the next one can continue, the connection stays open.
    pub(crate) fn serve<T>(
        self,
        lifetime: &Lifetime,
        served: Served,
        announce: impl FnOnce(Served) -> Result<T>,
        end: impl FnOnce(),
    ) -> Result<()> {
        let Self { shape, takeover, function, device, ram } = self;
        let Opened { mut socket, keeper, past } = takeover.open(shape, device, function, ram)?;
        let stop = socket.stopper();
        let (give, back) = mpsc::channel();
        let serve = move || {
            let ended = socket.serve();
            // It is taken back once the thread was told to stop.
            let _ = give.send(socket);
            ended
        };
        lifetime.serve("vfio-user", serve)?;
        // What is announced stays until the end, such as the control socket.
        let ended = announce(Served { past, ..served }).and_then(|_announced| lifetime.wait());
        stop.stop().context("stop the thread `vfio-user`")?;
        // There is no socket if the thread has panicked.
        let socket = back.recv().ok();
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
