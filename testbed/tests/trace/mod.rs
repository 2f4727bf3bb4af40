//! `vgpu-run trace`: what it says of programs is what they did.

mod bed;
mod perfetto;
mod programs;
mod signals;
