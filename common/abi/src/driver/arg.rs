//! Arguments of the driver API's exports that are pointers. An export's contract is that of the CUDA function
//! whose name it bears: its pointers are null or what the manual says. These types carry that promise from
//! the signature to the place of use; C makes them, Rust can do so by an unsafe call alone.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::slice;

use super::status::CUresult;

/// What a call of the driver API comes to: nothing, or the status to be returned.
type Result<T = ()> = core::result::Result<T, CUresult>;

/// Where a result goes: null, or valid for writing one `T`.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Wraps a pointer.
    ///
    /// # Safety
    /// It is null or valid for writing one `T` until the call that it is handed to returns.
    pub const unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// For a result that nobody wants.
    pub const fn nowhere() -> Self {
        Self(ptr::null_mut())
    }

    /// Stores the result; null is an invalid value.
    pub fn set(self, value: T) -> Result {
        self.check()?.set_if(value);
        Ok(())
    }

    /// Stores the result if it is wanted.
    pub fn set_if(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the type's promise: not null, so valid for writing. Callers of C align results, but
            // nothing depends on it.
            unsafe { ptr::write_unaligned(self.0, value) };
        }
    }

    /// Itself, unless null. For calls that must not act before they know that they can answer.
    pub fn check(self) -> Result<Self> {
        if self.0.is_null() { Err(CUresult::INVALID_VALUE) } else { Ok(self) }
    }

    /// Whether nobody wants the result.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The place `index` places further in an array.
    ///
    /// # Safety
    /// The caller of the export promised an array that long.
    #[must_use]
    pub unsafe fn at(self, index: usize) -> Self {
        // SAFETY: upheld by the caller of this function.
        Self(unsafe { self.0.add(index) })
    }
}

/// An argument that is read and written: null, or valid for both.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct InOut<T: Copy>(*mut T);

impl<T: Copy> InOut<T> {
    /// What is there; null is an invalid value.
    pub fn get(self) -> Result<T> {
        In(self.0.cast_const()).get()
    }

    /// Replaces it; null is an invalid value.
    pub fn set(self, value: T) -> Result {
        Out(self.0).set(value)
    }
}

impl Out<c_char> {
    /// Stores as much of `text` as fits into `bytes`, ended by zero.
    pub fn set_text(self, text: &[u8], bytes: usize) -> Result {
        let to = self.check()?.0;
        let Some(most) = bytes.checked_sub(1) else { return Err(CUresult::INVALID_VALUE) };
        let take = text.len().min(most);
        // SAFETY: the export's caller promised a buffer of `bytes`, of which `take` < `bytes` are written.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), take) };
        // SAFETY: `take` is an offset within the buffer.
        let end = unsafe { to.add(take) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        Ok(())
    }
}

/// Where an argument lies: null, or valid for reading one `T` or an array of them.
#[derive(Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// Wraps a pointer.
    ///
    /// # Safety
    /// It is null or valid for reading what the manual says, until the call that it is handed to returns.
    pub const unsafe fn new(pointer: *const T) -> Self {
        Self(pointer)
    }

    /// The argument; null is an invalid value.
    pub fn get(self) -> Result<T> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: the type's promise: not null, so valid for reading.
        Ok(unsafe { ptr::read_unaligned(self.0) })
    }

    /// An array of `count`; null is an invalid value unless it is empty.
    pub fn slice<'a>(self, count: usize) -> Result<&'a [T]> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() || !self.0.is_aligned() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: the export's caller promised an array of `count` that nobody changes during the call; the
        // lifetime is the call's, no export keeps a slice.
        Ok(unsafe { slice::from_raw_parts(self.0, count) })
    }

    /// Whether nothing was given.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// A text: null, or ended by zero.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The text; null is an invalid value.
    pub fn get<'a>(self) -> Result<&'a CStr> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: the type's promise; the lifetime is the call's, no export keeps a text.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}
