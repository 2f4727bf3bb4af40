//! A device that is served to a VMM, and how it makes room for its successor.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use vgpu_device::{Addresses, Device, KeptDescriptors, NotSaved, PauseError, PausedDevice, RaisedPriority};
use vgpu_vfio_user::{FunctionSocket, record};

use crate::executor::SavedExecutor;
use crate::inherited::MOST as DESCRIPTORS_MOST;
use crate::lifetime::Lifetime;
use crate::reload::judge::Judge;
use crate::reload::saved::{STATE_VERSION, SavedProcess, clock};
use crate::reload::socket::SocketThread;
use crate::reload::successor::{arguments, execute, program};
use crate::share::VmShare;

/// Names of descriptors beside those of sessions, and those that a crash needs too ([`crate::keeper`]).
pub(crate) const STATE: &str = "state";
pub(crate) const CONTROL: &str = "control";
pub(crate) const SLOT: &str = "slot";
pub(crate) const ADDRESSES: &str = "addresses";

/// Time within which sessions come to a stop between two messages. The VM's accesses wait meanwhile.
const PAUSE_MOST: Duration = Duration::from_millis(500);
/// Time for which a reload is tried again: sessions that are ending end meanwhile.
const TRIED_MOST: Duration = Duration::from_secs(30);
/// Pause between two tries.
const RETRY: Duration = Duration::from_millis(250);

/// What a device keeps across reloads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// Settings by name.
    pub(crate) settings: BTreeMap<String, Value>,
    /// Start of the device, by [`clock`].
    pub(crate) started: u64,
    /// Number of reloads.
    pub(crate) reloads: u32,
}

impl Identity {
    /// Returns that of a device that starts now.
    pub(crate) fn new(settings: BTreeMap<String, Value>) -> Self {
        Self { settings, started: clock(), reloads: 0 }
    }

    /// Returns the start as this process counts time.
    pub(crate) fn start(&self) -> Instant {
        let (now, age) = (Instant::now(), clock().saturating_sub(self.started));
        now.checked_sub(Duration::from_nanos(age)).unwrap_or(now)
    }
}

/// A device that is served to a VMM.
pub(crate) struct RunningDevice {
    pub(crate) device: Arc<Device>,
    /// `None` for an executor without workers.
    pub(crate) executor: Option<SavedExecutor>,
    pub(crate) addresses: Addresses,
    pub(crate) share: Option<Arc<VmShare>>,
    pub(crate) identity: Identity,
    /// Locked for reading by who ends a session.
    pub(crate) quiet: Arc<RwLock<()>>,
    /// Whether a process before this device has died and its VM has lost it.
    pub(crate) lost: bool,
}

/// Adds descriptors to those that survive.
pub(crate) type Keep<'a> = &'a dyn Fn(&FunctionSocket, &mut KeptDescriptors) -> Result<()>;

impl RunningDevice {
    /// Has this process execute the program that is installed now. `keep` adds what serves the VMM and
    /// operators. Returns only if that is not possible; the device then goes on.
    pub(crate) fn reload(
        &self,
        lifetime: &Lifetime,
        thread: &SocketThread,
        keep: Keep<'_>,
    ) -> Result<Infallible> {
        let Some(executor) = &self.executor else {
            bail!("{}", NotSaved::InProcess);
        };
        let (program, arguments) = (program().context("find this program")?, arguments());
        // Before the pause, so that the VM does not wait for its start.
        let mut judge = Judge::start(&program, &arguments)?;
        let end = Instant::now() + TRIED_MOST;
        loop {
            // A session that is ending cannot be paused, and nobody waits for it but this.
            while self.device.has_ending_sessions() && Instant::now() < end {
                thread::sleep(RETRY);
            }
            // Nobody ends a session meanwhile.
            let quiet = self.quiet.write().unwrap_or_else(PoisonError::into_inner);
            let paused = clock();
            let priority = RaisedPriority::raise();
            judge.hurry(priority.as_ref());
            let socket = thread.rest()?;
            let Err(error) = self.make_room(executor, paused, &socket, keep, |state, descriptors| {
                judge.judge(state)?;
                // What comes from now on is the new program's to take.
                let _signals = lifetime.hold_signals();
                if lifetime.is_ending() {
                    bail!("the device is to stop");
                }
                let error = execute(&program, &arguments, descriptors, priority.as_ref());
                Err(error).with_context(|| format!("execute {}", program.display()))
            });
            thread.go_on(socket)?;
            drop((priority, quiet));
            let is_busy = matches!(error.downcast_ref(), Some(PauseError::Busy(_)));
            if !is_busy || Instant::now() >= end {
                return Err(error);
            }
            thread::sleep(RETRY);
        }
    }

    /// Pauses the sessions, and calls `replace` with the state and the descriptors. They go on if that
    /// returns.
    fn make_room(
        &self,
        executor: &SavedExecutor,
        paused: u64,
        socket: &FunctionSocket,
        keep: Keep<'_>,
        replace: impl FnOnce(&File, &KeptDescriptors) -> Result<Infallible>,
    ) -> Result<Infallible> {
        let PausedDevice { state, mut descriptors } = self.device.pause(Instant::now() + PAUSE_MOST)?;
        let kept = keep(socket, &mut descriptors).context("copy the device's descriptors");
        let replaced = kept.and_then(|()| {
            let slot = self.share.as_ref().map(|share| share.save()).transpose().context("copy a lock")?;
            let slot = match slot.flatten() {
                Some((slot, lock)) => {
                    descriptors.insert(SLOT.to_owned(), lock)?;
                    Some(slot)
                }
                None => None,
            };
            if let Some(lock) = self.addresses.lock_file() {
                descriptors.keep(ADDRESSES.to_owned(), lock).context("copy a lock")?;
            }
            let Identity { settings, started, reloads } = self.identity.clone();
            let process = SavedProcess {
                version: STATE_VERSION,
                program: env!("CARGO_PKG_VERSION").to_owned(),
                record: record::MAGIC,
                settings,
                started,
                paused,
                reloads,
                executor: executor.clone(),
                slot,
                lost: self.lost,
                reply: socket.unsent_reply().cloned(),
            };
            let file = process.write(&state).context("write the state")?;
            descriptors.keep(STATE.to_owned(), file.as_fd()).context("copy the state")?;
            let count = descriptors.iter().count();
            if count > DESCRIPTORS_MOST {
                bail!("the device has {count} descriptors, of which {DESCRIPTORS_MOST} can be handed over");
            }
            replace(&file, &descriptors)
        });
        self.device.resume();
        replaced
    }
}
