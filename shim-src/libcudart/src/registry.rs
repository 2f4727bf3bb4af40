//! What host programs have registered: fatbins, and the kernels and variables in them, each under the address
//! of its stand-in in the program (`__cudaRegisterFatBinary` and the calls that a compiler puts after it).
//!
//! A program that uses CUDA registers all of its code when it is loaded, whether it will use a GPU or not:
//! GGML has 143 fatbins with 6741 kernels and 1689 variables, in every process that looks for devices. So
//! this is bookkeeping, and an entry takes no lock: the thread that registered a fatbin has the
//! [writer](crate::writer) until it says that the contents are complete (`__cudaRegisterFatBinaryEnd`).
//! Nothing is read through the pointers, nothing is sorted. The first question gathers and sorts
//! ([`crate::entries`]); the first use of a kernel or variable hands its fatbin to the driver.
//!
//! Addresses of stand-ins may come again after `dlclose`. What is unregistered is swept before the next
//! registration or question.

use core::ffi::{c_char, c_void};
use core::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vgpu_abi::driver::{CUlibrary, LIBRARY_BINARY_IS_PRESERVED};
use vgpu_abi::runtime::CudaError;

use crate::entries::{Entries, Entry, Gathered, List};
use crate::process;
use crate::writer::WRITER;

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

/// A registered fatbin.
pub struct Fatbin {
    /// What was registered: a [`Wrapper`] or the container itself.
    image: *const c_void,
    /// Its library, once it has been needed.
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

    /// The fat binary that the program registered.
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

/// The answer to a question for a stand-in.
pub struct Found {
    /// The name in the device code, ended by zero.
    pub name: *const c_char,
    /// Where it is.
    pub fatbin: Arc<Fatbin>,
    /// The fatbin's index, until it is unregistered.
    pub index: u32,
}

/// A fatbin and the place of its contents in the log; null where the log has none, or none any more.
struct Slot {
    fatbin: Arc<Fatbin>,
    logged: *const u32,
}

/// Everything that is registered.
pub struct Registry {
    fatbins: Vec<Option<Slot>>,
    /// Indices that are free.
    free: Vec<u32>,
    gathered: Gathered,
    /// Whether entries of unregistered fatbins are still there.
    unswept: bool,
}

// SAFETY: the names are pointers to constant data of loaded objects, see `Fatbin`; places in the log are
// compared only.
unsafe impl Send for Registry {}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { fatbins: Vec::new(), free: Vec::new(), gathered: Gathered::new(), unswept: false });

/// Locks the registry.
pub fn registry() -> MutexGuard<'static, Registry> {
    // A panic here could only come from an allocation, between complete states.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Adds a fatbin. Returns the handle under which its contents are registered.
    pub fn add(&mut self, image: *const c_void) -> *mut *mut c_void {
        self.sweep();
        let fatbin = Arc::new(Fatbin::new(image));
        let handle = handle_of(&fatbin);
        let index = self.free.pop().unwrap_or_else(|| {
            self.fatbins.push(None);
            self.fatbins.len() as u32 - 1
        });
        // While another thread registers, this fatbin's entries take the slow path (`register_late`).
        let logged = WRITER.take().then(|| {
            WRITER.mine(|open| {
                open.handle = handle;
                open.log.begin(index, image.addr())
            })
        });
        let logged = logged.flatten().unwrap_or(ptr::null());
        self.fatbins[index as usize] = Some(Slot { fatbin, logged });
        handle
    }

    /// Takes a fatbin out, with its index.
    pub fn remove(&mut self, handle: *mut *mut c_void) -> Option<(u32, Arc<Fatbin>)> {
        let index = self.index(handle)?;
        // The fatbin's contents in the log belong to nobody now: the next fatbin with this index is logged at
        // another place.
        let slot = self.fatbins[index as usize].take()?;
        self.unswept = true;
        self.free.push(index);
        WRITER.end(handle);
        Some((index, slot.fatbin))
    }

    fn sweep(&mut self) {
        if self.unswept {
            let is = |fatbin: u32| self.fatbins[fatbin as usize].is_some();
            self.gathered.functions.sweep(is);
            self.gathered.variables.sweep(is);
            self.unswept = false;
        }
    }

    /// Adds what is in the log, unless another thread is writing to it. What the calling thread has
    /// registered is complete: it asks.
    fn gather(&mut self) {
        if !WRITER.take() {
            return;
        }
        let drained = WRITER.mine(|open| {
            open.handle = ptr::null_mut();
            if open.log.is_empty() {
                return false;
            }
            open.log.drain(
                |index, place| {
                    let slot = self.fatbins.get_mut(index as usize)?.as_mut()?;
                    // Otherwise the fatbin is unregistered, and another one has its index.
                    let mine = slot.logged == place;
                    mine.then(|| slot.fatbin.image)
                },
                |list, entry| self.gathered.add(list, entry),
            );
            true
        });
        if drained == Some(true) {
            self.fatbins.iter_mut().flatten().for_each(|slot| slot.logged = ptr::null());
        }
        WRITER.release();
    }

    /// Index of the fatbin with that handle. Its kernels are registered right after it, so the last is looked
    /// at first.
    fn index(&self, handle: *mut *mut c_void) -> Option<u32> {
        let is = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| handle_of(&slot.fatbin) == handle);
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
    let slot = registry.fatbins[entry.fatbin as usize].as_ref()?;
    Some(Found { name: entry.name, fatbin: Arc::clone(&slot.fatbin), index: entry.fatbin })
}

/// Registers a kernel or a variable under the address of its stand-in.
#[inline]
pub fn register(handle: *mut *mut c_void, host: usize, name: *const c_char, list: List) {
    if name.is_null() || !WRITER.note(handle, list, host, name.addr()) {
        register_late(handle, host, name, list);
    }
}

/// Registers an entry for which the log has no room, or which comes from another thread than its fatbin, or
/// after the fatbin's end.
#[cold]
#[inline(never)]
fn register_late(handle: *mut *mut c_void, host: usize, name: *const c_char, list: List) {
    if name.is_null() || WRITER.note_with_room(handle, list, host, name.addr()) {
        return;
    }
    let mut registry = registry();
    if let Some(fatbin) = registry.index(handle) {
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

    /// `host` is counted from the image, for what is too far from it is not logged.
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

    // One test: the registry is the process's.
    #[test]
    fn kernels_are_there_from_their_registration_to_its_end() {
        let first = begin();
        kernel(first, 0x1000);
        std::thread::scope(|scope| {
            // Another thread's registration goes on meanwhile, and so does its question.
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
        // Gone before anybody has asked for it; the next one has its index.
        let gone = begin();
        kernel(gone, 0x3000);
        finish(gone);
        undo(gone);
        let next = begin();
        kernel(next, 0x4000);
        // Asked for by the thread that has not said that it is complete.
        assert!(there(0x4000) && !there(0x3000));
        kernel(next, 0x4100);
        assert!(there(0x4100));
        undo(next);
        undo(first);
        assert!(!there(0x4000) && !there(0x1000) && there(0x2000));
    }
}
