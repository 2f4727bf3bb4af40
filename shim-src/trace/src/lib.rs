//! libvgpu-trace.so, preloaded before the shims only by `vgpu-run trace`, writes every call of a CUDA library
//! that crosses an object's boundary into a file of the process (`vgpu-trace-format`).
//!
//! It defines each name that the shims export, with their version nodes, as a trampoline that passes its
//! number to `trampoline`'s common part. There the argument registers are saved, the call is recorded, the
//! return address is replaced by the tracer's, and the real function is entered by a jump, with registers and
//! stack as the caller left them. So no signature is needed. The trampolines and the table of names are
//! assembly that the build generates from the symbol lists (`xtask::shims::trace`).
//!
//! The object has no constructor; the file is created at the first call. Without `VGPU_TRACE` calls pass
//! through.

mod calls;
mod entry;
mod errno;
mod file;
mod place;
mod resolve;
mod state;
mod table;
mod thread;
mod trampoline;
