//! What host programs register: fatbins, and the kernels and variables in them, each under the address of
//! its stand-in in the program (`__cudaRegisterFatBinary` and the calls that a compiler puts after it).
//!
//! A program that uses CUDA registers all of its code when it is loaded, whether it will use a GPU or not:
//! GGML has 143 fatbins with 6741 kernels and 1689 variables. So this is bookkeeping: pointers are
//! stored, 24 bytes a kernel; nothing is read through them, nothing is sorted. The first question sorts; the
//! first use of a kernel or variable hands its fatbin to the driver.
//!
//! Addresses of stand-ins may come again after `dlclose`. What is unregistered is swept before the next
//! registration or question.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vgpu_abi::driver::{CUlibrary, LIBRARY_BINARY_IS_PRESERVED};
use vgpu_abi::runtime::{CudaError, Dim3};

use crate::{kernels, process};

/// Magic number of the structure that `__cudaRegisterFatBinary` gets.
const WRAPPER_MAGIC: u32 = 0x4662_43b1;

/// That structure (`fatbinary_section.h`, and `.nvFatBinSegment` of compiled programs).
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const c_void,
    file_or_fatbins: *const c_void,
}

/// A registered fatbin.
pub struct Fatbin {
    /// What was registered: a [`Wrapper`] or the container itself.
    image: *const c_void,
    /// Its library, once it has been needed.
    library: Mutex<Option<CUlibrary>>,
}

// SAFETY: the pointer is to constant data of a loaded object, which whoever registered it keeps until it unregisters.
unsafe impl Send for Fatbin {}
// SAFETY: as above; nothing is written through the pointer.
unsafe impl Sync for Fatbin {}

impl Fatbin {
    /// The fatbin's library; the first call gives it to the driver. Failures are not kept.
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

    /// The container.
    fn code(&self) -> *const c_void {
        // SAFETY: whoever registered the fatbin passed a wrapper or a container, and both begin with four
        // bytes that tell which.
        let magic = unsafe { self.image.cast::<u32>().read_unaligned() };
        if magic != WRAPPER_MAGIC {
            return self.image;
        }
        // SAFETY: the magic number says that it is a wrapper.
        unsafe { self.image.cast::<Wrapper>().read_unaligned() }.data
    }

    /// Gives the library back, if there is one and the driver still takes calls.
    fn unload(&self) {
        let library = self.library.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(library) = library
            && process::initialised().is_some_and(process::Runtime::is_alive)
        {
            // A library that the driver has already dropped is gone as well.
            let _ = cu!(cuLibraryUnload(library));
        }
    }
}

/// A kernel or a variable: its stand-in's address, its name, the index of its fatbin.
struct Entry {
    host: usize,
    name: *const c_char,
    fatbin: u32,
}

/// An entry as it was asked for.
pub struct Found {
    /// The name in the device code, ended by zero.
    pub name: *const c_char,
    /// Where it is.
    pub fatbin: Arc<Fatbin>,
    /// The fatbin's index, until it is unregistered.
    pub index: u32,
}

/// Entries, sorted when they are first searched.
struct Entries {
    list: Vec<Entry>,
    sorted: bool,
}

impl Entries {
    const fn new() -> Self {
        Self { list: Vec::new(), sorted: true }
    }

    fn add(&mut self, entry: Entry) {
        self.list.push(entry);
        self.sorted = false;
    }

    fn sweep(&mut self, fatbins: &[Option<Arc<Fatbin>>]) {
        self.list.retain(|entry| fatbins[entry.fatbin as usize].is_some());
    }

    fn find(&mut self, host: usize) -> Option<&Entry> {
        if !self.sorted {
            self.list.sort_unstable_by_key(|entry| entry.host);
            self.sorted = true;
        }
        let index = self.list.binary_search_by_key(&host, |entry| entry.host).ok()?;
        Some(&self.list[index])
    }
}

struct Registry {
    fatbins: Vec<Option<Arc<Fatbin>>>,
    functions: Entries,
    variables: Entries,
    /// Whether entries of unregistered fatbins are still there.
    unswept: bool,
}

// SAFETY: the names are pointers to constant data of loaded objects; see `Fatbin`.
unsafe impl Send for Registry {}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    fatbins: Vec::new(),
    functions: Entries::new(),
    variables: Entries::new(),
    unswept: false,
});

fn registry() -> MutexGuard<'static, Registry> {
    // A panic in here could only be one of allocation, between complete states.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    fn sweep(&mut self) {
        if self.unswept {
            self.functions.sweep(&self.fatbins);
            self.variables.sweep(&self.fatbins);
            self.unswept = false;
        }
    }

    /// Index of the fatbin with that handle. Its kernels are registered right after it, so the last is looked at first.
    fn index(&self, handle: *mut *mut c_void) -> Option<u32> {
        let is = |slot: &Option<Arc<Fatbin>>| slot.as_ref().is_some_and(|fatbin| handle_of(fatbin) == handle);
        self.fatbins.iter().rposition(is).map(|index| index as u32)
    }
}

fn handle_of(fatbin: &Arc<Fatbin>) -> *mut *mut c_void {
    Arc::as_ptr(fatbin).cast_mut().cast()
}

/// The kernel registered under a stand-in's address.
pub fn function(host: *const c_void) -> Option<Found> {
    let mut guard = registry();
    let registry = &mut *guard;
    registry.sweep();
    found(registry.functions.find(host.addr())?, &registry.fatbins)
}

/// The variable registered under a stand-in's address.
pub fn variable(host: *const c_void) -> Option<Found> {
    let mut guard = registry();
    let registry = &mut *guard;
    registry.sweep();
    found(registry.variables.find(host.addr())?, &registry.fatbins)
}

fn found(entry: &Entry, fatbins: &[Option<Arc<Fatbin>>]) -> Option<Found> {
    let fatbin = fatbins[entry.fatbin as usize].clone()?;
    Some(Found { name: entry.name, fatbin, index: entry.fatbin })
}

fn register(
    handle: *mut *mut c_void,
    host: usize,
    name: *const c_char,
    list: fn(&mut Registry) -> &mut Entries,
) {
    let mut registry = registry();
    if let Some(fatbin) = registry.index(handle)
        && !name.is_null()
    {
        list(&mut registry).add(Entry { host, name, fatbin });
    }
}

vgpu_abi::export! {
    /// Registers a fatbin; answers the handle under which its contents are registered.
    pub fn __cudaRegisterFatBinary(image: *mut c_void) -> raw *mut *mut c_void, ptr::null_mut() => {
        if image.is_null() {
            return ptr::null_mut();
        }
        let fatbin = Arc::new(Fatbin { image, library: Mutex::new(None) });
        let handle = handle_of(&fatbin);
        let mut registry = registry();
        registry.sweep();
        match registry.fatbins.iter().position(Option::is_none) {
            Some(free) => registry.fatbins[free] = Some(fatbin),
            None => registry.fatbins.push(Some(fatbin)),
        }
        handle
    }

    /// All of the fatbin's contents are registered.
    pub fn __cudaRegisterFatBinaryEnd(handle: *mut *mut c_void) -> raw (), () => {
        // The contents are used as they came, whether or not a compiler calls this.
        let _ = handle;
    }

    /// Unregisters a fatbin and its contents.
    pub fn __cudaUnregisterFatBinary(handle: *mut *mut c_void) -> raw (), () => {
        let mut registry = registry();
        let Some(index) = registry.index(handle) else { return };
        let fatbin = registry.fatbins[index as usize].take();
        registry.unswept = true;
        drop(registry);
        kernels::forget(index);
        if let Some(fatbin) = fatbin {
            fatbin.unload();
        }
    }

    /// Registers a kernel. The limits are hints that the image repeats.
    pub fn __cudaRegisterFunction(
        handle: *mut *mut c_void,
        host: *const c_char,
        device: *mut c_char,
        name: *const c_char,
        thread_limit: c_int,
        thread_index: *mut c_uint,
        block_index: *mut c_uint,
        block: *mut Dim3,
        grid: *mut Dim3,
        warp_size: *mut c_int,
    ) -> raw (), () => {
        let _ = (device, thread_limit, thread_index, block_index, block, grid, warp_size);
        register(handle, host.addr(), name, |registry| &mut registry.functions);
    }

    /// Registers a variable.
    pub fn __cudaRegisterVar(
        handle: *mut *mut c_void,
        host: *mut c_char,
        device: *mut c_char,
        name: *const c_char,
        external: c_int,
        bytes: usize,
        constant: c_int,
        global: c_int,
    ) -> raw (), () => {
        let _ = (device, external, bytes, constant, global);
        register(handle, host.addr(), name, |registry| &mut registry.variables);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(host: usize, fatbin: u32) -> Entry {
        Entry { host, name: c"name".as_ptr(), fatbin }
    }

    #[test]
    fn entries_are_found_whatever_their_order() {
        let mut entries = Entries::new();
        for host in [7, 3, 9, 1] {
            entries.add(entry(host, host as u32));
        }
        for host in [1, 3, 7, 9] {
            assert_eq!(entries.find(host).map(|entry| entry.fatbin), Some(host as u32));
        }
        entries.add(entry(2, 2));
        assert_eq!(entries.find(2).map(|entry| entry.fatbin), Some(2));
        assert!(entries.find(8).is_none());
    }

    #[test]
    fn what_belongs_to_a_fatbin_goes_with_it() {
        let mut entries = Entries::new();
        entries.add(entry(16, 0));
        entries.add(entry(32, 1));
        let fatbin = Arc::new(Fatbin { image: ptr::null(), library: Mutex::new(None) });
        entries.sweep(&[None, Some(fatbin)]);
        assert!(entries.find(16).is_none());
        assert!(entries.find(32).is_some());
    }

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
            let fatbin = Fatbin { image, library: Mutex::new(None) };
            assert_eq!(fatbin.code(), container.as_ptr().cast());
        }
    }

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Entry>() <= 24, "6741 of them are in every process that loads GGML");
    }
}
