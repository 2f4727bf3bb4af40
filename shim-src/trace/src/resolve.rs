//! Finds the real functions: in the first object after this one that has the name with its library's version
//! node. So a process that uses both CUDA majors gets the right function for each call.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use vgpu_trace_format::Returns;

use crate::errno::Kept;
use crate::table::{self, Entry, Library};

/// Version of `dlsym` in every glibc; where libdl is part of libc, it remains for older programs.
const DLSYM_VERSION: &CStr = c"GLIBC_2.2.5";

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    /// Code in `trampoline.s` that is called in place of a function that no object defines.
    fn vgpu_trace_absent();
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Address of the real `dlsym`; null until it is found.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Returns the address of function `index`. It is looked up once; a function that no object defines is looked
/// up every time, because its library may be loaded later.
#[inline]
pub fn real(index: u32) -> *const u8 {
    match table::reals().get(index as usize).map(|real| real.load(Ordering::Acquire)) {
        Some(real) if !real.is_null() => real,
        _ => find_function(index).unwrap_or(vgpu_trace_absent as *const u8),
    }
}

#[cold]
fn find_function(index: u32) -> Option<*const u8> {
    let _errno = Kept::new();
    let entry = table::entries().get(index as usize)?;
    let library = table::libraries().get(usize::from(entry.library))?;
    let real = behind(library, entry).or_else(|| loaded(library, entry))?;
    if ptr::eq(real, entry.trampoline()) {
        return None;
    }
    table::reals()[index as usize].store(real.cast_mut(), Ordering::Release);
    Some(real)
}

/// Looks the function up in the objects after this one in the process's lookup order.
fn behind(library: &Library, entry: &Entry) -> Option<*const u8> {
    find(libc::RTLD_NEXT, library, entry)
}

/// Looks the function up in the library with this SONAME if the process has it outside of that order, or
/// loads the library.
fn loaded(library: &Library, entry: &Entry) -> Option<*const u8> {
    // SAFETY: a constant text; the constructors of a shim do nothing.
    let handle = unsafe { libc::dlopen(library.soname().as_ptr(), libc::RTLD_LAZY) };
    if handle.is_null() { None } else { find(handle, library, entry) }
}

fn find(handle: *mut c_void, library: &Library, entry: &Entry) -> Option<*const u8> {
    let name = entry.name().as_ptr();
    let found = if library.versioned == 0 {
        // SAFETY: the handle is one of the loader's, the name a constant text.
        unsafe { dlsym()?(handle, name) }
    } else {
        // SAFETY: as above; so is the version.
        unsafe { dlvsym(handle, name, library.soname().as_ptr()) }
    };
    (!found.is_null()).then_some(found.cast_const().cast())
}

/// Returns the real `dlsym`. `dlvsym` finds it by its version, so this object's own `dlsym` is not returned.
fn dlsym() -> Option<Dlsym> {
    let mut found = DLSYM.load(Ordering::Acquire);
    if found.is_null() {
        // SAFETY: constant texts.
        found = unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), DLSYM_VERSION.as_ptr()) };
        DLSYM.store(found, Ordering::Release);
    }
    // SAFETY: what glibc has by this name is a function of this type; null is none.
    unsafe { core::mem::transmute::<*mut c_void, Option<Dlsym>>(found) }
}

/// Returns null, for a C library that has no `dlsym`.
unsafe extern "C" fn no_dlsym(_: *mut c_void, _: *const c_char) -> *mut c_void {
    ptr::null_mut()
}

/// Returns the real `dlsym`, for its trampoline.
#[unsafe(no_mangle)]
extern "C" fn vgpu_trace_real_dlsym() -> *const u8 {
    dlsym().unwrap_or(no_dlsym) as *const u8
}

/// Implements `dlsym` with an object's handle: returns the trampoline if the name is that of a traced
/// function.
///
/// # Safety
/// As for `dlsym`.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_trace_lookup(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's promise is passed on.
    let found = unsafe { dlsym().unwrap_or(no_dlsym)(handle, name) };
    if found.is_null() || name.is_null() {
        return found;
    }
    // SAFETY: dlsym has read it to its end.
    let name = unsafe { CStr::from_ptr(name) };
    traced(name, found.cast_const().cast()).map_or(found, |trampoline| trampoline.cast_mut().cast())
}

/// Returns the trampoline of the function `name` whose address is `found`.
fn traced(name: &CStr, found: *const u8) -> Option<*const u8> {
    if ![b"cu".as_slice(), b"nvml", b"__cuda"].iter().any(|start| name.to_bytes().starts_with(start)) {
        return None;
    }
    let index = table::libraries().iter().filter_map(|library| library.find(name));
    let index = index.into_iter().find(|index| ptr::eq(real(*index), found));
    // What was not found on the way must not be taken for an error of the caller's.
    // SAFETY: takes nothing; the text that it answers is not used.
    unsafe { libc::dlerror() };
    Some(table::entries().get(index? as usize)?.trampoline())
}

/// Returns the path of the object that contains a function, if the loader knows it.
pub fn file_of(function: *const u8) -> Option<&'static CStr> {
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked about; the place takes one structure.
    let known: c_int = unsafe { libc::dladdr(function.cast(), about.as_mut_ptr()) };
    // SAFETY: it was zero, which is a value, and the call has filled it if it succeeded.
    let about = unsafe { about.assume_init() };
    if known == 0 || about.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's text about an object, which shims never give up: they are linked never to be
    // unloaded.
    Some(unsafe { CStr::from_ptr(about.dli_fname) })
}

/// Returns the number of the [`Returns`](vgpu_trace_format::Returns) of a function.
pub fn returns(entry: &Entry) -> u16 {
    if entry.returns == 0 { Returns::Status as u16 } else { Returns::Other as u16 }
}
