//! A device and the session with it: what all contexts on it share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use vgpu_abi::driver::{STREAM_NON_BLOCKING, attribute};
use vgpu_abi::table;
use vgpu_abi::{CUresult, log};
use vgpu_transport::{LateError, Lost, Session, Word};
use vgpu_wire::body::memory::{MemInfo, MemInfoReply};
use vgpu_wire::body::stream::StreamCreate;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::{JOIN_ALL, Kind, Payload, RoundTrip, pci};
use zerocopy::{FromBytes, IntoBytes};

use crate::context::{self, Context};
use crate::lane::{Lane, Pending};
use crate::memory::Memory;
use crate::pool::Pools;
use crate::sync::Mutex;
use crate::{Result, pool, refusal};

/// What the guest mints numbers for. Numbers are never used again in a session.
#[derive(Clone, Copy, Debug)]
pub enum Minted {
    /// Streams.
    Stream,
    /// Events.
    Event,
    /// Modules.
    Module,
    /// Functions.
    Function,
    /// Instantiated graphs.
    Graph,
    /// Physical memory.
    Physical,
    /// Streams that are held for a function of the host.
    Hold,
}

/// A device of this process. Lives as long as the process.
pub struct Gpu {
    /// The session.
    pub session: Session,
    /// The device as the other shims see it: the host's facts, corrected for the guest.
    pub shown: table::Device,
    /// It has refused a cubin, and taken the PTX of the same image.
    pub refuses_cubins: AtomicBool,
    /// Place among the functions of the bus.
    pub index: usize,
    /// Device memory and pinned memory.
    pub memory: Memory,
    /// All streams together, for what waits for everything.
    pub everything: Lane,
    /// Copies that still read or write pinned memory.
    pub pending: Pending,
    /// See [`Gpu::courier`].
    courier: OnceLock<Lane>,
    /// Held while the courier's stream is made.
    hiring: Mutex<()>,
    ordinal: AtomicI32,
    minted: [AtomicU32; 7],
    primary: OnceLock<(usize, &'static Context)>,
    /// Words whose owner is gone before their last mark was done.
    limbo: Mutex<Vec<Word>>,
    /// Number of the message whose late error was logged last.
    told: AtomicU64,
    /// How often a synchronize left a join behind instead of waiting.
    claims: AtomicU64,
    /// How often the program has learned that work is done.
    lessons: AtomicU64,
    /// Functions of the host that have not returned.
    holds: AtomicU32,
    /// Where stream-ordered allocations come from.
    pub pools: Pools,
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gpu({})", self.session.function().address)
    }
}

/// Attributes that are about host memory, handles and queues beyond what the contract of VGPU-STUB carries, so
/// that the guest cannot do it whatever the host's GPU can. They read 0. Numbers as in `CUdevice_attribute`.
const NOT_IN_A_GUEST: &[u8] = &[
    19, // kernels do not reach the guest's memory: mapped pinned memory,
    83, 88, 89, 91, 99, 100, 101, 113, // managed, pageable, registered memory
    92, 93, 94, 122, 123, // stream memory operations
    96,  // cooperative launches over several devices
    98, 110, 116, 117, 118, 124, // RDMA and its flushes, DMA buffers
    103, 104, 105, 114, 119, 125, 128, // handles for other processes and APIs, IPC
    107, 112, 121, // compressible memory, sparse and deferred arrays
    142, 144, // pools of host memory
    127, // tensor maps
    129, 132, 133, 135, 138, 141, 143, 145, 146, 151, 152, 153, 154, 155, 156, 158, 159, 161, 136,
    137, // decompression engine
];

/// The host's facts with what is the guest's own put in.
fn corrected(facts: &DeviceFacts, pci: [u32; 4], subsystem: u32) -> DeviceFacts {
    let mut facts = *facts;
    let mut set = |id: usize, value: u32| facts.attributes[id] = i32::try_from(value).unwrap_or(0);
    for &id in NOT_IN_A_GUEST {
        set(usize::from(id), 0);
    }
    set(attribute::PCI_DOMAIN_ID as usize, pci[0]);
    set(attribute::PCI_BUS_ID as usize, pci[1]);
    set(attribute::PCI_DEVICE_ID as usize, pci[2]);
    set(attribute::COMPUTE_CAPABILITY_MAJOR as usize, facts.cc_major);
    set(attribute::COMPUTE_CAPABILITY_MINOR as usize, facts.cc_minor);
    // CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID and ..._SUBSYSTEM_ID: device in the high half, vendor in the low.
    facts.attributes[139] = (u32::from(pci::DEVICE) << 16 | u32::from(pci::VENDOR)) as i32;
    facts.attributes[140] = subsystem as i32;
    facts
}

impl Gpu {
    /// A device with an open session and a primary context that is not active.
    pub fn new(session: Session, index: usize) -> Result<&'static Self> {
        let address = session.function().address;
        let subsystem = session.function().subsystem;
        let pci =
            [address.domain, u32::from(address.bus), u32::from(address.device), u32::from(address.function)];
        let facts = corrected(session.facts(), pci, subsystem);
        let gpu: &'static Self = Box::leak(Box::new(Self {
            session,
            shown: table::Device { facts, pci, subsystem, reserved: 0 },
            refuses_cubins: AtomicBool::new(false),
            index,
            memory: Memory::default(),
            everything: Lane::new(JOIN_ALL),
            pending: Pending::default(),
            courier: OnceLock::new(),
            hiring: Mutex::default(),
            ordinal: AtomicI32::new(-1),
            minted: Default::default(),
            primary: OnceLock::new(),
            limbo: Mutex::default(),
            told: AtomicU64::new(0),
            claims: AtomicU64::new(0),
            lessons: AtomicU64::new(0),
            holds: AtomicU32::new(0),
            pools: Pools::default(),
        }));
        pool::create_default(gpu)?;
        let primary = context::create(gpu, true, 0)?;
        gpu.primary.get_or_init(|| primary);
        Ok(gpu)
    }

    /// The CUDA ordinal; -1 for a device that the process does not see.
    pub fn ordinal(&self) -> i32 {
        self.ordinal.load(Ordering::Relaxed)
    }

    /// Tells the device its ordinal.
    pub fn set_ordinal(&self, ordinal: usize) {
        self.ordinal.store(i32::try_from(ordinal).unwrap_or(-1), Ordering::Relaxed);
    }

    /// The primary context, active or not, with its handle.
    pub fn primary(&self) -> Result<(usize, &'static Context)> {
        self.primary.get().copied().ok_or(CUresult::UNKNOWN)
    }

    /// The stream for what streams of other devices do to this device's memory. It belongs to no context, and neither it nor the
    /// legacy stream waits for the other.
    pub fn courier(&self) -> Result<&Lane> {
        if let Some(lane) = self.courier.get() {
            return Ok(lane);
        }
        let _hiring = self.hiring.lock();
        if let Some(lane) = self.courier.get() {
            return Ok(lane);
        }
        let stream = self.mint(Minted::Stream);
        self.send(&StreamCreate { stream, flags: STREAM_NON_BLOCKING, priority: 0, reserved: 0 }, &[])?;
        Ok(self.courier.get_or_init(|| Lane::new(stream)))
    }

    /// An attribute, `CUdevice_attribute`; 0 for an id that the contract has no room for.
    pub fn attribute(&self, id: i32) -> i32 {
        usize::try_from(id).ok().and_then(|id| self.shown.facts.attributes.get(id)).copied().unwrap_or(0)
    }

    /// A number that no object of the kind has had in this session.
    pub fn mint(&self, what: Minted) -> u32 {
        self.minted[what as usize].fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What the host found out late: a sticky error each time, another one once.
    #[inline]
    pub fn late(&self) -> Result {
        self.session.late_error().map_or(Ok(()), |error| Err(self.tell(&error)))
    }

    #[cold]
    fn tell(&self, error: &LateError) -> CUresult {
        // A sticky error comes back with every call; one line about it is enough.
        if self.told.swap(error.message, Ordering::Relaxed) != error.message {
            let kind = match error {
                LateError { ended: true, .. } => "ends the session",
                LateError { sticky: true, .. } => "stays",
                _ => "is reported once",
            };
            let code = CUresult(error.code);
            log::error(format_args!("device {}: {code} of message {} {kind}", self.index, error.message));
        }
        CUresult(error.code)
    }

    /// Sends a message that is not answered; its number.
    #[inline]
    pub fn send<P: Payload>(&self, body: &P, tail: &[&[u8]]) -> Result<u64> {
        self.session.send(body, tail).map_err(|lost| self.report(&lost))
    }

    /// Sends a message and waits for its answer; the host's status is the error.
    pub fn call<P: RoundTrip>(&self, body: P, tail: &[&[u8]], reply: &mut [u8]) -> Result<usize> {
        let answer = self.session.call(body, tail, reply).map_err(|lost| self.report(&lost))?;
        if answer.status != 0 {
            return Err(self.refused(P::KIND, CUresult(answer.status), &answer.why, tail));
        }
        Ok(answer.bytes)
    }

    /// Shows why the host refused a call, where it says why: in the log, in the compiler's logs, and in a trace.
    #[cold]
    fn refused(&self, kind: Kind, code: CUresult, why: &str, tail: &[&[u8]]) -> CUresult {
        if why.is_empty() {
            return code;
        }
        let why = with_name(kind, tail, why);
        let line = format_args!("device {}: {} is refused with {code}: {why}", self.index, kind.name());
        // Programs ask for kernels to learn whether there are any.
        if code == CUresult::NOT_FOUND {
            log::debug(line);
        } else {
            log::error(line);
            vgpu_transport::trace_refusal(kind, code.0, &why);
        }
        refusal::keep(&why);
        code
    }

    /// Sends a message and waits for its answer, a structure.
    pub fn ask<P: RoundTrip, R: FromBytes + IntoBytes>(&self, body: P, tail: &[&[u8]]) -> Result<R> {
        let mut reply = R::new_zeroed();
        let bytes = self.call(body, tail, reply.as_mut_bytes())?;
        if bytes < size_of::<R>() {
            log::error(format_args!(
                "device {}: an answer to {} has {bytes} bytes, not {}",
                self.index,
                P::KIND.name(),
                size_of::<R>()
            ));
            return Err(CUresult::UNKNOWN);
        }
        Ok(reply)
    }

    /// Free and total memory of the device: by a register while the process only looks, else exactly, by message.
    pub fn memory_info(&self) -> Result<MemInfoReply> {
        match self.session.free_memory().map_err(|lost| self.report(&lost))? {
            Some(free) => Ok(MemInfoReply { free, total: self.shown.facts.total_bytes }),
            None => self.ask(MemInfo { reply: 0, reserved: 0 }, &[]),
        }
    }

    /// Waits until a word has a value.
    pub fn wait(&self, word: u32, value: u64) -> Result {
        self.session.wait(word, value).map_err(|lost| self.report(&lost))?;
        self.learned();
        Ok(())
    }

    /// Whether a word has a value. When it does not yet, also whether the device still stands.
    pub fn reached(&self, word: u32, value: u64) -> Result<bool> {
        if self.session.word_value(word) >= value {
            return Ok(true);
        }
        self.session.check().map_err(|lost| self.report(&lost))?;
        Ok(false)
    }

    /// Turns the transport's answer into a status. The end of a session is told in the log by the transport's own notice.
    #[cold]
    pub fn report(&self, lost: &Lost) -> CUresult {
        if !lost.is_final() {
            log::error(format_args!("device {}: {lost}", self.index));
        }
        CUresult(lost.code())
    }

    /// A completion word; out of memory when all are in use, and its own code where the session is over.
    pub fn take_word(&self) -> Result<Word> {
        if let Some(word) = self.session.word() {
            return Ok(word);
        }
        self.sweep_limbo();
        if let Some(word) = self.session.word() {
            return Ok(word);
        }
        // A session that is over has no words either.
        self.session.check().map_err(|lost| self.report(&lost))?;
        Err(CUresult::OUT_OF_MEMORY)
    }

    /// Gives a word back once its last mark is done: until then the next owner's marks could be mistaken for it.
    pub fn retire(&self, word: Word) {
        if self.session.word_value(word.index()) < word.last() {
            self.limbo.lock().push(word);
        }
        self.sweep_limbo();
    }

    fn sweep_limbo(&self) {
        self.limbo.lock().retain(|word| self.session.word_value(word.index()) < word.last());
    }

    /// Really waits for all work of all streams, and then reports what it ran into.
    pub fn drain(&self) -> Result {
        if self.session.number() == 0 {
            // Nothing was ever said to the host: there is nothing to wait for, and no reason to attach.
            return self.late();
        }
        let (word, value) = self.everything.signal_always(self)?;
        self.wait(word, value)?;
        self.pending.forget_done(self);
        self.late()
    }

    /// What CUDA calls an implicit synchronisation: everything later comes after everything earlier, and nothing of the host's
    /// memory is in use any more. Waits only when some is.
    pub fn settle(&self) -> Result {
        if self.pending.forget_done(self) {
            self.join(JOIN_ALL);
            self.late()
        } else {
            self.drain()
        }
    }

    /// Lets all later work come after what a stream was given so far, and the program believe that it is done.
    pub fn join(&self, stream: u32) {
        self.session.join(stream);
        self.claims.fetch_add(1, Ordering::Release);
        self.learned();
    }

    /// How often that has been so. Of a record that is older than the newest claim it must not be said that it is not
    /// done: it may be what the claim was about.
    #[inline]
    pub fn claims(&self) -> u64 {
        self.claims.load(Ordering::Acquire)
    }

    /// One more function of the host that streams are held for, or one less.
    pub fn held(&self, more: bool) {
        if more {
            self.holds.fetch_add(1, Ordering::AcqRel);
        } else {
            self.holds.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether a stream is held. Then a query must not wait where it could say that work is not done: the function may wait for
    /// the very thread that asks.
    pub fn holds(&self) -> bool {
        self.holds.load(Ordering::Acquire) != 0
    }

    /// The program has learned that some work is done.
    pub fn learned(&self) {
        self.lessons.fetch_add(1, Ordering::Release);
    }

    /// How often that has been so. A stream whose newest work is older may be done, though a mark that is asked for only now
    /// comes a moment later.
    #[inline]
    pub fn lessons(&self) -> u64 {
        self.lessons.load(Ordering::Acquire)
    }
}

/// The host's words about a kernel, with the kernel's name where the host leaves it out.
fn with_name(kind: Kind, tail: &[&[u8]], why: &str) -> String {
    let name = tail.first().filter(|_| kind == Kind::FunctionGet).map(|name| String::from_utf8_lossy(name));
    match name {
        Some(name) if !why.contains(&*name) => format!("kernel {name}: {why}"),
        _ => why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn the_guests_own_facts_replace_the_hosts() {
        let mut host = DeviceFacts::new_zeroed();
        host.attributes = [7; 192];
        host.cc_major = 8;
        host.cc_minor = 9;
        let seen = corrected(&host, [2, 3, 5, 0], 0x16c1_10de);
        assert_eq!(seen.attributes[50], 2);
        assert_eq!(seen.attributes[33], 3);
        assert_eq!(seen.attributes[34], 5);
        assert_eq!((seen.attributes[75], seen.attributes[76]), (8, 9));
        assert_eq!(seen.attributes[139], 0x2331_10de);
        assert_eq!(seen.attributes[140], 0x16c1_10de);
        assert_eq!(seen.attributes[19], 0);
        assert_eq!(seen.attributes[83], 0);
        assert_eq!(seen.attributes[16], 7, "multiprocessors are the host's");
        assert_eq!(seen.attributes[102], 7, "so is virtual memory management");
    }

    #[test]
    fn a_refused_kernel_is_named() {
        let of = |kind, why| with_name(kind, &[b"mine"], why);
        assert_eq!(
            of(Kind::FunctionGet, "line 7: no such instruction"),
            "kernel mine: line 7: no such instruction"
        );
        assert_eq!(of(Kind::FunctionGet, "mine, line 7"), "mine, line 7");
        assert_eq!(of(Kind::ModuleLoad, "line 7"), "line 7");
        assert_eq!(with_name(Kind::FunctionGet, &[], "why"), "why");
    }
}
