//! The process's heap: what sessions had is to be the system's again when they end. An allocator keeps most
//! of what small allocations were made of, and a page as long as one of them is in use: of one session that
//! had a large kernel made ready hundreds of MiB stayed.

use std::sync::Once;

/// Bytes of allocations that have pages of their own, which go back with them.
#[cfg(target_env = "gnu")]
const APART: libc::c_int = 256 << 10;

/// Has large allocations have pages of their own, always: the GNU allocator puts ever larger ones among the
/// small ones otherwise. And has it make no more arenas than there are processors, where the environment does
/// not say how many: each keeps pages of its own.
///
/// To be called before there are many threads; only the first call does anything.
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
    // SAFETY: any parameter may be set to any value: one that is refused stays what it is. Nothing that is in
    // use moves.
    unsafe {
        libc::mallopt(parameter, value);
    }
}

/// Gives memory that was freed back to the system.
///
/// It takes time in proportion to what was freed: microseconds where that is little.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no conditions. The allocator locks its own tables, and nothing that is in use moves.
    unsafe {
        libc::malloc_trim(0);
    }
}
