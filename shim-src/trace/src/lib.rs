//! libvgpu-trace.so: preloaded before the shims by `vgpu-run trace`, and by nothing else, it writes every
//! call of a CUDA library that crosses an object's boundary into a file of the process (`vgpu-trace-format`).
//!
//! It defines each name that the shims export, with their version nodes, as a trampoline that hands its
//! number to `trampoline`'s common part: the registers of the arguments are saved, the call is written down,
//! the return address is replaced by one of ours, and the real function is entered by a jump, with registers
//! and stack as the caller left them. So no signature is needed. The trampolines and the table of names are
//! assembly that the build generates from the symbol lists (`xtask::shims::trace`).
//!
//! It has no constructor; the file is made at the first call. Without `VGPU_TRACE` calls pass through.

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
