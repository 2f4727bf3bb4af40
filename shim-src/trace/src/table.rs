//! The table of functions, which the build generates beside the trampolines.

use core::ffi::CStr;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU64};

/// An exported function that is traced.
#[derive(Debug)]
#[repr(C)]
pub struct Entry {
    /// Where its name is, from the table's beginning.
    name: i32,
    /// Where its trampoline is, from the table's beginning.
    trampoline: i32,
    /// Number of its library.
    pub library: u8,
    /// Whether its result is a status: 0, or 1 if not.
    pub returns: u8,
    /// Not 0: there are thousands of these calls, to be counted only.
    pub counted: u8,
    zero: u8,
}

/// A shim library whose functions are traced.
#[derive(Debug)]
#[repr(C)]
pub struct Library {
    /// Its first function.
    pub first: u32,
    /// How many it has, sorted by name.
    pub count: u32,
    /// Not 0: its names carry a version node, named as the SONAME.
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

/// Returns all traced functions; a function's number is its index.
pub fn entries() -> &'static [Entry] {
    // SAFETY: the table has that many entries, which are constant.
    unsafe { slice::from_raw_parts(&raw const vgpu_trace_table, vgpu_trace_count as usize) }
}

/// Returns all libraries that have traced functions.
pub fn libraries() -> &'static [Library] {
    // SAFETY: as above.
    unsafe { slice::from_raw_parts(&raw const vgpu_trace_libraries, vgpu_trace_library_count as usize) }
}

/// Returns where each function really is; null until it has been looked for.
pub fn reals() -> &'static [AtomicPtr<u8>] {
    // SAFETY: there is a word for each function, zero at first, and only atomic operations touch it.
    unsafe { slice::from_raw_parts(&raw const vgpu_trace_real, vgpu_trace_count as usize) }
}

/// Returns the record of each function in a file: the file's generation, and the record's number; 0 at first.
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
    /// Returns its SONAME, and the name of its version node.
    pub fn soname(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.soname).unwrap_or_default()
    }

    /// Returns the number of its function of that name.
    pub fn find(&self, name: &CStr) -> Option<u32> {
        let first = self.first as usize;
        let functions = entries().get(first..first + self.count as usize)?;
        let at = functions.binary_search_by(|entry| entry.name().cmp(name)).ok()?;
        Some(self.first + at as u32)
    }
}
