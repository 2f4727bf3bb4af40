//! Finds the export that serves a base name for a CUDA version, and its address.
//!
//! The list of names and versions is that of the ABI crate. Addresses are looked up in this object by the
//! loader, because stubs of functions that are not implemented exist only once the object is linked.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

use vgpu_abi::driver::{PROC_FLAGS, PROC_PER_THREAD};
use vgpu_abi::{CUresult, log};

use crate::Result;
use crate::arg::Text;

/// Lines of the form `BASE VERSION ENTRY [ptsz=ENTRY|ptds=ENTRY]`, sorted by base, then by version.
const LIST: &str = include_str!("../../../common/abi/symbols/cuda-versions.list");
/// First CUDA version with variants for the per-thread default stream, CUDA 7.0.
const PER_THREAD_SINCE: i32 = 7000;

/// `CUdriverProcAddressQueryResult`, the outcome of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Query {
    /// The function was found.
    Success = 0,
    /// No function has this name.
    NotFound = 1,
    /// The function exists only in later versions.
    VersionTooLow = 2,
}

#[derive(Debug)]
struct Line {
    base: &'static str,
    version: i32,
    entry: &'static str,
    per_thread: Option<&'static str>,
}

fn lines() -> &'static [Line] {
    static LINES: OnceLock<Vec<Line>> = OnceLock::new();
    LINES.get_or_init(|| LIST.lines().filter_map(parse).collect())
}

fn parse(line: &'static str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace();
    let base = words.next().filter(|word| !word.starts_with('#'))?;
    let version = words.next()?.parse().ok()?;
    let entry = words.next()?;
    let per_thread = words.find_map(|word| word.strip_prefix("ptsz=").or_else(|| word.strip_prefix("ptds=")));
    Some(Line { base, version, entry, per_thread })
}

/// Returns the export that serves `base` at `version`. A version above all known ones, or below 0, means the
/// newest.
pub fn serve(base: &str, version: i32, per_thread: bool) -> std::result::Result<&'static str, Query> {
    let all = lines();
    let from = all.partition_point(|line| line.base < base);
    let count = all[from..].partition_point(|line| line.base == base);
    let mine = &all[from..from + count];
    if mine.is_empty() {
        return Err(Query::NotFound);
    }
    let version = if version < 0 { i32::MAX } else { version };
    let found = if per_thread && mine.iter().any(|line| line.per_thread.is_some()) {
        let twins = mine.iter().rev().filter(|line| line.per_thread.is_some());
        twins.filter(|line| line.version.max(PER_THREAD_SINCE) <= version).find_map(|line| line.per_thread)
    } else {
        mine.iter().rev().find(|line| line.version <= version).map(|line| line.entry)
    };
    found.ok_or(Query::VersionTooLow)
}

/// Returns the address of one of this object's own exports.
fn address(entry: &str) -> Option<*mut c_void> {
    let own = own_object()?;
    let name = CString::new(entry).ok()?;
    // SAFETY: the handle is never closed; the name is zero-ended.
    let address = unsafe { libc::dlsym(own as *mut c_void, name.as_ptr()) };
    if address.is_null() {
        log::warn(format_args!("{entry}: not exported by this object"));
        return None;
    }
    Some(address)
}

/// Returns the loader's handle of the object that contains this code.
fn own_object() -> Option<usize> {
    static OWN: OnceLock<Option<usize>> = OnceLock::new();
    *OWN.get_or_init(|| {
        // SAFETY: zeros are a valid `Dl_info`.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        let here = serve as *const c_void;
        // SAFETY: any address may be asked about; `info` is valid for writing.
        if unsafe { libc::dladdr(here, &raw mut info) } == 0 || info.dli_fname.is_null() {
            return None;
        }
        // The object is loaded, so its name is compared with those of the loaded ones and no file is opened:
        // the name may be that of a descriptor that is closed by now. SAFETY: the name is the loader's own,
        // zero-ended.
        let handle = unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(info.dli_fname) };
            log::error(format_args!(
                "{}: failed to find this object among the loaded",
                name.to_string_lossy()
            ));
            return None;
        }
        Some(handle as usize)
    })
}

/// Returns the address of the export that serves a base name, or the reason why there is none.
pub fn look_up(symbol: Text, version: c_int, flags: u64) -> Result<std::result::Result<*mut c_void, Query>> {
    let name = symbol.get()?.to_str().unwrap_or("");
    if flags & !PROC_FLAGS != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(serve(name, version, flags & PROC_PER_THREAD != 0)
        .and_then(|entry| address(entry).ok_or(Query::NotFound)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_version_chooses_the_entry() {
        assert_eq!(serve("cuMemAlloc", 12000, false), Ok("cuMemAlloc_v2"));
        assert_eq!(serve("cuMemAlloc", 3010, false), Ok("cuMemAlloc"));
        assert_eq!(serve("cuMemAlloc", 1000, false), Err(Query::VersionTooLow));
        assert_eq!(serve("cuMemAlloc", 0, false), Err(Query::VersionTooLow));
        assert_eq!(serve("cuMemAlloc", -1, false), Ok("cuMemAlloc_v2"));
        assert_eq!(serve("cuCtxCreate", 11040, false), Ok("cuCtxCreate_v3"));
        assert_eq!(serve("cuCtxCreate", i32::MAX, false), Ok("cuCtxCreate_v4"));
        assert_eq!(serve("cuGetProcAddress", 11030, false), Ok("cuGetProcAddress"));
        assert_eq!(serve("cuGetProcAddress", 12000, false), Ok("cuGetProcAddress_v2"));
    }

    #[test]
    fn suffixed_names_are_no_bases() {
        for name in ["cuMemAlloc_v2", "cuLaunchKernel_ptsz", "", "cu", "cuInit ", "#"] {
            assert_eq!(serve(name, 13000, false), Err(Query::NotFound), "{name}");
        }
    }

    #[test]
    fn the_flag_chooses_the_per_thread_entry() {
        assert_eq!(serve("cuLaunchKernel", 12000, true), Ok("cuLaunchKernel_ptsz"));
        assert_eq!(serve("cuMemcpyHtoD", 12000, true), Ok("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(serve("cuMemcpyHtoD", 6050, true), Err(Query::VersionTooLow));
        assert_eq!(serve("cuMemAlloc", 12000, true), Ok("cuMemAlloc_v2"), "no stream, no twin");
    }

    #[test]
    fn the_list_is_sorted() {
        assert!(lines().is_sorted_by_key(|line| (line.base, line.version)));
    }

    #[test]
    fn every_entry_is_an_export() {
        let names = include_str!("../../../common/abi/symbols/libcuda.so.1.list");
        let exports: std::collections::HashSet<&str> =
            names.lines().filter_map(|line| line.split_ascii_whitespace().next()).collect();
        assert!(lines().len() > 600);
        for line in lines() {
            assert!(exports.contains(line.entry), "{}", line.entry);
            assert!(line.per_thread.is_none_or(|twin| exports.contains(twin)), "{:?}", line.per_thread);
        }
    }

    proptest! {
        #[test]
        fn a_later_version_never_serves_an_older_entry(index: prop::sample::Index, a in 0_i32..14000, b in 0_i32..14000, per_thread: bool) {
            let line = index.get(lines());
            let place = |version: i32| serve(line.base, version, per_thread).ok().map(|entry| {
                lines().iter().position(|l| l.base == line.base && (l.entry == entry || l.per_thread == Some(entry)))
            });
            prop_assert!(place(a.min(b)) <= place(a.max(b)));
        }
    }
}
