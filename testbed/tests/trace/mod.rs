//! The reports of `vgpu-run trace` match what the programs did.

mod bed;
mod perfetto;
mod programs;
mod signals;
