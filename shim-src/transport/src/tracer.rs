//! The tracer of `vgpu-run trace`, if it is in this process. It receives every message, every wait that was
//! not over at once or takes long, the names of kernels, and the reasons of the host's refusals. Without a
//! tracer, a message pays one branch for that.

use core::sync::atomic::{AtomicU32, Ordering};

use vgpu_trace_format::{EARLIER_WORK, Event, GRAPH, Kernel, RecordKind, Refused, WAIT_ANSWER, WAIT_ROOM};

/// Returns the address that the loader found for a name, or 0. It is a weak reference instead of `dlsym`,
/// which would change the program's `dlerror`.
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

/// Event that a wait is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// The wait is for the reply to a message.
    Answer,
    /// The wait is for the completion word with this index.
    Word(u32),
    /// The wait is for room in the ring.
    Room,
}

impl Awaited {
    /// Returns the index of a record about the wait.
    const fn index(self) -> u32 {
        match self {
            Self::Answer => WAIT_ANSWER,
            Self::Word(word) => word,
            Self::Room => WAIT_ROOM,
        }
    }
}

/// The tracer's function, if there is one, for one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracer {
    event: Option<Event>,
    /// Number of the session in this process.
    session: u32,
}

impl Tracer {
    /// Looks up the tracer's function.
    pub(crate) fn find() -> Self {
        static SESSIONS: AtomicU32 = AtomicU32::new(0);
        let event = weak_symbol!("vgpu_trace_event");
        // SAFETY: `libvgpu-trace.so` alone has the name, as a function of this type; 0 is none.
        let event = unsafe { core::mem::transmute::<usize, Option<Event>>(event) };
        Self { event, session: SESSIONS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Reports that a message was written: its kind, its length with header and padding, its number, and its
    /// body.
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

    /// Returns the time at which a wait starts, on the tracer's clock; 0 without a tracer.
    pub(crate) fn begin(self) -> u64 {
        if self.event.is_none() {
            return 0;
        }
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel's shared page is read and one `timespec` written.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
    }

    /// Reports the end of a wait that started at `begin`.
    pub(crate) fn wait(self, awaited: Awaited, begin: u64, slept: bool) {
        if let Some(event) = self.event {
            event(RecordKind::Wait as u32, awaited.index(), begin, 0, 0, u64::from(slept));
        }
    }

    /// Reports that a wait takes longer than it should. `done` returns the number of messages that the host
    /// has executed.
    #[cold]
    pub(crate) fn stall(self, awaited: Awaited, done: impl FnOnce() -> u64) {
        if let Some(event) = self.event {
            event(RecordKind::Stall as u32, awaited.index(), 0, 0, done(), u64::from(self.session));
        }
    }

    /// Reports the number of a kernel in messages. `name` is called only if there is a tracer.
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

/// Reports to the tracer why the host refused a call, or earlier work: the kind of the call's message, the
/// host's status, and the reason as text.
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
