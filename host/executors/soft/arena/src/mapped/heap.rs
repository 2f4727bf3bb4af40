//! The process's heap. The memory of a session must be returned to the system when the session ends. An
//! allocator keeps most of the memory of freed small allocations, and every page on which one is still in
//! use. After a session that had a large kernel prepared, hundreds of MiB remained in use.

use std::sync::Once;

/// Size in bytes from which on allocations get pages of their own, which are returned when they are freed.
#[cfg(target_env = "gnu")]
const APART: libc::c_int = 256 << 10;

/// Makes large allocations always get pages of their own; by default the GNU allocator raises the threshold
/// at run time. It also limits the number of the allocator's arenas to that of the processors, unless the
/// environment sets it, because each arena keeps pages of its own.
///
/// Call this before many threads are started. Only the first call has an effect.
pub fn keep_apart() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(target_env = "gnu")]
        {
            set(libc::M_MMAP_THRESHOLD, APART);
            let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
            if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
                set(libc::M_ARENA_MAX, libc::c_int::try_from(cpus).unwrap_or(libc::c_int::MAX));
            }
        }
    });
}

#[cfg(target_env = "gnu")]
fn set(parameter: libc::c_int, value: libc::c_int) {
    // SAFETY: `mallopt` accepts any parameter and value, and leaves a parameter unchanged if it refuses the
    // value. It moves no live allocation.
    unsafe {
        libc::mallopt(parameter, value);
    }
}

/// Returns freed memory to the system.
///
/// The time is proportional to the amount that was freed: microseconds for a small amount.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` has no preconditions. The allocator locks its own tables and moves no live
    // allocation.
    unsafe {
        libc::malloc_trim(0);
    }
}
