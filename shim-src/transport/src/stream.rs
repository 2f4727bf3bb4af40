//! Copies of whole cache lines that bypass the caches, and the fences that order them.

/// Size of a cache line in bytes.
pub(crate) const LINE: usize = 64;

/// Copies whole lines by stores that bypass the caches, and orders them before all later stores.
///
/// # Safety
/// `source` is readable and `destination` writable for `bytes`, a multiple of [`LINE`]. They do not overlap.
/// `destination` is aligned to [`LINE`].
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn stream(destination: *mut u8, source: *const u8, bytes: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    const STEP: usize = size_of::<__m128i>();
    for at in (0..bytes).step_by(STEP) {
        // SAFETY: `at` is below `bytes`, for which the caller promises both.
        let from = unsafe { source.add(at) };
        // SAFETY: as above; a line is a whole number of steps.
        let value = unsafe { _mm_loadu_si128(from.cast()) };
        // SAFETY: as above.
        let to = unsafe { destination.add(at) };
        // SAFETY: as above, and aligned, since lines and steps are.
        unsafe { _mm_stream_si128(to.cast(), value) };
    }
    // Only a fence orders stores that bypass the caches.
    store_fence();
}

/// Copies whole lines out of write-combined memory by loads that fetch a line at a time.
///
/// # Safety
/// The processor has SSE 4.1. `source` is readable and `destination` writable for `bytes`, a multiple of
/// [`LINE`]. They do not overlap. `source` is aligned to [`LINE`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.1")]
pub(crate) unsafe fn stream_lines_out(source: *const u8, destination: *mut u8, bytes: usize) {
    use core::arch::x86_64::{__m128i, _mm_mfence, _mm_storeu_si128, _mm_stream_load_si128};
    const STEP: usize = size_of::<__m128i>();
    // Without the fence, such loads may return lines that were fetched before the other side had published
    // its data.
    _mm_mfence();
    for at in (0..bytes).step_by(STEP) {
        // SAFETY: `at` is below `bytes`, for which the caller promises both.
        let from = unsafe { source.add(at) };
        // SAFETY: as above, and aligned, since lines and steps are.
        let value = unsafe { _mm_stream_load_si128(from.cast_mut().cast()) };
        // SAFETY: as above.
        let to = unsafe { destination.add(at) };
        // SAFETY: as above.
        unsafe { _mm_storeu_si128(to.cast(), value) };
    }
}

/// Copies bytes on processors without stores that bypass the caches.
///
/// # Safety
/// `source` is readable and `destination` writable for `bytes`; they do not overlap.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn stream(destination: *mut u8, source: *const u8, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { core::ptr::copy_nonoverlapping(source, destination, bytes) };
}

/// Orders earlier stores before later stores, including those that bypass the caches.
#[inline]
pub(crate) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of SSE, which every x86-64 processor has.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
