//! The soft executor as a guest meets it: messages through a ring, kernels as PTX.

#[allow(dead_code, reason = "shared with the device's own tests")]
#[path = "../../../../device/tests/main/bench.rs"]
mod bench;
#[allow(dead_code, reason = "shared with the device's own tests")]
#[path = "../../../../device/tests/main/guest.rs"]
mod guest;

mod functions;
mod graphs;
mod kernels;
mod limits;
mod modules;
mod no_memory;
mod play;
mod stops;
mod streams;
mod virtual_memory;
