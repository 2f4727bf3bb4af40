//! Pointer arguments of exports. An export's contract is that of the cuBLAS function whose name it bears: its
//! pointers are null or what the manual says. These types carry that promise from the signature to the place
//! of use. Only C creates them.

use core::ffi::{c_int, c_void};

use super::modes::POINTER_MODE_DEVICE;
use super::status::BlasStatus;
use super::types::Scalar;

/// Address at which an export stores a result: null, or valid for writing one `T`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Stores the result.
    ///
    /// # Errors
    /// Returns an invalid value for null.
    pub fn set(self, value: T) -> Result<(), BlasStatus> {
        let place = self.check()?.0;
        // SAFETY: the type's promise: not null, so valid for writing. Callers of C align results, but nothing
        // depends on it.
        unsafe { place.write_unaligned(value) };
        Ok(())
    }

    /// Returns the pointer itself unless it is null, for calls that must not act before they can store their
    /// result.
    ///
    /// # Errors
    /// Returns an invalid value for null.
    pub fn check(self) -> Result<Self, BlasStatus> {
        if self.0.is_null() { Err(BlasStatus::INVALID_VALUE) } else { Ok(self) }
    }
}

/// Alpha or beta: null, or the address of a number of the scale type, in the memory that the handle's pointer
/// mode says.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Factor(*const u8);

impl Factor {
    /// Returns the scalar, or its address in device memory.
    ///
    /// # Errors
    /// Returns an invalid value for null, and not supported for a type that scalars cannot have.
    pub fn get(self, pointer_mode: c_int, scale: c_int) -> Result<Scalar, BlasStatus> {
        if self.0.is_null() {
            return Err(BlasStatus::INVALID_VALUE);
        }
        if pointer_mode == POINTER_MODE_DEVICE {
            return Ok(Scalar::at(self.0.addr() as u64));
        }
        // SAFETY: the type's promise: not null, so a number of the scale type, in host memory in this mode.
        unsafe { Scalar::read(self.0, scale) }.ok_or(BlasStatus::NOT_SUPPORTED)
    }
}

/// Address at which a sum is stored: null, or valid for writing a number of the call's type, in the memory
/// that the handle's pointer mode says.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Place(*mut c_void);

impl Place {
    /// Returns the address.
    ///
    /// # Errors
    /// Returns an invalid value for null.
    pub fn check(self) -> Result<*mut c_void, BlasStatus> {
        if self.0.is_null() { Err(BlasStatus::INVALID_VALUE) } else { Ok(self.0) }
    }
}

/// An address in device memory; never followed here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Address(pub usize);
