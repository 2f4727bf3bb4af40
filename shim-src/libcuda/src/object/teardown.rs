//! Teardown of contexts: what they hold ends with them, in an order in which nothing refers to an object that
//! has ended.

use vgpu_abi::CUresult;
use vgpu_abi::driver::CUcontext;

use crate::Result;
use crate::object::context::{self, Context};
use crate::object::{allocation, capture, current, event, graph_exec, load, stream};

/// Ends everything that belongs to a context.
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

/// Destroys a context that is not primary, and removes it from the calling thread's stack.
pub fn destroy(handle: CUcontext) -> Result {
    if context::get(handle)?.is_primary() {
        return Err(CUresult::INVALID_CONTEXT);
    }
    if current::handle() == handle.0 {
        current::pop();
    }
    context::remove(handle, end_contents)
}
