//! Preservation of `errno`: the program must not see changes that the tracer's own calls make.

/// Saved value of `errno`, restored on drop.
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
