//! Pointer arguments of exports. An export's contract is that of the NVML function of the same name: its
//! pointers are null or valid as NVML's manual says. These types carry that promise from the signature to the
//! place of use.

use std::ffi::{CStr, c_char, c_uint};

use vgpu_abi::nvml::NvmlReturn;

use crate::Result;

/// Pointer to a result: null, or valid for writing one `T` (and for reading it, if the manual says so).
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

#[cfg(test)]
impl<T> Out<T> {
    /// Returns the pointer that C passes for an array, for tests.
    pub fn from_slice(places: &mut [T]) -> Self {
        Self(places.as_mut_ptr())
    }
}

impl<T: Copy> Out<T> {
    /// Stores the result.
    pub fn set(self, value: T) -> Result {
        let place = self.check()?.0;
        // SAFETY: the type's promise: not null, so valid for writing. Callers of C align results, but nothing
        // depends on it.
        unsafe { place.write_unaligned(value) };
        Ok(())
    }

    /// Reads the value before the call, such as the version of a structure or the size of an array.
    pub fn get(self) -> Result<T> {
        let place = self.check()?.0;
        // SAFETY: the type's promise: not null, so valid for reading where the manual says that it is read.
        Ok(unsafe { place.read_unaligned() })
    }

    /// Fails if the pointer is null, for calls that must not act unless they can return their result.
    pub fn check(self) -> Result<Self> {
        if self.0.is_null() { Err(NvmlReturn::INVALID_ARGUMENT) } else { Ok(self) }
    }

    /// Returns the pointer to the first field of a structure, which is its version.
    pub fn version(self) -> Out<c_uint> {
        Out(self.0.cast())
    }

    /// Stores all `values` in an array. The caller has checked that the array is large enough.
    pub fn set_all(self, values: impl Iterator<Item = T>) -> Result {
        let mut place = self.check()?.0;
        for value in values {
            // SAFETY: the export's caller promised an array that long.
            unsafe { place.write_unaligned(value) };
            place = place.wrapping_add(1);
        }
        Ok(())
    }
}

/// A buffer for a text: null, or writable for the length that the program gives.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*mut c_char);

impl Text {
    /// Stores a text and a terminating zero.
    pub fn set(self, text: &[u8], length: c_uint) -> Result {
        if self.0.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        if text.len() >= length as usize {
            return Err(NvmlReturn::INSUFFICIENT_SIZE);
        }
        self.set_cropped(text, length)
    }

    /// Stores as much of a text as fits, and a terminating zero.
    pub fn set_cropped(self, text: &[u8], length: c_uint) -> Result {
        if self.0.is_null() || length == 0 {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        let take = text.len().min(length as usize - 1);
        // SAFETY: the export's caller promised a buffer of `length` bytes, of which `take` < `length` are
        // written.
        unsafe { self.0.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), take) };
        // SAFETY: `take` is an offset within the buffer.
        let end = unsafe { self.0.add(take) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        Ok(())
    }
}

/// A text argument: null, or a text with a zero at its end.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct InText(*const c_char);

impl InText {
    /// Returns the text's bytes without the zero.
    pub fn get<'a>(self) -> Result<&'a [u8]> {
        if self.0.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        // SAFETY: the export's caller promised a text that ends with zero and lives as long as the call; no
        // export keeps it.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }
}

/// Returns the text in a field that is padded with zeros.
pub fn padded(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}
