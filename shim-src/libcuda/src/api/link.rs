//! Module management: the functions of the linker.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vgpu_abi::driver::CUlinkState;

use crate::Result;
use crate::arg::{In, Out, Text};
use crate::code::image_file;
use crate::code::jit_log::JitLogs;
use crate::object::link::{self, LinkOptions};
use crate::object::{capture, current};

/// Returns the log buffers among the options of a link. Options of a single input, and so their log buffers,
/// are ignored.
///
/// # Safety
/// As for [`JitLogs::from_options`].
unsafe fn logs(count: c_uint, options: In<c_uint>, values: *mut *mut c_void) -> Result<JitLogs> {
    // SAFETY: upheld by the caller.
    unsafe { JitLogs::from_options(options.slice(count as usize)?, values) }
}

fn create(count: c_uint, options: In<c_uint>, values: *mut *mut c_void, state: Out<CUlinkState>) -> Result {
    let context = current::context()?;
    let state = state.check()?;
    capture::forbid_unsafe()?;
    // SAFETY: the exports' caller promised a value for each option, which for the logs stay until the link is
    // destroyed.
    let logs = unsafe { logs(count, options, values) }?;
    // SAFETY: as above.
    let options = unsafe { LinkOptions::from_options(options.slice(count as usize)?, values) }?;
    state.set(CUlinkState(link::create(context, &options, logs)?))
}

fn add_data(state: CUlinkState, kind: c_uint, data: In<u8>, bytes: usize, name: *const c_char) -> Result {
    current::context()?;
    let data = data.slice(bytes)?;
    // SAFETY: the exports' caller promised a text, or null.
    let name = if name.is_null() { c"<input>" } else { unsafe { CStr::from_ptr(name) } };
    link::get(state.0)?.add(kind, data, name.to_bytes())
}

fn add_file(state: CUlinkState, kind: c_uint, path: Text) -> Result {
    current::context()?;
    let link = link::get(state.0)?;
    let name = path.get()?.to_bytes();
    let data = image_file::contents(Path::new(std::ffi::OsStr::from_bytes(name)))?;
    link.add(kind, &data, name)
}

exports! {
    /// Starts a link. The compiler's options are sent to the host, which decides how to apply them.
    pub fn cuLinkCreate_v2(
        count: c_uint, options: In<c_uint>, values: *mut *mut c_void, state: Out<CUlinkState>,
    ) -> CUresult {
        create(count, options, values, state)
    }

    /// Starts a link. The compiler's options are sent to the host, which decides how to apply them.
    pub fn cuLinkCreate(
        count: c_uint, options: In<c_uint>, values: *mut *mut c_void, state: Out<CUlinkState>,
    ) -> CUresult {
        create(count, options, values, state)
    }

    /// Adds an input from memory to a link. Options of a single input are ignored.
    pub fn cuLinkAddData_v2(
        state: CUlinkState, kind: c_uint, data: In<u8>, bytes: usize, name: *const c_char, _count: c_uint,
        _options: In<c_uint>, _values: *mut *mut c_void,
    ) -> CUresult {
        add_data(state, kind, data, bytes, name)
    }

    /// Adds an input from memory to a link. Options of a single input are ignored.
    pub fn cuLinkAddData(
        state: CUlinkState, kind: c_uint, data: In<u8>, bytes: usize, name: *const c_char, _count: c_uint,
        _options: In<c_uint>, _values: *mut *mut c_void,
    ) -> CUresult {
        add_data(state, kind, data, bytes, name)
    }

    /// Adds an input from a file to a link.
    pub fn cuLinkAddFile_v2(
        state: CUlinkState, kind: c_uint, path: Text, _count: c_uint, _options: In<c_uint>,
        _values: *mut *mut c_void,
    ) -> CUresult {
        add_file(state, kind, path)
    }

    /// Adds an input from a file to a link.
    pub fn cuLinkAddFile(
        state: CUlinkState, kind: c_uint, path: Text, _count: c_uint, _options: In<c_uint>,
        _values: *mut *mut c_void,
    ) -> CUresult {
        add_file(state, kind, path)
    }

    /// Links the inputs and stores address and length of the image, which is valid until the link is
    /// destroyed.
    pub fn cuLinkComplete(state: CUlinkState, image: Out<*mut c_void>, bytes: Out<usize>) -> CUresult {
        current::context()?;
        let link = link::get(state.0)?;
        let image = image.check()?;
        let (start, length) = link.complete()?;
        image.set(start.cast_mut().cast())?;
        bytes.set_if(length);
        Ok(())
    }

    /// Destroys a link and its image.
    pub fn cuLinkDestroy(state: CUlinkState) -> CUresult {
        current::context()?;
        link::destroy(state.0)
    }
}
