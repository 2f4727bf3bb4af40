//! `errno` as it was: between a program and its C library nothing of ours may be seen.

/// Puts it back when dropped.
pub struct Kept(libc::c_int);

impl Kept {
    /// Saves the thread's `errno`, which is restored when this is dropped.
    pub fn new() -> Self {
        // SAFETY: answers this thread's word.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: the word is there as long as the thread is.
        Self(unsafe { *place })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: as in `new`.
        unsafe { *place = self.0 };
    }
}
