//! The cuda executor on a libcuda that refuses what CUDA's documentation refuses, and writes down each call.
//! No call is refused, the calls come as the files of `sequences` have them, and nothing of a guest's data is
//! looked at.

#[allow(dead_code, reason = "shared with the device's own tests")]
#[path = "../../../../device/tests/main/bench.rs"]
mod bench;
#[allow(dead_code, reason = "shared with the device's own tests")]
#[path = "../../../../device/tests/main/guest.rs"]
mod guest;
#[allow(dead_code, reason = "shared with the soft executor's tests")]
#[path = "../../../soft/tests/main/play.rs"]
mod play;

mod gpu;
mod graphs;
mod links;
mod losses;
mod matmuls;
mod orders;
mod payload;
mod products;
mod time;
mod waits;
