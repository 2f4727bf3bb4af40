//! The linker of the driver.

use std::ffi::{CStr, CString, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::driver::CUlinkState;
use vgpu_device::CodeLinkInput;
use vgpu_wire::body::link::{INPUT_PTX, LINK_DEBUG, LINK_LINES, LinkOpen};

use super::code::{CodeError, LOG_BYTES, LOG_OPTIONS};
use super::context::DriverContext;
use super::error::{DriverError, check, log_failure};

/// Numbers of the `CUjit_option` values.
mod id {
    use std::ffi::c_uint;

    pub(super) const MAX_REGISTERS: c_uint = 0;
    pub(super) const THREADS_PER_BLOCK: c_uint = 1;
    pub(super) const OPTIMIZATION_LEVEL: c_uint = 7;
    pub(super) const TARGET: c_uint = 9;
    pub(super) const GENERATE_DEBUG_INFO: c_uint = 11;
    pub(super) const GENERATE_LINE_INFO: c_uint = 13;
}

/// A link in progress, with the values of its options, which the driver uses until the link is destroyed.
struct DriverLink<'a> {
    context: &'a Arc<DriverContext>,
    state: CUlinkState,
    log: Box<[u8; LOG_BYTES]>,
    options: Vec<c_uint>,
    values: Vec<*mut c_void>,
}

/// Links all inputs to one image, which takes as long as the compiler.
pub(crate) fn link(
    context: &Arc<DriverContext>,
    open: &LinkOpen,
    parts: Vec<CodeLinkInput>,
) -> Result<Vec<u8>, CodeError> {
    let mut link =
        DriverLink::create(context, open).map_err(|error| CodeError { error, log: String::new() })?;
    let linked = parts.into_iter().try_for_each(|part| link.add(part)).and_then(|()| link.complete());
    linked.map_err(|error| CodeError { error, log: link.words() })
}

impl<'a> DriverLink<'a> {
    /// Calls `cuLinkCreate`.
    fn create(context: &'a Arc<DriverContext>, open: &LinkOpen) -> Result<Self, DriverError> {
        let mut log = Box::new([0_u8; LOG_BYTES]);
        let number = |number: u32| ptr::without_provenance_mut::<c_void>(number as usize);
        let [.., errors, errors_bytes] = LOG_OPTIONS;
        let mut wanted = vec![(errors, log.as_mut_ptr().cast()), (errors_bytes, number(LOG_BYTES as u32))];
        for (option, value) in [
            (id::MAX_REGISTERS, open.max_registers),
            (id::THREADS_PER_BLOCK, open.threads_per_block),
            (id::TARGET, open.target),
            (id::GENERATE_DEBUG_INFO, open.flags & LINK_DEBUG),
            (id::GENERATE_LINE_INFO, u32::from(open.flags & LINK_LINES != 0)),
        ] {
            if value != 0 {
                wanted.push((option, number(value)));
            }
        }
        wanted.push((id::OPTIMIZATION_LEVEL, number(open.optimization)));
        let (options, values) = wanted.into_iter().unzip();
        let mut link = Self { context, state: CUlinkState::NULL, log, options, values };
        let create = context.table().cuLinkCreate_v2.ok_or(lacks("cuLinkCreate_v2"))?;
        let (count, options, values) =
            (link.options.len() as c_uint, link.options.as_mut_ptr(), link.values.as_mut_ptr());
        let mut state = CUlinkState::NULL;
        // SAFETY: a live place for the answer; as many options as values, of the types of these options. They
        // and the log stay in `link`, which destroys the state before it drops them.
        check("cuLinkCreate_v2", unsafe { create(count, options, values, &raw mut state) })?;
        link.state = state;
        Ok(link)
    }

    /// Calls `cuLinkAddData`. The driver has copied the data that it needs when the call returns.
    fn add(&mut self, part: CodeLinkInput) -> Result<(), DriverError> {
        let CodeLinkInput { name, kind, mut data, .. } = part;
        if kind == INPUT_PTX {
            // The driver expects that its text ends with a zero.
            data.push(0);
        }
        let name = CString::new(name).unwrap_or_default();
        let add = self.context.table().cuLinkAddData_v2.ok_or(lacks("cuLinkAddData_v2"))?;
        let (bytes, length) = (data.as_mut_ptr(), data.len());
        let (no_options, no_values) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the state is live, and so are the bytes of that length; a text ends with a zero. What code
        // does to the driver's linker is not checked; the worker process isolates its effects.
        let code = unsafe { add(self.state, kind, bytes, length, name.as_ptr(), 0, no_options, no_values) };
        check("cuLinkAddData_v2", code)
    }

    /// Calls `cuLinkComplete` and returns the image, a cubin.
    fn complete(&mut self) -> Result<Vec<u8>, DriverError> {
        let complete = self.context.table().cuLinkComplete.ok_or(lacks("cuLinkComplete"))?;
        let (mut image, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: a live state, and live places for the answers.
        check("cuLinkComplete", unsafe { complete(self.state, &raw mut image, &raw mut bytes) })?;
        let mut copy = Vec::new();
        let no_memory = DriverError { call: "keep a linked image", code: CUresult::OUT_OF_MEMORY };
        copy.try_reserve_exact(bytes).map_err(|_| no_memory)?;
        // SAFETY: the driver gave so many bytes, which stay until the link is destroyed.
        copy.extend_from_slice(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) });
        Ok(copy)
    }

    /// Returns the log of the linker about a refusal.
    fn words(&self) -> String {
        let text = CStr::from_bytes_until_nul(&self.log[..]).map(CStr::to_string_lossy);
        text.unwrap_or_default().trim().to_owned()
    }
}

impl Drop for DriverLink<'_> {
    fn drop(&mut self) {
        if let Some(destroy) = self.context.table().cuLinkDestroy
            && self.state != CUlinkState::NULL
        {
            // SAFETY: the last use of the state.
            log_failure(check("cuLinkDestroy", unsafe { destroy(self.state) }));
        }
    }
}

/// Returns the error for a driver without a linker. A device with such a driver does not announce the
/// extension.
const fn lacks(call: &'static str) -> DriverError {
    DriverError { call, code: CUresult::NOT_SUPPORTED }
}
