//! The only unsafe code of the library: words of host memory that memory operations read and write as a
//! device would, arguments for which [`vgpu_abi::driver::arg`] has no type, and the path of the library
//! itself. `pages` holds pages for pinned allocations, and `linked` images of links.
//!
//! This code never reads the sources of copies or writes their destinations: [`HostAddress`] cannot be
//! dereferenced.

mod linked;
mod pages;

pub use linked::LinkedImage;
pub use pages::Pages;

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vgpu_abi::driver::arg::In;
use vgpu_abi::driver::signature::StandsFor;
use vgpu_abi::driver::{CUdeviceptr, CUhostFn, CUlaunchAttribute, CUlaunchConfig, LAUNCH_PARAM};
use vgpu_image::cubin::{self, Length};

use crate::rule::{CallResult, Rule};

/// An address in device memory. It is never dereferenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct DeviceAddress(pub CUdeviceptr);

impl StandsFor<CUdeviceptr> for DeviceAddress {}

/// An address in host memory of a copy, a registration or a pinned allocation. It is never dereferenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct HostAddress(*const c_void);

impl StandsFor<*const c_void> for HostAddress {}
impl StandsFor<*mut c_void> for HostAddress {}

impl HostAddress {
    pub fn number(self) -> u64 {
        self.0.addr() as u64
    }
}

/// A host function of the program, with its argument.
#[derive(Clone, Copy, Debug)]
pub struct HostFunction {
    call: CUhostFn,
    data: usize,
}

impl HostFunction {
    pub fn new(call: CUhostFn, data: HostAddress) -> Self {
        Self { call, data: data.0.expose_provenance() }
    }

    /// Calls the function with its argument.
    pub fn call(self) {
        // SAFETY: the program promised a function that may be called with this argument once the stream's
        // earlier work is complete, from any thread.
        unsafe { (self.call)(ptr::with_exposed_provenance_mut(self.data)) };
    }
}

/// Kernel parameters, one pointer for each. They are never dereferenced.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Parameters(*mut *mut c_void);

impl StandsFor<*mut *mut c_void> for Parameters {}

impl Parameters {
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Wraps the pointer to parameters in a field of a structure.
    pub const fn from_field(pointer: *mut *mut c_void) -> Self {
        Self(pointer)
    }
}

/// The `extra` argument of a launch: null, or a list of keys and values that ends with `CU_LAUNCH_PARAM_END`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Extra(*mut *mut c_void);

impl StandsFor<*mut *mut c_void> for Extra {}

impl Extra {
    /// Wraps a field of a structure, whose manual guarantees that the list is valid.
    pub const fn from_field(pointer: *mut *mut c_void) -> Self {
        Self(pointer)
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the size in bytes of the parameter buffer that the list names. Its content is not read.
    pub fn buffer_bytes(self) -> CallResult<usize> {
        let [end, buffer, size] = LAUNCH_PARAM;
        let (mut at, mut found, mut pointer) = (self.0, None, false);
        // Each key occurs at most once.
        for _ in 0..3 {
            // SAFETY: the list follows the manual, so it continues up to the end key.
            let key = unsafe { at.read() }.addr();
            if key == end {
                break;
            }
            // SAFETY: a value follows every key but the end key.
            at = unsafe { at.add(1) };
            // SAFETY: as above.
            let value = unsafe { at.read() };
            if key == size && !value.is_null() {
                // SAFETY: the manual defines this value as the address of a `size_t`.
                found = Some(unsafe { value.cast::<usize>().read_unaligned() });
            } else if key == buffer {
                pointer = !value.is_null();
            } else {
                return Err(Rule::LaunchParameters.into());
            }
            // SAFETY: the next key follows a value.
            at = unsafe { at.add(1) };
        }
        Ok(found.filter(|&bytes| pointer || bytes == 0).ok_or(Rule::LaunchParameters)?)
    }
}

/// Address of an image of code.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct ImageAddress(*const c_void);

impl StandsFor<*const c_void> for ImageAddress {}

impl ImageAddress {
    pub fn number(self) -> u64 {
        self.0.addr() as u64
    }

    /// Returns the number of bytes of the image. PTX ends with a zero, and a cubin's headers state its
    /// length.
    pub fn bytes<'a>(self) -> CallResult<&'a [u8]> {
        let start = self.0.cast::<u8>();
        if start.is_null() {
            return Err(Rule::NullArgument.into());
        }
        // SAFETY: an image is a text with an end, or a file with a header, so it has a first byte.
        if unsafe { start.read() } != 0x7f {
            // SAFETY: PTX is passed as a text that ends with a zero.
            return Ok(unsafe { CStr::from_ptr(start.cast()) }.to_bytes());
        }
        let mut known = 64;
        loop {
            // SAFETY: the image's header has 64 bytes, and the headers read so far state that the image has
            // this many.
            let bytes = unsafe { std::slice::from_raw_parts(start, known) };
            match cubin::length(bytes) {
                Ok(Length::More(more)) => known = more,
                // SAFETY: the program promised an image, and its headers state that it ends there.
                Ok(Length::Known(all)) => return Ok(unsafe { std::slice::from_raw_parts(start, all) }),
                Err(_) => return Err(Rule::Image.into()),
            }
        }
    }
}

/// Values of compiler options: numbers, or addresses of buffers.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct JitValues(*mut *mut c_void);

impl StandsFor<*mut *mut c_void> for JitValues {}

impl JitValues {
    /// Restores values from the number that [`Self::kept`] returned.
    pub fn from_kept(number: usize) -> Self {
        Self(ptr::with_exposed_provenance_mut(number))
    }

    /// Converts the address to a number. The program keeps the values at the address.
    pub fn kept(self) -> usize {
        self.0.expose_provenance()
    }

    /// Returns the values of `count` options as numbers. Null is refused unless there are none.
    pub fn words(self, count: usize) -> CallResult<Vec<usize>> {
        if count > 0 && (self.0.is_null() || !self.0.is_aligned()) {
            return Err(Rule::NullArgument.into());
        }
        let word = |index| {
            // SAFETY: the manual has as many values as options.
            let at = unsafe { self.0.add(index) };
            // SAFETY: as above.
            unsafe { at.read() }.addr()
        };
        Ok((0..count).map(word).collect())
    }

    /// Numbers of `CU_JIT_ERROR_LOG_BUFFER` and of the option with its size. The size is replaced by that of
    /// the text.
    const ERROR_LOG: [u32; 2] = [5, 6];

    /// Stores a text in the error log of `options`.
    pub fn store_errors(self, options: &[u32], text: &str) {
        let place = |wanted| options.iter().position(|&option| option == wanted);
        let [Some(buffer), Some(size)] = Self::ERROR_LOG.map(place) else { return };
        // SAFETY: the manual has as many values as options.
        let size_at = unsafe { self.0.add(size) };
        // SAFETY: as above.
        let room = unsafe { size_at.read() }.addr();
        // SAFETY: as above.
        let buffer_at = unsafe { self.0.add(buffer) };
        // SAFETY: as above.
        let buffer = unsafe { buffer_at.read() }.cast::<u8>();
        let Some(most) = room.checked_sub(1).filter(|_| !buffer.is_null()) else { return };
        let bytes = text.len().min(most);
        // SAFETY: the buffer has room for `bytes` and a zero, as its size option says.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), buffer, bytes) };
        // SAFETY: as above; `bytes` is within the buffer.
        let end = unsafe { buffer.add(bytes) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        // SAFETY: the values are the program's to be changed.
        unsafe { size_at.write(ptr::without_provenance_mut(bytes + 1)) };
    }
}

/// Returns the attributes of a launch.
pub fn attributes(config: &CUlaunchConfig) -> CallResult<&[CUlaunchAttribute]> {
    // SAFETY: the manual has an array of that many attributes here, or null and none.
    Ok(unsafe { In::new(config.attributes) }.slice(config.attribute_count as usize)?)
}

/// Stores a value of 4 or 8 bytes atomically, after all earlier stores.
pub fn store(address: usize, bytes: usize, value: u64) {
    let place: *mut c_void = ptr::with_exposed_provenance_mut(address);
    if bytes == 4 {
        // SAFETY: the machine has checked that the word is aligned and lies in memory that the program
        // registered or allocated pinned, and it refuses to release that memory while the operation is
        // pending.
        unsafe { AtomicU32::from_ptr(place.cast()) }.store(value as u32, Ordering::Release);
    } else {
        // SAFETY: as above, for 8 bytes.
        unsafe { AtomicU64::from_ptr(place.cast()) }.store(value, Ordering::Release);
    }
}

/// Loads a value of 4 or 8 bytes atomically.
pub fn load(address: usize, bytes: usize) -> u64 {
    let place: *mut c_void = ptr::with_exposed_provenance_mut(address);
    if bytes == 4 {
        // SAFETY: as in `store`.
        u64::from(unsafe { AtomicU32::from_ptr(place.cast()) }.load(Ordering::Acquire))
    } else {
        // SAFETY: as in `store`.
        unsafe { AtomicU64::from_ptr(place.cast()) }.load(Ordering::Acquire)
    }
}

/// Returns the path of the library itself.
pub fn library() -> Option<PathBuf> {
    // SAFETY: all-zero is a value of this structure of pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is one of this object, and the structure is live.
    let found = unsafe { libc::dladdr(library as *const c_void, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name is the loader's, belongs to an object that stays loaded, and ends with a zero.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}
