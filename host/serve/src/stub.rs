//! One device of version 2 behind a vfio-user socket: made anew, in the place of one whose process has died,
//! or continued by this program.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Result, bail};
use serde_json::Value;
use vgpu_device::{Addresses, DeviceConfig};
use vgpu_vfio_user::{SharedRam, V2};

use crate::device::DeviceArguments;
use crate::executor::SavedExecutor;
use crate::figures::ServedFigures;
use crate::knobs::Knobs;
use crate::lifetime::{Lifetime, Reloaded, Served, Status};
use crate::machine::{Announced, Machine};
use crate::origin::Origin;
use crate::reload::{Handover, Identity, RunningDevice, SavedProcess};
use crate::takeover::{Past, Takeover};

/// A device, and what it is saved with.
struct MadeStub {
    function: V2,
    executor: Option<SavedExecutor>,
    addresses: Addresses,
    reloaded: Reloaded,
}

impl DeviceArguments {
    /// Serves the device to virtual machines, at the socket `path`.
    pub(crate) fn serve_stub<T: Announced>(
        &self,
        lifetime: &Lifetime,
        path: &Path,
        knobs: &Knobs,
        mut origin: Origin,
        identity: Identity,
        announce: impl FnOnce(Served) -> Result<T>,
    ) -> Result<()> {
        let (shape, ram) = (self.shape(path), SharedRam::default());
        let made = match &mut origin {
            Origin::Start(takeover) => self.make_stub(knobs, takeover, &ram)?,
            Origin::Handover(handover) => self.restore_stub(knobs, handover, &ram)?,
        };
        let MadeStub { function, executor, addresses, reloaded } = made;
        let device = Arc::clone(function.device());
        let function = Arc::new(function);
        let (known, ending, counting) = (Arc::clone(&device), Arc::clone(&device), Arc::clone(&device));
        let status: Status = Arc::new(move || serde_json::to_value(known.status()).unwrap_or_default());
        let quiet = Arc::new(RwLock::new(()));
        let asked = Arc::clone(&quiet);
        let end_session = move |number, by| {
            let _asked = asked.read().unwrap_or_else(PoisonError::into_inner);
            ending.end_session(number, by)
        };
        let shared = ram.clone();
        let read = move || {
            let device = counting.figures();
            // Without memory of the machine, a session shows that there is one.
            ServedFigures { device, connected: shared.is_shared() || device.sessions > 0 }
        };
        lifetime.watch(self.until_stdin_closes, Arc::clone(&status))?;
        let opened = match origin {
            Origin::Start(takeover) => takeover.open(shape, Some(&device), function, ram.clone())?,
            Origin::Handover(handover) => handover.open(shape, function, ram.clone())?,
        };
        let served = Served {
            status,
            end_session: Arc::new(end_session),
            reload: lifetime.reloader(),
            reloaded,
            figures: Some(Arc::new(read)),
            past: Past::None,
        };
        let share = self.host.share.clone();
        let lost = matches!(opened.past, Past::Lost);
        let running =
            RunningDevice { device: Arc::clone(&device), executor, addresses, share, identity, quiet, lost };
        let machine = Machine { shape, opened, running: Some(running) };
        machine.serve(lifetime, served, announce, || device.shutdown())
    }

    /// Checks that this program could continue the device of a state, started with these settings.
    pub(crate) fn judge(&self, state: File, settings: &BTreeMap<String, Value>, knobs: &Knobs) -> Result<()> {
        let (process, state) = SavedProcess::read(state)?;
        process.check_settings(settings)?;
        let addresses = process.addresses(None)?;
        let executor = self.host.restore_executor(&process.executor, addresses, knobs)?;
        let mut config = DeviceConfig::new(Self::first_address(), executor);
        (config.window_bytes, config.channels) = (self.window.0, self.channels);
        config.memory = Some(Arc::new(SharedRam::default()));
        Ok(state.check(&config)?)
    }

    fn config(&self, mut config: DeviceConfig, ram: &SharedRam) -> Result<DeviceConfig> {
        self.complete(&mut config)?;
        config.memory = Some(Arc::new(ram.clone()));
        Ok(config)
    }

    fn make_stub(&self, knobs: &Knobs, takeover: &mut Takeover, ram: &SharedRam) -> Result<MadeStub> {
        let [(address, gpu)] = &self.gpus()?[..] else { bail!("a vfio-user socket has one device") };
        let made = self.host.make_executor(gpu, knobs)?;
        let mut config = self.config(DeviceConfig::new(*address, made.executor), ram)?;
        config.previous = takeover.previous();
        let function = V2::with_window(&config, &knobs.device, takeover.take_window())?;
        let addresses = gpu.addresses.clone();
        Ok(MadeStub { function, executor: made.saved, addresses, reloaded: Reloaded::default() })
    }

    fn restore_stub(&self, knobs: &Knobs, handover: &mut Handover, ram: &SharedRam) -> Result<MadeStub> {
        let (executor, addresses) = handover.executor(&self.host, knobs)?;
        let config = self.config(DeviceConfig::new(Self::first_address(), executor), ram)?;
        let function = handover.function(&config, ram)?;
        let (executor, reloaded) = (Some(handover.saved_executor().clone()), handover.reloaded());
        Ok(MadeStub { function, executor, addresses, reloaded })
    }
}
