//! Loads code into a context as a module, compiles it at once where the program asks for that, and unloads
//! it.

use vgpu_abi::CUresult;

use crate::Result;
use crate::code::image::Image;
use crate::object::context::Context;
use crate::object::{capture, function, module};

/// Loads the image that `image` reads into a context. Returns the module's handle. With `at_once` the host
/// compiles all of it now, instead of each kernel when it is first needed.
pub fn load(context: &Context, image: impl FnOnce() -> Result<Image>, at_once: bool) -> Result<usize> {
    capture::forbid_unsafe()?;
    context.gpu().queue.async_error()?;
    let code = image()?.choose(module::target(context.gpu()))?;
    let module = module::create(context, code)?;
    if at_once && let Err(error) = compile(module) {
        // Nothing refers to the module, and the caller wants the compiler's error, not one of unloading.
        let _ = unload(module);
        return Err(error);
    }
    Ok(module)
}

/// Makes the host compile a module with all its kernels.
pub fn compile(module: usize) -> Result {
    let module = module::from_handle(module).ok_or(CUresult::INVALID_HANDLE)?;
    module.load()?;
    for name in module.names()? {
        function::from_handle(function::in_module(module, &name)?)
            .ok_or(CUresult::INVALID_HANDLE)?
            .number()?;
    }
    Ok(())
}

/// Unloads a module with its functions. Returns `None` if there is no such module.
pub fn unload(module: usize) -> Option<Result> {
    module::end(module, function::discard)
}

/// Ends the modules of a context.
pub fn end_context(context: usize) {
    for module in module::in_context(context) {
        // The context ends even if the host returns an error.
        let _ = unload(module);
    }
}
