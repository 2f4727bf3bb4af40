//! The program `vgpu-device`, as users start it.

mod program;
mod serve;
