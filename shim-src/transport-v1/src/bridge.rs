//! Presents a version 1 device to the rest of the transport as if it were version 2: sessions see the
//! registers and doorbells that they know, and calls of version 1 implement them.

use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use vgpu_transport::bridge::Bridge;
use vgpu_transport::parts::{Access, Mapping, RegisterError, Registers, check_home};
use vgpu_transport::{GoneReason, OpenError, PciFunction, SessionError};
use vgpu_wire::area::AREA_BYTES;
use vgpu_wire::facts::{DeviceFacts, HelloReply};
use vgpu_wire::registers::{self as reg, MAX_CHANNELS, Refusal, channel};
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::payload::GpuInfo;
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION, v1};
use zerocopy::FromZeros;

use crate::bridged_session::{BridgedSession, lost_if_context_died, lost_if_host_is_full};
use crate::call::{Call, CallError, Payload};
use crate::device_lock::DeviceLock;
use crate::host_session::HostSession;
use crate::lock_files::LockFiles;
use crate::mailbox::Mailbox;
use crate::port::scratch;
use crate::return_area::ReturnArea;
use crate::status::OUT_OF_MEMORY;
use crate::translate::{Translator, copy};
use crate::{data_bar, facts};

/// Size of the window that sessions see, in MiB. It is memory of this process, allocated as it is used.
const WINDOW_MIB: u32 = 256;
/// Generation that sessions see. A device of version 1 has none; `PROTOCOL_VER` tells whether it still
/// answers.
const GENERATION: u32 = 1;
/// The number of every session. A bridge has one session at a time, and a thread that examines the device
/// must not wait for another thread's call to learn the number.
const SESSION: u32 = 1;

/// A device of version 1, presented to sessions as one of version 2.
#[derive(Debug)]
struct Version1 {
    mailbox: Mailbox,
    capabilities: u32,
    vm_id: u32,
    facts: Box<DeviceFacts>,
    window: OnceLock<Arc<Mapping>>,
    core: Mutex<BridgeState>,
}

#[derive(Debug, Default)]
struct BridgeState {
    session: Option<BridgedSession>,
    /// Value of register `ERROR`: why the newest attach was refused.
    refused: u32,
}

/// Opens a device of version 1 and reads its facts. The program passes this function to
/// [`vgpu_transport::Device::open`].
///
/// # Errors
/// Returns which file cannot be opened or mapped, or why the device cannot be used.
pub fn open(
    function: &PciFunction,
    registers: Arc<dyn Registers>,
    simulated: bool,
) -> Result<Arc<dyn Bridge>, OpenError> {
    let name = || function.address.to_string();
    let read = registers.read([reg::PROTOCOL_VER, reg::CAPABILITIES]);
    let [protocol, capabilities] = read.map_err(|error| OpenError::from_read(function, &error))?;
    if protocol == reg::ALL_ONES {
        return Err(OpenError::Gone { function: name() });
    }
    let [bar0, bar1, ..] = function.bars;
    if !v1::is_device(bar0.bytes, bar1.bytes, protocol, capabilities) {
        let what = format!("protocol {protocol:#x}, capabilities {capabilities:#x}, in BARs of version 1");
        return Err(OpenError::Strange { function: name(), what });
    }
    let data = data_bar::open(function, simulated)?;
    let files = LockFiles::new(&function.dir, simulated);
    let memory = files.memory.clone();
    let device_lock = DeviceLock::open(files).map_err(|(path, source)| OpenError::Turn { path, source })?;
    let mailbox = Mailbox::new(function.address, registers, data, device_lock, memory);
    match Version1::query(&mailbox) {
        Ok((vm_id, facts)) => {
            let (window, core) = (OnceLock::new(), Mutex::default());
            Ok(Arc::new(Version1 { mailbox, capabilities, vm_id, facts, window, core }))
        }
        Err(CallError::Lost(SessionError::Gone {
            reason:
                reason @ (GoneReason::Mediator
                | GoneReason::Quarantined
                | GoneReason::Context
                | GoneReason::Owners),
        })) => Err(OpenError::NoHost { function: name(), reason }),
        Err(CallError::Lost(SessionError::Gone { .. })) => Err(OpenError::Gone { function: name() }),
        Err(CallError::Lost(lost)) => Err(OpenError::Strange { function: name(), what: lost.to_string() }),
        Err(CallError::Status(code)) => {
            let what = format!("it answers the first call with error {code}");
            Err(OpenError::Strange { function: name(), what })
        }
    }
}

impl Version1 {
    fn query(mailbox: &Mailbox) -> Result<(u32, Box<DeviceFacts>), CallError> {
        // A host of version 1 expects this call first. Its result is ignored.
        match mailbox.call_plain(None, &Call::new(Op::Init, &[])) {
            Ok(_) | Err(CallError::Status(_)) => {}
            Err(lost) => return Err(lost),
        }
        let mut info = GpuInfo::new_zeroed();
        let back = Some((NonNull::from(&mut info).cast(), size_of::<GpuInfo>()));
        // SAFETY: the structure is private, and any bytes are valid for it.
        unsafe { mailbox.call(None, &Call { back, ..Call::new(Op::GetGpuInfo, &[]) }) }
            .map_err(lost_if_host_is_full)?;
        let [vm_id] = mailbox.registers().read([reg::VM_ID])?;
        Ok((vm_id, Box::new(facts::from_gpu_info(&info))))
    }

    fn core(&self) -> MutexGuard<'_, BridgeState> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes the messages in the ring.
    fn execute_ring(&self) -> Result<(), RegisterError> {
        let core = &mut *self.core();
        let Some(session) = &mut core.session else { return Ok(()) };
        loop {
            match session.returns.next(&mut session.message) {
                Ok(true) => {}
                // The ring is empty, or holds no message because another thread has closed the session.
                Ok(false) | Err(()) => return Ok(()),
            }
            session.execute(&self.mailbox)?;
        }
    }

    fn copy_directly(
        &self,
        copy: impl FnOnce(HostSession<'_>, &Translator) -> Result<(), CallError>,
    ) -> Result<Result<(), u32>, SessionError> {
        let core = &mut *self.core();
        let Some(session) = &mut core.session else { return Err(SessionError::Closed) };
        if let Some(code) = session.broken {
            return Ok(Err(code));
        }
        let host = HostSession::new(&self.mailbox, session.index);
        match copy(host, &session.translator).and_then(|()| host.release_window_while_idle()) {
            Ok(()) => Ok(Ok(())),
            Err(CallError::Status(code)) => Ok(Err(code)),
            Err(CallError::Lost(lost)) => Err(lost),
        }
    }

    fn attach(&self, index: u32) -> Result<(), CallError> {
        let core = &mut *self.core();
        core.session = None;
        let window = self.window().map_err(|_| CallError::Status(OUT_OF_MEMORY))?;
        let device_lock = self.mailbox.device_lock();
        // From here on, a process that finds the token's lock free has the host free the owner's objects.
        device_lock.owners.set_in_use(index, true)?;
        // An earlier process with this token may have left objects, even before the machine was rebooted
        // (Q12).
        self.clean_up_owner(index)?;
        // Without a context, the host would not free the allocations with their owner (Q11).
        let retain = Call::new(Op::PrimaryCtxRetain, &[0, 0]).with_results(1);
        let [context, ..] = self.mailbox.call_plain(Some(index), &retain).map_err(lost_if_context_died)?;
        // A host whose context died returns success as well, but no context (Q31).
        if context == 0 {
            return Err(GoneReason::Context.into());
        }
        let mut greeting = Box::new(HelloReply::new_zeroed());
        greeting.session = SESSION;
        greeting.generation = GENERATION;
        let areas = u64::from(MAX_CHANNELS) * AREA_BYTES;
        greeting.window_bytes = window.bytes() - areas;
        greeting.facts = *self.facts;
        core.session = Some(BridgedSession {
            index,
            translator: Translator::new(greeting, areas..window.bytes()),
            returns: ReturnArea::new(window, u64::from(index) * AREA_BYTES),
            broken: None,
            message: Vec::new(),
        });
        Ok(())
    }

    /// Makes the host free all objects of a token's owner.
    fn clean_up_owner(&self, index: u32) -> Result<(), CallError> {
        self.mailbox.call_plain(Some(index), &Call::new(Op::ProcessCleanup, &[scratch(index)])).map(|_| ())
    }

    /// Ends the session of a channel, this process's or a dead one's.
    fn detach(&self, core: &mut BridgeState, index: u32) -> Result<(), CallError> {
        if core.session.as_ref().is_some_and(|session| session.index == index) {
            core.session = None;
        }
        self.clean_up_owner(index)?;
        // The pages outlive the process. As the window they would receive the answers to other processes'
        // calls.
        self.mailbox.release_window_of(index)?;
        self.mailbox.device_lock().owners.set_in_use(index, false)?;
        Ok(())
    }

    fn read(&self, offset: u32) -> Result<u32, CallError> {
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
            reg::V2_ATTACHED_LO => self.mailbox.device_lock().owners.tokens_in_use()? as u32,
            reg::V2_ATTACHED_HI => (self.mailbox.device_lock().owners.tokens_in_use()? >> 32) as u32,
            reg::PROTOCOL_VER => self.mailbox.registers().read([reg::PROTOCOL_VER])?[0],
            reg::V2_GENERATION => {
                let [protocol] = self.mailbox.registers().read([reg::PROTOCOL_VER])?;
                if protocol == reg::PROTOCOL_V1 { GENERATION } else { reg::ALL_ONES }
            }
            reg::V2_FREE_MIB => {
                let [free, ..] =
                    self.mailbox.call_plain(None, &Call::new(Op::MemGetInfo, &[]).with_results(2))?;
                u32::try_from(free >> 20).unwrap_or(u32::MAX - 1)
            }
            channel::FIRST.. => self.read_channel(offset - channel::FIRST)?,
            _ => 0,
        })
    }

    fn read_channel(&self, offset: u32) -> Result<u32, CallError> {
        let (index, register) = (offset / channel::STRIDE, offset % channel::STRIDE);
        if index >= MAX_CHANNELS {
            return Ok(0);
        }
        let core = match register {
            // A thread that examines the device must not wait for another thread's call.
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
                if self.mailbox.device_lock().owners.tokens_in_use()? & 1 << index != 0
                    && core.refused == 0 =>
            {
                channel::STATE_ATTACHED
            }
            channel::ERROR => core.refused,
            channel::SESSION if own.is_some() => SESSION,
            // The session of a dead process has a number too, by which it is detached.
            channel::SESSION if self.mailbox.device_lock().owners.tokens_in_use()? & 1 << index != 0 => {
                SESSION
            }
            _ => 0,
        })
    }

    fn write(&self, offset: u32, value: u32) -> Result<(), CallError> {
        let Some(offset) = offset.checked_sub(channel::FIRST) else { return Ok(()) };
        let (index, register) = (offset / channel::STRIDE, offset % channel::STRIDE);
        match (register, value) {
            (channel::CONTROL, channel::ATTACH) => {
                let attached = self.attach(index);
                self.core().refused = match attached {
                    Ok(()) => 0,
                    Err(CallError::Status(OUT_OF_MEMORY)) => Refusal::NoRoom as u32,
                    Err(CallError::Status(_)) => Refusal::Executor as u32,
                    Err(lost @ CallError::Lost(_)) => return Err(lost),
                };
                Ok(())
            }
            // All sessions have the same number, so it is not compared. A write is never delayed: this
            // process executes it.
            (channel::DETACH_SESSION, _) => self.detach(&mut self.core(), index),
            _ => Ok(()),
        }
    }
}

impl Bridge for Version1 {
    fn facts(&self) -> Box<DeviceFacts> {
        self.facts.clone()
    }

    fn lock_file(&self) -> &Path {
        self.mailbox.device_lock().owners.path()
    }

    fn window(&self) -> io::Result<Arc<Mapping>> {
        if let Some(window) = self.window.get() {
            return Ok(Arc::clone(window));
        }
        let window = Arc::new(Mapping::anonymous((WINDOW_MIB as usize) << 20)?);
        Ok(Arc::clone(self.window.get_or_init(|| window)))
    }

    fn payload_pages(&self) -> Option<u32> {
        self.mailbox.window_bytes()
    }

    unsafe fn copy_in(
        &self,
        to: u64,
        source: *const u8,
        bytes: usize,
    ) -> Result<Result<(), u32>, SessionError> {
        self.copy_directly(|host, _| copy::upload(host, to, Payload::Memory(source, bytes)))
    }

    unsafe fn copy_out(
        &self,
        from: u64,
        destination: NonNull<u8>,
        bytes: usize,
    ) -> Result<Result<(), u32>, SessionError> {
        self.copy_directly(|host, translator| {
            // SAFETY: as the caller promises.
            unsafe { copy::download(host, translator.allocations(), from, destination, bytes) }
        })
    }

    fn fail_last_message(&self, code: u32) {
        if let Some(session) = &mut self.core().session {
            session.fail(session.returns.number() - 1, code);
        }
    }
}

impl Registers for Version1 {
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
        self.execute_ring()?;
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
                // Another thread waits for a call. The next process that attaches finds the lock free and has
                // the host free the owner's objects.
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
