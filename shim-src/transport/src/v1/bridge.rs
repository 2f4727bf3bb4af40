//! Presents a version 1 device to the rest of the transport as if it were version 2: its registers and
//! doorbells are those that sessions know, and calls of version 1 stand behind them.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use vgpu_wire::area::AREA_BYTES;
use vgpu_wire::facts::{DeviceFacts, HelloReply};
use vgpu_wire::pci::PciAddress;
use vgpu_wire::registers::{self as reg, MAX_CHANNELS, Refusal, channel};
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::payload::GpuInfo;
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION, v1};
use zerocopy::FromZeros;

use crate::mapping::Mapping;
use crate::registers::{Access, DataBar, RegisterError, Registers, check_home};
use crate::session_error::{GoneReason, SessionError};
use crate::status::OUT_OF_MEMORY;

use super::call::{Call, Failure, Payload};
use super::device_lock::DeviceLock;
use super::host::Host;
use super::mailbox::Mailbox;
use super::port::scratch;
use super::returns::Returns;
use super::session::{Session, lost_context, of_host};
use super::translate::{Translator, copy};
use super::{LockFiles, facts};

/// Size of the window that sessions see. It is memory of this process, of which only what is used takes room.
const WINDOW_MIB: u32 = 256;
/// The generation that sessions see. A device of version 1 has none; `PROTOCOL_VER` tells whether it is still
/// there.
const GENERATION: u32 = 1;
/// The number of every session: a bridge has one at a time, and a thread that examines the device must not
/// wait for a call to learn the number.
const SESSION: u32 = 1;

/// A device of version 1.
#[derive(Debug)]
pub(crate) struct Bridge {
    mailbox: Mailbox,
    capabilities: u32,
    vm_id: u32,
    facts: Box<DeviceFacts>,
    window: OnceLock<Arc<Mapping>>,
    core: Mutex<Core>,
}

#[derive(Debug, Default)]
struct Core {
    session: Option<Session>,
    /// Why the newest attach was refused.
    refused: u32,
}

/// Why a device of version 1 cannot be used.
pub(crate) enum BridgeError {
    /// A file where its processes meet cannot be opened.
    File(std::path::PathBuf, std::io::Error),
    /// It does not answer as such a device.
    Failed(Failure),
}

impl Bridge {
    /// Asks the device what it is.
    pub(crate) fn open(
        function: PciAddress,
        registers: Arc<dyn Registers>,
        data: Option<Box<dyn DataBar>>,
        files: LockFiles,
        capabilities: u32,
    ) -> Result<Self, BridgeError> {
        let memory = files.memory.clone();
        let device_lock = DeviceLock::open(files).map_err(|(path, error)| BridgeError::File(path, error))?;
        let mailbox = Mailbox::new(function, registers, data, device_lock, memory);
        let (vm_id, facts) = Self::ask(&mailbox).map_err(BridgeError::Failed)?;
        Ok(Self { mailbox, capabilities, vm_id, facts, window: OnceLock::new(), core: Mutex::default() })
    }

    fn ask(mailbox: &Mailbox) -> Result<(u32, Box<DeviceFacts>), Failure> {
        // The first call to a host of version 1. Its answer means nothing.
        match mailbox.plain(None, &Call::new(Op::Init, &[])) {
            Ok(_) | Err(Failure::Status(_)) => {}
            Err(lost) => return Err(lost),
        }
        let mut info = GpuInfo::new_zeroed();
        let back = Some((NonNull::from(&mut info).cast(), size_of::<GpuInfo>()));
        // SAFETY: the structure is private, and any bytes are one.
        unsafe { mailbox.call(None, &Call { back, ..Call::new(Op::GetGpuInfo, &[]) }) }.map_err(of_host)?;
        let [vm_id] = mailbox.registers().read([reg::VM_ID])?;
        Ok((vm_id, Box::new(facts::of(&info))))
    }

    /// The device's facts.
    pub(crate) fn facts(&self) -> Box<DeviceFacts> {
        self.facts.clone()
    }

    /// Files and memory of sessions.
    pub(crate) fn owners(&self) -> &std::path::Path {
        self.mailbox.device_lock().owners.path()
    }

    /// The window that sessions see.
    pub(crate) fn window(&self) -> std::io::Result<Arc<Mapping>> {
        if let Some(window) = self.window.get() {
            return Ok(Arc::clone(window));
        }
        let window = Arc::new(Mapping::anonymous((WINDOW_MIB as usize) << 20)?);
        Ok(Arc::clone(self.window.get_or_init(|| window)))
    }

    /// As [`Mailbox::window_bytes`].
    pub(crate) fn pages(&self) -> Option<u32> {
        self.mailbox.window_bytes()
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes the messages that lie in the ring.
    fn pump(&self) -> Result<(), RegisterError> {
        let core = &mut *self.core();
        let Some(session) = &mut core.session else { return Ok(()) };
        loop {
            match session.returns.next(&mut session.message) {
                Ok(true) => {}
                // Nothing, or the session was closed meanwhile and its memory is empty.
                Ok(false) | Err(()) => return Ok(()),
            }
            session.translate(&self.mailbox)?;
        }
    }

    /// Copies to the device straight from memory, not through the ring. The inner result has the host's
    /// error.
    ///
    /// # Safety
    /// `source` is readable for `bytes`.
    pub(crate) unsafe fn copy_in(
        &self,
        to: u64,
        source: *const u8,
        bytes: usize,
    ) -> Result<Result<(), u32>, SessionError> {
        self.straight(|host, _| copy::upload(host, to, Payload::Memory(source, bytes)))
    }

    /// Copies from the device straight to memory.
    ///
    /// # Safety
    /// `destination` is writable for `bytes`, and nobody else uses it meanwhile.
    pub(crate) unsafe fn copy_out(
        &self,
        from: u64,
        destination: NonNull<u8>,
        bytes: usize,
    ) -> Result<Result<(), u32>, SessionError> {
        self.straight(|host, translator| {
            // SAFETY: as the caller promises.
            unsafe { copy::download(host, translator.allocations(), from, destination, bytes) }
        })
    }

    fn straight(
        &self,
        copy: impl FnOnce(Host<'_>, &Translator) -> Result<(), Failure>,
    ) -> Result<Result<(), u32>, SessionError> {
        let core = &mut *self.core();
        let Some(session) = &mut core.session else { return Err(SessionError::Closed) };
        if let Some(code) = session.broken {
            return Ok(Err(code));
        }
        let host = Host::new(&self.mailbox, session.index);
        match copy(host, &session.translator).and_then(|()| host.rest()) {
            Ok(()) => Ok(Ok(())),
            Err(Failure::Status(code)) => Ok(Err(code)),
            Err(Failure::Lost(lost)) => Err(lost),
        }
    }

    /// Stores the host's error as that of the message that was executed last.
    pub(crate) fn fail(&self, code: u32) {
        if let Some(session) = &mut self.core().session {
            session.fail(session.returns.number() - 1, code);
        }
    }

    fn attach(&self, index: u32) -> Result<(), Failure> {
        let core = &mut *self.core();
        core.session = None;
        let window = self.window().map_err(|_| Failure::Status(OUT_OF_MEMORY))?;
        let device_lock = self.mailbox.device_lock();
        // From here on a process that finds the token's lock free cleans up after it.
        device_lock.owners.mark(index, true)?;
        // An earlier process with this token may have left something, even before this machine was started
        // anew (Q12).
        self.clean(index)?;
        // Without a context nothing that is allocated would be freed with its owner (Q11).
        let retain = Call::new(Op::PrimaryCtxRetain, &[0, 0]).results(1);
        let [context, ..] = self.mailbox.plain(Some(index), &retain).map_err(lost_context)?;
        // A host whose context died says yes to this all the same, and names no context (Q31).
        if context == 0 {
            return Err(GoneReason::Context.into());
        }
        let mut greeting = Box::new(HelloReply::new_zeroed());
        greeting.session = SESSION;
        greeting.generation = GENERATION;
        let areas = u64::from(MAX_CHANNELS) * AREA_BYTES;
        greeting.window_bytes = window.bytes() - areas;
        greeting.facts = *self.facts;
        core.session = Some(Session {
            index,
            translator: Translator::new(greeting, areas..window.bytes()),
            returns: Returns::new(window, u64::from(index) * AREA_BYTES),
            broken: None,
            message: Vec::new(),
        });
        Ok(())
    }

    /// Makes the host free everything that a token's owner has.
    fn clean(&self, index: u32) -> Result<(), Failure> {
        self.mailbox.plain(Some(index), &Call::new(Op::ProcessCleanup, &[scratch(index)])).map(|_| ())
    }

    /// Ends the session of a channel, this process's or a dead one's.
    fn detach(&self, core: &mut Core, index: u32) -> Result<(), Failure> {
        if core.session.as_ref().is_some_and(|session| session.index == index) {
            core.session = None;
        }
        self.clean(index)?;
        // The pages outlive the process; as the window they would take what is another's.
        self.mailbox.end_window(index)?;
        self.mailbox.device_lock().owners.mark(index, false)?;
        Ok(())
    }

    fn read(&self, offset: u32) -> Result<u32, Failure> {
        Ok(match offset {
            reg::CAPABILITIES => self.capabilities,
            reg::VM_ID => self.vm_id,
            reg::V2_WIRE_VERSION => WIRE_VERSION,
            reg::V2_DIGEST_LO => TABLE_DIGEST as u32,
            reg::V2_DIGEST_HI => (TABLE_DIGEST >> 32) as u32,
            reg::V2_CHANNELS => MAX_CHANNELS,
            reg::V2_AREA_STRIDE => AREA_BYTES as u32,
            reg::V2_WAKE => reg::WAKE_FUTEX,
            reg::V2_EXECUTOR => reg::EXECUTOR_READY,
            reg::V2_WINDOW_MIB => WINDOW_MIB,
            reg::V2_ATTACHED_LO => self.mailbox.device_lock().owners.marks()? as u32,
            reg::V2_ATTACHED_HI => (self.mailbox.device_lock().owners.marks()? >> 32) as u32,
            reg::PROTOCOL_VER => self.mailbox.registers().read([reg::PROTOCOL_VER])?[0],
            reg::V2_GENERATION => {
                let [protocol] = self.mailbox.registers().read([reg::PROTOCOL_VER])?;
                if protocol == reg::PROTOCOL_V1 { GENERATION } else { reg::ALL_ONES }
            }
            reg::V2_FREE_MIB => {
                let [free, ..] = self.mailbox.plain(None, &Call::new(Op::MemGetInfo, &[]).results(2))?;
                u32::try_from(free >> 20).unwrap_or(u32::MAX - 1)
            }
            channel::FIRST.. => self.read_channel(offset - channel::FIRST)?,
            _ => 0,
        })
    }

    fn read_channel(&self, offset: u32) -> Result<u32, Failure> {
        let (index, register) = (offset / channel::STRIDE, offset % channel::STRIDE);
        if index >= MAX_CHANNELS {
            return Ok(0);
        }
        let core = match register {
            // Read by threads that examine the device while another one waits for a call.
            channel::SESSION => match self.core.try_lock() {
                Ok(core) => core,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return Ok(SESSION),
            },
            _ => self.core(),
        };
        let own = core.session.as_ref().filter(|session| session.index == index);
        Ok(match register {
            channel::STATE if own.is_some() => channel::STATE_ATTACHED,
            channel::STATE
                if self.mailbox.device_lock().owners.marks()? & 1 << index != 0 && core.refused == 0 =>
            {
                channel::STATE_ATTACHED
            }
            channel::ERROR => core.refused,
            channel::SESSION if own.is_some() => SESSION,
            // The session of a dead process has a number too: it is ended by it.
            channel::SESSION if self.mailbox.device_lock().owners.marks()? & 1 << index != 0 => SESSION,
            _ => 0,
        })
    }

    fn write(&self, offset: u32, value: u32) -> Result<(), Failure> {
        let Some(offset) = offset.checked_sub(channel::FIRST) else { return Ok(()) };
        let (index, register) = (offset / channel::STRIDE, offset % channel::STRIDE);
        match (register, value) {
            (channel::CONTROL, channel::ATTACH) => {
                let attached = self.attach(index);
                self.core().refused = match attached {
                    Ok(()) => 0,
                    Err(Failure::Status(OUT_OF_MEMORY)) => Refusal::NoRoom as u32,
                    Err(Failure::Status(_)) => Refusal::Executor as u32,
                    Err(lost @ Failure::Lost(_)) => return Err(lost),
                };
                Ok(())
            }
            // All sessions have the same number here, and no write comes late: this end is the same process.
            (channel::DETACH_SESSION, _) => self.detach(&mut self.core(), index),
            _ => Ok(()),
        }
    }
}

impl Registers for Bridge {
    fn access(&self, accesses: &[Access], values: &mut [u32]) -> Result<(), RegisterError> {
        check_home()?;
        for (access, result) in accesses.iter().zip(values) {
            match *access {
                Access::Read(offset) => *result = self.read(offset)?,
                Access::Write(offset, value) => self.write(offset, value)?,
            }
        }
        Ok(())
    }

    fn post(&self, _offset: u32, _value: u32, _still: &dyn Fn() -> bool) -> Result<bool, RegisterError> {
        check_home()?;
        self.pump()?;
        Ok(true)
    }

    fn write_within(&self, offset: u32, _value: u32, limit: Duration) -> Result<(), RegisterError> {
        check_home()?;
        let end = Instant::now() + limit;
        let Some(index) = offset.checked_sub(channel::FIRST).map(|offset| offset / channel::STRIDE) else {
            return Ok(());
        };
        debug_assert_eq!(offset - channel::base(index), channel::DETACH_SESSION);
        loop {
            match self.core.try_lock() {
                Ok(mut core) => return self.detach(&mut core, index).map_err(RegisterError::from),
                Err(TryLockError::Poisoned(poisoned)) => {
                    return self.detach(&mut poisoned.into_inner(), index).map_err(RegisterError::from);
                }
                // Another thread waits for a call. The next process to attach finds the lock free and cleans
                // up.
                Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(RegisterError::TimedOut);
                }
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }
}

const _: () = {
    assert!(
        v1::call::OWNERS_MAX == MAX_CHANNELS as usize,
        "a channel for each owner that a host has room for"
    );
    assert!((WINDOW_MIB as u64) << 20 > MAX_CHANNELS as u64 * AREA_BYTES);
};
