//! The tracer of `vgpu-run trace`, if it is in this process: it is told of every message, of every wait that
//! was not over at once, and why the host refused a call. Without it that costs a message one branch.

use core::arch::asm;

use vgpu_trace_format::{Event, Kind, Refused, WAIT_ANSWER, WAIT_ROOM};

/// The address that the loader found for a name, or 0. A weak reference and not `dlsym`, which leaves its
/// error to the program.
macro_rules! weak_symbol {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: reads the word that the linker makes for the name and the loader fills, with 0 if no
        // library has it.
        unsafe {
            asm!(
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

/// The tracer's function, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracer(Option<Event>);

impl Tracer {
    /// Asks the loader for the tracer.
    pub(crate) fn find() -> Self {
        let event = weak_symbol!("vgpu_trace_event");
        // SAFETY: `libvgpu-trace.so` alone has the name, as a function of this type; 0 is none.
        Self(unsafe { core::mem::transmute::<usize, Option<Event>>(event) })
    }

    /// A message was written: its kind, its bytes with header and padding, its number.
    #[inline]
    pub(crate) fn message(self, kind: vgpu_wire::Kind, bytes: u64, number: u64) {
        if let Some(event) = self.0 {
            event(Kind::Message as u32, u32::from(kind as u16), 0, 0, bytes, number);
        }
    }

    /// When a wait begins, on the tracer's clock; 0 without a tracer.
    pub(crate) fn begin(self) -> u64 {
        if self.0.is_none() {
            return 0;
        }
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel's shared page is read and one `timespec` written.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
    }

    /// A wait that began at `begin` is over.
    pub(crate) fn wait(self, awaited: Awaited, begin: u64, slept: bool) {
        if let Some(event) = self.0 {
            let index = match awaited {
                Awaited::Answer => WAIT_ANSWER,
                Awaited::Word(word) => word,
                Awaited::Room => WAIT_ROOM,
            };
            event(Kind::Wait as u32, index, begin, 0, 0, u64::from(slept));
        }
    }
}

/// Tells the tracer why the host refused a call: the kind of message, the host's status, and the reason in
/// words.
#[cold]
pub fn refused(kind: vgpu_wire::Kind, status: u32, reason: &str) {
    let address = weak_symbol!("vgpu_trace_refusal");
    // SAFETY: `libvgpu-trace.so` alone has the name, as a function of this type; 0 is none.
    let tracer = unsafe { core::mem::transmute::<usize, Option<Refused>>(address) };
    if let Some(tracer) = tracer {
        // SAFETY: the text is readable while this runs.
        unsafe { tracer(u32::from(kind as u16), status, reason.as_ptr(), reason.len()) };
    }
}
