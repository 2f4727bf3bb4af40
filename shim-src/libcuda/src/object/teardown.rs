//! The end of contexts: what they hold ends with them, in an order in which nothing refers to what is gone.

use vgpu_abi::CUresult;
use vgpu_abi::driver::CUcontext;

use crate::Result;
use crate::object::context::{self, Context};
use crate::object::{allocation, capture, current, event, graph_exec, load, stream};

/// Ends all that belongs to a context.
pub fn end_contents(context: &Context) {
    let handle = context.handle();
    capture::end_context(handle);
    graph_exec::end_context(handle);
    stream::end_context(handle);
    event::end_context(handle);
    load::end_context(handle);
    allocation::end_context(context.gpu(), handle);
    context.spare.lock().clear();
    context.reset_settings();
}

/// `cuCtxDestroy`: not of a primary context. The calling thread's stack loses it.
pub fn destroy(handle: CUcontext) -> Result {
    if context::get(handle)?.is_primary() {
        return Err(CUresult::INVALID_CONTEXT);
    }
    if current::handle() == handle.0 {
        current::pop();
    }
    context::remove(handle, end_contents)
}
