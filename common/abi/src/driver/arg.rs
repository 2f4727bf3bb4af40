//! Pointer arguments of the driver API's exports. An export's contract is that of the CUDA function whose
//! name it bears: its pointers are null or what the manual says. These types carry that promise from the
//! signature to the place of use. C creates them; Rust can do so only by an unsafe call.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::slice;

use super::status::CUresult;

/// Result of a driver call, whose error is the status to be returned.
type Result<T = ()> = core::result::Result<T, CUresult>;

/// Address at which an export stores a result: null, or valid for writing one `T`.
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
    /// The pointer is null, or valid for writing one `T` until the called function returns.
    pub const unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Creates a null pointer, for a result that the caller does not need.
    pub const fn nowhere() -> Self {
        Self(ptr::null_mut())
    }

    /// Stores the result. A null pointer is an invalid value.
    pub fn set(self, value: T) -> Result {
        self.check()?.set_if(value);
        Ok(())
    }

    /// Stores the result unless the pointer is null.
    pub fn set_if(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the type's promise: not null, so valid for writing. Callers of C align results, but
            // nothing depends on it.
            unsafe { ptr::write_unaligned(self.0, value) };
        }
    }

    /// Returns the pointer itself unless it is null, for calls that must not act before they can store their
    /// result.
    pub fn check(self) -> Result<Self> {
        if self.0.is_null() { Err(CUresult::INVALID_VALUE) } else { Ok(self) }
    }

    /// Returns whether the pointer is null, so that the caller does not want the result.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the pointer to element `index` of an array that starts here.
    ///
    /// # Safety
    /// The caller of the export promised an array of more than `index` elements.
    #[must_use]
    pub unsafe fn at(self, index: usize) -> Self {
        // SAFETY: upheld by the caller of this function.
        Self(unsafe { self.0.add(index) })
    }
}

/// Address of an argument that is read and written: null, or valid for both.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct InOut<T: Copy>(*mut T);

impl<T: Copy> InOut<T> {
    /// Reads the argument. A null pointer is an invalid value.
    pub fn get(self) -> Result<T> {
        In(self.0.cast_const()).get()
    }

    /// Replaces the argument. A null pointer is an invalid value.
    pub fn set(self, value: T) -> Result {
        Out(self.0).set(value)
    }
}

impl Out<c_char> {
    /// Stores as much of `text` as fits into `bytes`, with a zero at its end.
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

/// Address of an input argument: null, or valid for reading one `T` or an array of them.
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
    /// Returns an argument that the program did not give.
    pub const fn nowhere() -> Self {
        Self(ptr::null())
    }

    /// Wraps a pointer.
    ///
    /// # Safety
    /// The pointer is null, or valid for reading what the manual says until the called function returns.
    pub const unsafe fn new(pointer: *const T) -> Self {
        Self(pointer)
    }

    /// Reads the argument. A null pointer is an invalid value.
    pub fn get(self) -> Result<T> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: the type's promise: not null, so valid for reading.
        Ok(unsafe { ptr::read_unaligned(self.0) })
    }

    /// Returns the array of `count` elements. A null pointer is an invalid value unless `count` is 0.
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

    /// Returns whether the pointer is null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// Address of a text: null, or a text with a zero at its end.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// Returns the text. A null pointer is an invalid value.
    pub fn get<'a>(self) -> Result<&'a CStr> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: the type's promise; the lifetime is the call's, no export keeps a text.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}
