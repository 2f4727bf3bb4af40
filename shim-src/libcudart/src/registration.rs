//! What host programs register: fatbins, and the kernels and variables in them, each under the address of
//! its stand-in in the program (`__cudaRegisterFatBinary` and the calls that a compiler puts after it).
//!
//! A program that uses CUDA registers all of its code when it is loaded, whether it will use a GPU or not:
//! GGML has 143 fatbins with 6741 kernels and 1689 variables, in every process that looks for devices. So this is
//! bookkeeping, and it takes no lock: the thread that registered a fatbin owns the lists of its contents until it says
//! that they are complete (`__cudaRegisterFatBinaryEnd`), and an entry takes 8 bytes. Nothing is read through the
//! pointers, nothing is sorted. The first question gathers and sorts; the first use of a kernel or variable hands its
//! fatbin to the driver.
//!
//! Addresses of stand-ins may come again after `dlclose`. What is unregistered is swept before the next
//! registration or question.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
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
    /// The thread that may use `contents` ([`this_thread`]); [`COMPLETE`] once they are.
    owner: AtomicUsize,
    /// The owner's, and then that of who holds the registry.
    contents: UnsafeCell<Contents>,
    /// Its library, once it has been needed.
    library: Mutex<Option<CUlibrary>>,
}

/// [`Fatbin::owner`]: nothing comes any more.
const COMPLETE: usize = 0;

// SAFETY: the pointer is to constant data of a loaded object, which whoever registered it keeps until it unregisters.
unsafe impl Send for Fatbin {}
// SAFETY: as above, and nothing is written through the pointer. `contents` are reached by one thread at a time: their owner, or
// who holds the registry's lock once they are complete.
unsafe impl Sync for Fatbin {}

impl Fatbin {
    fn new(image: *const c_void, owner: usize) -> Self {
        let contents = UnsafeCell::new(Contents { functions: Vec::new(), variables: Vec::new() });
        Self { image, owner: AtomicUsize::new(owner), contents, library: Mutex::new(None) }
    }

    /// Notes an entry, if the calling thread owns the contents and the entry is near enough. False: it did not. Called 8,430
    /// times in a start of GGML, so it is a few loads, compares and a store.
    #[inline]
    fn note(&self, list: List, host: usize, name: usize) -> bool {
        let Some(entry) = Near::new(self.image.addr(), host, name) else { return false };
        if self.owner.load(Ordering::Relaxed) != this_thread() {
            return false;
        }
        // SAFETY: the calling thread owns the contents, and no other reference to them lives in it: this function calls nothing
        // that could come back here.
        let contents = unsafe { &mut *self.contents.get() };
        let entries = match list {
            List::Functions => &mut contents.functions,
            List::Variables => &mut contents.variables,
        };
        if entries.len() == entries.capacity() {
            grow(entries);
        }
        entries.push(entry);
        true
    }

    /// The owner's last word.
    fn complete(&self) {
        if self.owner.load(Ordering::Relaxed) == this_thread() {
            self.owner.store(COMPLETE, Ordering::Release);
        }
    }

    /// Takes the contents out, once they are complete. The caller holds the registry.
    fn take(&self, _registry: &mut Gathered) -> Option<Contents> {
        if self.owner.load(Ordering::Acquire) != COMPLETE {
            return None;
        }
        // SAFETY: the owner has let go of them, as the load above has seen, and the registry is the caller's alone.
        let contents = unsafe { &mut *self.contents.get() };
        Some(core::mem::replace(contents, Contents { functions: Vec::new(), variables: Vec::new() }))
    }

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

/// What tells the calling thread from every other that lives; never [`COMPLETE`].
#[cfg(target_arch = "x86_64")]
#[inline]
fn this_thread() -> usize {
    let thread;
    // SAFETY: the ABI of x86-64 (ELF TLS, variant II) has a thread's own address at its segment's start, and nothing writes there.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) thread, options(readonly, nostack, preserves_flags)) };
    thread
}

/// What tells the calling thread from every other that lives; never [`COMPLETE`].
#[cfg(not(target_arch = "x86_64"))]
fn this_thread() -> usize {
    // SAFETY: has no requirements.
    unsafe { libc::pthread_self() as usize }
}

/// Makes room: at first for as many kernels as GGML's fatbins have on average.
#[cold]
#[inline(never)]
fn grow(entries: &mut Vec<Near>) {
    entries.reserve(entries.len().max(48));
}

/// Which of a fatbin's two lists.
#[derive(Clone, Copy)]
enum List {
    Functions,
    Variables,
}

/// What is in a fatbin.
struct Contents {
    functions: Vec<Near>,
    variables: Vec<Near>,
}

/// An entry as it is registered: where stand-in and name lie, from the fatbin's wrapper on, which is in the same object.
#[derive(Clone, Copy)]
struct Near {
    host: i32,
    name: i32,
}

impl Near {
    fn new(base: usize, host: usize, name: usize) -> Option<Self> {
        let distance = |to: usize| i32::try_from(to.wrapping_sub(base).cast_signed()).ok();
        Some(Self { host: distance(host)?, name: distance(name)? })
    }

    fn far(self, image: *const c_void, fatbin: u32) -> Entry {
        Entry {
            host: image.addr().wrapping_add_signed(self.host as isize),
            name: image.cast::<c_char>().wrapping_offset(self.name as isize),
            fatbin,
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

/// What there is, by address of its stand-in.
struct Gathered {
    functions: Entries,
    variables: Entries,
}

struct Registry {
    fatbins: Vec<Option<Arc<Fatbin>>>,
    /// Indices that are free.
    free: Vec<u32>,
    /// Indices of fatbins whose contents are not in `gathered` yet.
    fresh: Vec<u32>,
    gathered: Gathered,
    /// Whether entries of unregistered fatbins are still there.
    unswept: bool,
}

// SAFETY: the names are pointers to constant data of loaded objects; see `Fatbin`.
unsafe impl Send for Registry {}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    fatbins: Vec::new(),
    free: Vec::new(),
    fresh: Vec::new(),
    gathered: Gathered { functions: Entries::new(), variables: Entries::new() },
    unswept: false,
});

/// The fatbin that was registered last, until its contents are complete: what a handle is compared with first.
static NEWEST: AtomicPtr<Fatbin> = AtomicPtr::new(ptr::null_mut());

fn registry() -> MutexGuard<'static, Registry> {
    // A panic in here could only be one of allocation, between complete states.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    fn sweep(&mut self) {
        if self.unswept {
            self.gathered.functions.sweep(&self.fatbins);
            self.gathered.variables.sweep(&self.fatbins);
            self.unswept = false;
        }
    }

    /// Adds the contents of the fatbins that are complete by now. Those of the calling thread are: it asks.
    fn gather(&mut self) {
        let Self { fatbins, fresh, gathered, .. } = self;
        fresh.retain(|&index| {
            let Some(fatbin) = &fatbins[index as usize] else { return false };
            fatbin.complete();
            let Some(contents) = fatbin.take(gathered) else { return true };
            let far = |near: Near| near.far(fatbin.image, index);
            contents.functions.into_iter().for_each(|near| gathered.functions.add(far(near)));
            contents.variables.into_iter().for_each(|near| gathered.variables.add(far(near)));
            false
        });
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
    find(host, |gathered| &mut gathered.functions)
}

/// The variable registered under a stand-in's address.
pub fn variable(host: *const c_void) -> Option<Found> {
    find(host, |gathered| &mut gathered.variables)
}

fn find(host: *const c_void, list: fn(&mut Gathered) -> &mut Entries) -> Option<Found> {
    let mut guard = registry();
    let registry = &mut *guard;
    registry.sweep();
    registry.gather();
    let entry = list(&mut registry.gathered).find(host.addr())?;
    let fatbin = registry.fatbins[entry.fatbin as usize].clone()?;
    Some(Found { name: entry.name, fatbin, index: entry.fatbin })
}

#[inline]
fn register(handle: *mut *mut c_void, host: usize, name: *const c_char, list: List) {
    let newest = NEWEST.load(Ordering::Acquire);
    if !newest.is_null() && newest.cast() == handle {
        // SAFETY: the handle is of a fatbin that the caller has registered and not unregistered, so it is there.
        let fatbin = unsafe { &*newest };
        if !name.is_null() && fatbin.note(list, host, name.addr()) {
            return;
        }
    }
    register_late(handle, host, name, list);
}

/// Registers what comes from another thread than its fatbin, after its end, or lies too far away.
#[cold]
fn register_late(handle: *mut *mut c_void, host: usize, name: *const c_char, list: List) {
    let mut registry = registry();
    if let Some(fatbin) = registry.index(handle)
        && !name.is_null()
    {
        let entry = Entry { host, name, fatbin };
        match list {
            List::Functions => registry.gathered.functions.add(entry),
            List::Variables => registry.gathered.variables.add(entry),
        }
    }
}

/// The contents of the fatbin with that handle are complete.
fn end(handle: *mut *mut c_void) {
    let newest = NEWEST.load(Ordering::Acquire);
    if !newest.is_null() && newest.cast() == handle {
        // SAFETY: as in `register`.
        unsafe { &*newest }.complete();
        // Another thread may have registered one meanwhile.
        let _ = NEWEST.compare_exchange(newest, ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    } else if let registry = registry()
        && let Some(index) = registry.index(handle)
        && let Some(fatbin) = &registry.fatbins[index as usize]
    {
        fatbin.complete();
    }
}

vgpu_abi::export! {
    /// Registers a fatbin; answers the handle under which its contents are registered.
    pub fn __cudaRegisterFatBinary(image: *mut c_void) -> raw *mut *mut c_void, ptr::null_mut() => {
        if image.is_null() {
            return ptr::null_mut();
        }
        let fatbin = Arc::new(Fatbin::new(image, this_thread()));
        let handle = handle_of(&fatbin);
        let mut registry = registry();
        registry.sweep();
        let index = registry.free.pop().unwrap_or_else(|| {
            registry.fatbins.push(None);
            registry.fatbins.len() as u32 - 1
        });
        registry.fatbins[index as usize] = Some(fatbin);
        registry.fresh.push(index);
        NEWEST.store(handle.cast(), Ordering::Release);
        handle
    }

    /// All of the fatbin's contents are registered.
    pub fn __cudaRegisterFatBinaryEnd(handle: *mut *mut c_void) -> raw (), () => {
        end(handle);
    }

    /// Unregisters a fatbin and its contents.
    pub fn __cudaUnregisterFatBinary(handle: *mut *mut c_void) -> raw (), () => {
        let mut registry = registry();
        let Some(index) = registry.index(handle) else { return };
        let fatbin = registry.fatbins[index as usize].take();
        registry.unswept = true;
        // An entry of the next owner of the index must not be taken for one of this.
        registry.fresh.retain(|&fresh| fresh != index);
        registry.free.push(index);
        let _ = NEWEST.compare_exchange(handle.cast(), ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
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
        register(handle, host.addr(), name, List::Functions);
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
        register(handle, host.addr(), name, List::Variables);
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
        let fatbin = Arc::new(Fatbin::new(ptr::null(), COMPLETE));
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
            let fatbin = Fatbin::new(image, COMPLETE);
            assert_eq!(fatbin.code(), container.as_ptr().cast());
        }
    }

    #[test]
    fn what_is_near_comes_back_as_it_was() {
        let image = [0u8; 64];
        let base: *const c_void = image.as_ptr().cast();
        let name = image.as_ptr().wrapping_add(40);
        let near = Near::new(base.addr(), base.addr() - 4096, name.addr()).unwrap();
        let entry = near.far(base, 3);
        assert_eq!((entry.host, entry.name.addr(), entry.fatbin), (base.addr() - 4096, name.addr(), 3));
        assert!(Near::new(base.addr(), base.addr().wrapping_add(1 << 31), name.addr()).is_none());
        assert!(Near::new(base.addr(), base.addr() - (1 << 31) - 1, name.addr()).is_none());
        assert_eq!(size_of::<Near>(), 8, "6741 of them are in every process that loads GGML");
    }

    #[test]
    fn contents_are_the_owners_until_they_are_complete() {
        let image = [0u8; 64];
        let fatbin = Fatbin::new(image.as_ptr().cast(), this_thread());
        let mut gathered = Gathered { functions: Entries::new(), variables: Entries::new() };
        let host = image.as_ptr().addr();
        assert!(fatbin.note(List::Functions, host + 16, host) && fatbin.note(List::Variables, host, host));
        std::thread::scope(|scope| {
            // Another thread neither adds to them nor completes them.
            let other = scope.spawn(|| {
                fatbin.complete();
                fatbin.note(List::Functions, host, host)
            });
            assert!(!other.join().unwrap());
        });
        assert!(fatbin.take(&mut gathered).is_none());
        fatbin.complete();
        assert!(!fatbin.note(List::Functions, host, host));
        let contents = fatbin.take(&mut gathered).unwrap();
        assert_eq!((contents.functions.len(), contents.variables.len()), (1, 1));
    }
}
