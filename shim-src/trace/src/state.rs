//! The trace file of this process, in a page that a forked child finds zeroed (`MADV_WIPEONFORK`), so that it
//! creates a file of its own.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::file::{self, File};

const PAGE: usize = 4096;

/// State before the file is opened, which a forked child finds too.
const FRESH: u32 = 0;
/// State while a thread opens the file.
const OPENING: u32 = 1;
/// State once the file is open.
const OPEN: u32 = 2;
/// State of a process that has no file and will not get one.
const OFF: u32 = 3;

/// What lies in the page.
struct TraceState {
    stage: AtomicU32,
    file: File,
}

const _: () = assert!(size_of::<TraceState>() <= PAGE);

static STATE: AtomicPtr<TraceState> = AtomicPtr::new(ptr::null_mut());
/// How many files this process and its forefathers have made: a child counts on.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Returns the file, made at the first call; none if nobody asked for one or none can be made.
#[inline]
pub fn file() -> Option<&'static File> {
    // SAFETY: what STATE holds is null or a page that is never unmapped and holds a TraceState, for which
    // zero is a value.
    let state = unsafe { STATE.load(Ordering::Acquire).as_ref() };
    match state {
        Some(state) if state.stage.load(Ordering::Acquire) == OPEN => Some(&state.file),
        Some(state) if state.stage.load(Ordering::Relaxed) == OFF => None,
        state => open(state),
    }
}

#[cold]
fn open(state: Option<&'static TraceState>) -> Option<&'static File> {
    let state = state.or_else(page)?;
    match state.stage.compare_exchange(FRESH, OPENING, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            let generation = GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
            let opened = file::open(&state.file, generation);
            state.stage.store(if opened { OPEN } else { OFF }, Ordering::Release);
        }
        // Another thread opens the file, which takes some system calls.
        Err(_) => {
            while state.stage.load(Ordering::Acquire) == OPENING {
                // SAFETY: takes nothing.
                unsafe { libc::sched_yield() };
            }
        }
    }
    (state.stage.load(Ordering::Acquire) == OPEN).then_some(&state.file)
}

/// The page, made by whichever thread is first.
fn page() -> Option<&'static TraceState> {
    // SAFETY: a new anonymous mapping; no address is asked for.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    // Linux before 4.14 refuses. Then a child would write into its parent's file: rather no trace.
    // SAFETY: the page was mapped just now.
    let wiped = unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } == 0;
    let first = wiped
        && STATE
            .compare_exchange(ptr::null_mut(), page.cast::<TraceState>(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
    if !first {
        // SAFETY: mapped above, and nobody else has seen it.
        unsafe { libc::munmap(page.cast::<c_void>(), PAGE) };
    }
    // SAFETY: as in `file`.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}
