//! Where the real functions are: in the first object behind this one that has the name with its library's
//! version node. So a process that uses both CUDA majors gets each call's own.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use vgpu_trace_format::Returns;

use crate::errno::Kept;
use crate::table::{self, Entry, Library};

/// The version that `dlsym` has in every glibc; where libdl is part of libc, as a name for older programs.
const DLSYM_VERSION: &CStr = c"GLIBC_2.2.5";

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    /// What a function that is nowhere answers: in `trampoline.s`.
    fn vgpu_trace_absent();
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The real `dlsym`.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Returns where function `index` really is. Looked for once; a function that is nowhere is looked for every
/// time, for its library may come later.
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

/// In the objects behind this one in the process's order.
fn behind(library: &Library, entry: &Entry) -> Option<*const u8> {
    find(libc::RTLD_NEXT, library, entry)
}

/// In the object that was loaded by this SONAME for some part of the process alone, or is loaded now.
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

/// Returns the real `dlsym`. This object's own `dlsym` is not asked: dlvsym knows it by its version.
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

/// Answers nothing: for a C library that has no `dlsym`.
unsafe extern "C" fn no_dlsym(_: *mut c_void, _: *const c_char) -> *mut c_void {
    ptr::null_mut()
}

/// For the trampoline of `dlsym`: the real one.
#[unsafe(no_mangle)]
extern "C" fn vgpu_trace_real_dlsym() -> *const u8 {
    dlsym().unwrap_or(no_dlsym) as *const u8
}

/// `dlsym` with an object's handle: the trampoline, if what it finds is the real function of one.
///
/// # Safety
/// As `dlsym`.
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

/// Returns the trampoline of the function `name` that is at `found`.
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

/// Returns the file that a function is in, if the loader knows.
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

/// Returns what the reader is told of a function's result.
pub fn returns(entry: &Entry) -> u16 {
    if entry.returns == 0 { Returns::Status as u16 } else { Returns::Other as u16 }
}
