//! The table of functions, which the build generates beside the trampolines.

use core::ffi::CStr;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU64};

/// A traced function, as the generated table describes it.
#[derive(Debug)]
#[repr(C)]
pub struct Entry {
    /// Offset of its name from the start of the table.
    name: i32,
    /// Offset of its trampoline from the start of the table.
    trampoline: i32,
    /// Number of the library that the function belongs to.
    pub library: u8,
    /// Whether the result is a status: 0 if it is, otherwise 1.
    pub returns: u8,
    /// Whether its calls are only counted, because there are thousands of them: 0 if not.
    pub counted: u8,
    zero: u8,
}

/// A shim library whose functions are traced.
#[derive(Debug)]
#[repr(C)]
pub struct Library {
    /// Number of the library's first function.
    pub first: u32,
    /// Number of the library's functions, which are sorted by name.
    pub count: u32,
    /// Whether its names carry a version node, named like the SONAME: 0 if not.
    pub versioned: u32,
    soname: [u8; 36],
}

// SAFETY: the build defines all of these, of these types and at these sizes (`xtask::shims::trace`);
// everything but the atomic words is constant.
unsafe extern "C" {
    static vgpu_trace_table: Entry;
    safe static vgpu_trace_count: u32;
    static vgpu_trace_libraries: Library;
    safe static vgpu_trace_library_count: u32;
    static vgpu_trace_real: AtomicPtr<u8>;
    static vgpu_trace_slots: AtomicU64;
}

/// Returns all traced functions. A function's number is its index.
pub fn entries() -> &'static [Entry] {
    // SAFETY: the table has that many entries, which are constant.
    unsafe { slice::from_raw_parts(&raw const vgpu_trace_table, vgpu_trace_count as usize) }
}

/// Returns all libraries that have traced functions.
pub fn libraries() -> &'static [Library] {
    // SAFETY: as above.
    unsafe { slice::from_raw_parts(&raw const vgpu_trace_libraries, vgpu_trace_library_count as usize) }
}

/// Returns the addresses of the real functions, each null until it has been looked up.
pub fn reals() -> &'static [AtomicPtr<u8>] {
    // SAFETY: there is a word for each function, zero at first, and only atomic operations touch it.
    unsafe { slice::from_raw_parts(&raw const vgpu_trace_real, vgpu_trace_count as usize) }
}

/// Returns, for each function, the generation of the file and the record in which its name is stored; 0
/// before that.
pub fn slots() -> &'static [AtomicU64] {
    // SAFETY: as above.
    unsafe { slice::from_raw_parts(&raw const vgpu_trace_slots, vgpu_trace_count as usize) }
}

impl Entry {
    /// Returns the name under which the function is exported.
    pub fn name(&self) -> &'static CStr {
        // SAFETY: every entry's offset leads to a string of the same object, ended by a zero.
        unsafe { CStr::from_ptr(from_table(self.name).cast()) }
    }

    /// Returns the code that the loader resolves the function's name to while tracing.
    pub fn trampoline(&self) -> *const u8 {
        from_table(self.trampoline)
    }
}

fn from_table(offset: i32) -> *const u8 {
    (&raw const vgpu_trace_table).cast::<u8>().wrapping_offset(offset as isize)
}

impl Library {
    /// Returns the SONAME, which is also the name of its version node.
    pub fn soname(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.soname).unwrap_or_default()
    }

    /// Returns the number of the library's function with this name.
    pub fn find(&self, name: &CStr) -> Option<u32> {
        let first = self.first as usize;
        let functions = entries().get(first..first + self.count as usize)?;
        let at = functions.binary_search_by(|entry| entry.name().cmp(name)).ok()?;
        Some(self.first + at as u32)
    }
}
