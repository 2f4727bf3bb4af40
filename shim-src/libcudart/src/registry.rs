//! Registrations of host programs: fat binaries, and their kernels and variables, each under the address of
//! its host stub or host variable (`__cudaRegisterFatBinary` and the calls that a compiler puts after it).
//!
//! A program that uses CUDA registers all of its code when it is loaded, whether it will use a GPU or not:
//! GGML has 143 fat binaries with 6741 kernels and 1689 variables, in every process that lists devices.
//! So registration only stores addresses, and an entry takes no lock: the thread that registered a fat binary
//! owns the [writer](crate::writer) until it announces that the contents are complete
//! (`__cudaRegisterFatBinaryEnd`). Nothing is read through the pointers, and nothing is sorted. The first
//! lookup gathers and sorts ([`crate::entries`]); the first use of a kernel or variable loads its fat binary
//! into the driver.
//!
//! Addresses of host stubs may be reused after `dlclose`. Unregistered entries are removed before the next
//! registration or lookup.

use core::ffi::{c_char, c_void};
use core::ptr;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use vgpu_abi::driver::{CUlibrary, LIBRARY_BINARY_IS_PRESERVED};
use vgpu_abi::runtime::CudaError;

use crate::entries::{Entries, Entry, Gathered, List};
use crate::process;
use crate::writer::WRITER;

/// Longest time for which a lookup waits for the contents of a fat binary that another thread registers.
/// GGML's take less than a millisecond each. The code of compilers before CUDA 10.1 does not announce the
/// end.
const REGISTRATION_MOST: Duration = Duration::from_secs(1);

/// Magic number of the structure that `__cudaRegisterFatBinary` is given.
const WRAPPER_MAGIC: u32 = 0x4662_43b1;

/// The structure that `__cudaRegisterFatBinary` is given (`fatbinary_section.h`, and `.nvFatBinSegment` of
/// compiled programs).
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const c_void,
    file_or_fatbins: *const c_void,
}

/// A registered fat binary, until it is unregistered.
pub struct Fatbin {
    /// Registered address: a [`Wrapper`] or the container itself.
    image: *const c_void,
    /// Library of the fat binary, once it has been needed.
    library: Mutex<Option<CUlibrary>>,
}

// SAFETY: the pointer is to constant data of a loaded object, which whoever registered it keeps until it
// unregisters.
unsafe impl Send for Fatbin {}
// SAFETY: as above, and nothing is written through the pointer.
unsafe impl Sync for Fatbin {}

impl Fatbin {
    fn new(image: *const c_void) -> Self {
        Self { image, library: Mutex::new(None) }
    }

    /// Returns the fat binary's library, which the first call loads into the driver. Failures are not
    /// remembered.
    pub fn library(&self) -> Result<CUlibrary, CudaError> {
        let mut library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = *library {
            return Ok(library);
        }
        let mut loaded = CUlibrary::NULL;
        let mut options = [LIBRARY_BINARY_IS_PRESERVED];
        let mut values = [ptr::without_provenance_mut::<c_void>(1)];
        cu!(cuLibraryLoadData(
            &raw mut loaded,
            self.code(),
            ptr::null_mut(),
            ptr::null_mut(),
            0,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
            1,
        ))?;
        *library = Some(loaded);
        Ok(loaded)
    }

    /// Returns the fat binary that the program registered.
    fn code(&self) -> *const c_void {
        // SAFETY: whoever registered the fatbin passed a wrapper or a container, and both start with four
        // bytes that tell which.
        let magic = unsafe { self.image.cast::<u32>().read_unaligned() };
        if magic != WRAPPER_MAGIC {
            return self.image;
        }
        // SAFETY: the magic number says that it is a wrapper.
        unsafe { self.image.cast::<Wrapper>().read_unaligned() }.data
    }

    /// Unloads the library, if there is one and the driver still accepts calls.
    pub fn unload(&self) {
        let library = self.library.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(library) = library
            && process::initialised().is_some_and(process::Runtime::is_alive)
        {
            // A library that the driver has dropped already is gone as well.
            let _ = cu!(cuLibraryUnload(library));
        }
    }
}

/// Result of a lookup by a host address.
pub struct Found {
    /// Name in the device code, with a zero at its end, of the kernel or variable.
    pub name: *const c_char,
    /// The fat binary that contains it.
    pub fatbin: Arc<Fatbin>,
    /// Number of that fat binary.
    pub number: u32,
}

/// All registrations of the process.
pub struct Registry {
    /// The fat binaries by their numbers. A number is never reused.
    fatbins: BTreeMap<u32, Arc<Fatbin>>,
    /// Number of the next fat binary.
    next: u32,
    gathered: Gathered,
    /// Whether `gathered` may have entries of unregistered fat binaries.
    unswept: bool,
}

// SAFETY: the names are pointers to constant data of loaded objects, see `Fatbin`.
unsafe impl Send for Registry {}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { fatbins: BTreeMap::new(), next: 0, gathered: Gathered::new(), unswept: false });

/// Locks the registry and returns it.
pub fn registry() -> MutexGuard<'static, Registry> {
    // A panic here could only come from an allocation, between complete states.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Adds a fatbin. Returns the handle under which its contents are registered.
    pub fn add(&mut self, image: *const c_void) -> *mut *mut c_void {
        self.sweep();
        let fatbin = Arc::new(Fatbin::new(image));
        let (handle, number) = (handle_of(&fatbin), self.next);
        self.next += 1;
        self.fatbins.insert(number, fatbin);
        // While another thread registers, this fatbin's entries take the slow path (`register_late`).
        if WRITER.try_own() {
            WRITER.mine(|open| (open.handle, open.fatbin) = (handle, number));
        }
        handle
    }

    /// Removes the fat binary of a handle, and returns it with its number. Returns `None` for an unknown
    /// handle.
    pub fn remove(&mut self, handle: *mut *mut c_void) -> Option<(u32, Arc<Fatbin>)> {
        let number = self.number(handle)?;
        let fatbin = self.fatbins.remove(&number)?;
        self.unswept = true;
        WRITER.end(handle);
        Some((number, fatbin))
    }

    fn sweep(&mut self) {
        if self.unswept {
            let is_registered = |fatbin: u32| self.fatbins.contains_key(&fatbin);
            self.gathered.functions.sweep(is_registered);
            self.gathered.variables.sweep(is_registered);
            self.unswept = false;
        }
    }

    /// Moves the entries of the log to the lists, unless another thread is writing to the log. Entries of the
    /// calling thread's open fat binary are complete, because it looks one up. Returns whether the log was
    /// moved.
    fn gather(&mut self) -> bool {
        if !WRITER.try_own() {
            return false;
        }
        WRITER.mine(|open| {
            open.handle = ptr::null_mut();
            for (list, entry) in open.log.drain() {
                if self.fatbins.contains_key(&entry.fatbin) {
                    self.gathered.add(list, entry);
                }
            }
        });
        WRITER.release();
        true
    }

    /// Returns the number of the fatbin with that handle. Its kernels are registered right after it, so the
    /// last one is compared first.
    fn number(&self, handle: *mut *mut c_void) -> Option<u32> {
        let is = |(_, fatbin): &(&u32, &Arc<Fatbin>)| handle_of(fatbin) == handle;
        self.fatbins.iter().rev().find(is).map(|(number, _)| *number)
    }
}

fn handle_of(fatbin: &Arc<Fatbin>) -> *mut *mut c_void {
    Arc::as_ptr(fatbin).cast_mut().cast()
}

/// Returns the kernel registered under the address of a host stub.
pub fn function(host: *const c_void) -> Option<Found> {
    find(host, |gathered| &mut gathered.functions)
}

/// Returns the variable registered under the address of a host variable.
pub fn variable(host: *const c_void) -> Option<Found> {
    find(host, |gathered| &mut gathered.variables)
}

fn find(host: *const c_void, list: fn(&mut Gathered) -> &mut Entries) -> Option<Found> {
    let mut end = None;
    loop {
        match find_now(host, list) {
            Ok(found) => return Some(found),
            Err(true) => return None,
            Err(false) => {}
        }
        // The entry may be in the log, to which another thread is writing.
        if Instant::now() > *end.get_or_insert_with(|| Instant::now() + REGISTRATION_MOST) {
            return None;
        }
        thread::yield_now();
    }
}

/// Looks an address up. An error holds whether all registered entries were searched.
fn find_now(host: *const c_void, list: fn(&mut Gathered) -> &mut Entries) -> Result<Found, bool> {
    let mut guard = registry();
    let registry = &mut *guard;
    registry.sweep();
    let complete = registry.gather();
    let entry = list(&mut registry.gathered).find(host.addr()).ok_or(complete)?;
    let fatbin = registry.fatbins.get(&entry.fatbin).ok_or(complete)?;
    Ok(Found { name: entry.name, fatbin: Arc::clone(fatbin), number: entry.fatbin })
}

/// Registers a kernel or a variable under the address of its host stub or host variable.
#[inline]
pub fn register(handle: *mut *mut c_void, host: usize, name: *const c_char, list: List) {
    if name.is_null() || !WRITER.append(handle, list, host, name) {
        register_late(handle, host, name, list);
    }
}

/// Registers an entry that comes from another thread than its fat binary, or after the fat binary's end.
/// Ignores one without a name.
#[cold]
#[inline(never)]
fn register_late(handle: *mut *mut c_void, host: usize, name: *const c_char, list: List) {
    let mut registry = registry();
    if !name.is_null()
        && let Some(fatbin) = registry.number(handle)
    {
        registry.gathered.add(list, Entry { host, name, fatbin });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_container_is_what_the_wrapper_points_to() {
        let container = [0x50_u8, 0xed, 0x55, 0xba, 1, 0, 16, 0];
        let wrapper = Wrapper {
            magic: WRAPPER_MAGIC,
            version: 1,
            data: container.as_ptr().cast(),
            file_or_fatbins: ptr::null(),
        };
        for image in [(&raw const wrapper).cast(), container.as_ptr().cast::<c_void>()] {
            let fatbin = Fatbin::new(image);
            assert_eq!(fatbin.code(), container.as_ptr().cast());
        }
    }

    static IMAGE: [u8; 64] = [0; 64];

    fn begin() -> *mut *mut c_void {
        registry().add(IMAGE.as_ptr().cast())
    }

    /// Registers a kernel whose host stub is `host` bytes after the image.
    fn kernel(handle: *mut *mut c_void, host: usize) {
        register(handle, IMAGE.as_ptr().addr() + host, c"kernel".as_ptr(), List::Functions);
    }

    fn finish(handle: *mut *mut c_void) {
        WRITER.end(handle);
    }

    fn undo(handle: *mut *mut c_void) {
        assert!(registry().remove(handle).is_some());
    }

    fn there(host: usize) -> bool {
        function(ptr::without_provenance(IMAGE.as_ptr().addr() + host)).is_some()
    }

    // Everything is one test, because the registry belongs to the process.
    #[test]
    fn kernels_are_there_from_their_registration_to_its_end() {
        let first = begin();
        kernel(first, 0x1000);
        std::thread::scope(|scope| {
            // Another thread registers and looks up entries at the same time.
            let first = first.addr();
            scope.spawn(move || {
                let second = begin();
                assert_ne!(second.addr(), first);
                kernel(second, 0x2000);
                finish(second);
                assert!(there(0x2000) && !there(0x1000), "the first thread's are not complete");
            });
        });
        kernel(first, 0x1100);
        finish(first);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(there(0x1000) && there(0x1100) && there(0x2000)));
        });
        // It is unregistered before any lookup, so that its entry is still in the log.
        let gone = begin();
        kernel(gone, 0x3000);
        finish(gone);
        undo(gone);
        let next = begin();
        kernel(next, 0x4000);
        // The thread whose fat binary is still open looks an entry up.
        assert!(there(0x4000) && !there(0x3000));
        kernel(next, 0x4100);
        assert!(there(0x4100));
        undo(next);
        undo(first);
        assert!(!there(0x4000) && !there(0x1000) && there(0x2000));
    }
}
