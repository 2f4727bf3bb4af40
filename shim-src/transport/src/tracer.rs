//! The tracer of `vgpu-run trace`, if it is in this process: it is told of every message, of every wait that
//! was not over at once or goes on for long, of kernels' names, and why the host refused something. Without
//! it that costs a message one branch.

use core::sync::atomic::{AtomicU32, Ordering};

use vgpu_trace_format::{EARLIER_WORK, Event, GRAPH, Kernel, RecordKind, Refused, WAIT_ANSWER, WAIT_ROOM};

/// The address that the loader found for a name, or 0. A weak reference and not `dlsym`, which leaves its
/// error to the program.
#[macro_export]
macro_rules! weak_symbol {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: reads the word that the linker makes for the name and the loader fills, with 0 if no
        // library has it.
        unsafe {
            ::core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}

/// What a wait is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// The answer to a message.
    Answer,
    /// A completion word.
    Word(u32),
    /// Room in the ring.
    Room,
}

impl Awaited {
    /// The index of a record.
    const fn index(self) -> u32 {
        match self {
            Self::Answer => WAIT_ANSWER,
            Self::Word(word) => word,
            Self::Room => WAIT_ROOM,
        }
    }
}

/// The tracer's function, or none, for one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracer {
    event: Option<Event>,
    /// Number of the session in this process.
    session: u32,
}

impl Tracer {
    /// Asks the loader for the tracer.
    pub(crate) fn find() -> Self {
        static SESSIONS: AtomicU32 = AtomicU32::new(0);
        let event = weak_symbol!("vgpu_trace_event");
        // SAFETY: `libvgpu-trace.so` alone has the name, as a function of this type; 0 is none.
        let event = unsafe { core::mem::transmute::<usize, Option<Event>>(event) };
        Self { event, session: SESSIONS.fetch_add(1, Ordering::Relaxed) }
    }

    /// A message was written: its kind, its bytes with header and padding, its number, its body.
    #[inline]
    pub(crate) fn message(self, kind: vgpu_wire::Kind, bytes: u64, number: u64, body: &[u8]) {
        let Some(event) = self.event else { return };
        event(RecordKind::Message as u32, u32::from(kind as u16), 0, 0, bytes, number);
        let launched = match kind {
            // The function is the first field of the body.
            vgpu_wire::Kind::Launch => body.first_chunk().map(|function| u32::from_le_bytes(*function)),
            vgpu_wire::Kind::GraphLaunch => Some(GRAPH),
            _ => None,
        };
        if let Some(launched) = launched {
            event(RecordKind::Launch as u32, launched, 0, 0, u64::from(self.session), number);
        }
    }

    /// When a wait begins, on the tracer's clock; 0 without a tracer.
    pub(crate) fn begin(self) -> u64 {
        if self.event.is_none() {
            return 0;
        }
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel's shared page is read and one `timespec` written.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
    }

    /// A wait that began at `begin` is over.
    pub(crate) fn wait(self, awaited: Awaited, begin: u64, slept: bool) {
        if let Some(event) = self.event {
            event(RecordKind::Wait as u32, awaited.index(), begin, 0, 0, u64::from(slept));
        }
    }

    /// A wait goes on longer than waits should; `done` messages have been carried out.
    #[cold]
    pub(crate) fn stall(self, awaited: Awaited, done: impl FnOnce() -> u64) {
        if let Some(event) = self.event {
            event(RecordKind::Stall as u32, awaited.index(), 0, 0, done(), u64::from(self.session));
        }
    }

    /// The host knows a kernel by this number from now on. `name` is called if there is a tracer.
    #[cold]
    pub(crate) fn kernel(self, function: u32, name: impl FnOnce() -> String) {
        let address = weak_symbol!("vgpu_trace_kernel");
        // SAFETY: `libvgpu-trace.so` alone has the name, as a function of this type; 0 is none.
        let tracer = unsafe { core::mem::transmute::<usize, Option<Kernel>>(address) };
        if let Some(tracer) = tracer {
            let name = name();
            // SAFETY: the text is readable while this runs.
            unsafe { tracer(self.session, function, name.as_ptr(), name.len()) };
        }
    }
}

/// Tells the tracer why the host refused a call, or earlier work: the kind of the call's message, the host's
/// status, and the reason in words.
#[cold]
pub fn refused(kind: Option<vgpu_wire::Kind>, status: u32, reason: &str) {
    let address = weak_symbol!("vgpu_trace_refusal");
    // SAFETY: `libvgpu-trace.so` alone has the name, as a function of this type; 0 is none.
    let tracer = unsafe { core::mem::transmute::<usize, Option<Refused>>(address) };
    if let Some(tracer) = tracer {
        let kind = kind.map_or(EARLIER_WORK, |kind| u32::from(kind as u16));
        // SAFETY: the text is readable while this runs.
        unsafe { tracer(kind, status, reason.as_ptr(), reason.len()) };
    }
}
