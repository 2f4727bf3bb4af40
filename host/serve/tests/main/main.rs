//! Tests of the program `vgpu-device`, as users start it.

mod check;
mod figures;
mod host;
mod libvirt;
mod metrics;
mod probe;
mod program;
mod prometheus;
mod protocol;
mod release;
mod serve;
mod shares;
mod status;
mod workers;
