//! The executor on a driver that computes: messages through a ring, the executor, this project's own libcuda,
//! and behind that a second device, made of software, in a process of its own.
//!
//! The driver is one for a process and finds its device by the environment, so each test runs itself again in
//! a process that has both.

#[allow(dead_code, reason = "shared with the device's own tests")]
#[path = "../../../../device/tests/main/bench.rs"]
mod bench;
#[allow(dead_code, reason = "shared with the device's own tests")]
#[path = "../../../../device/tests/main/guest.rs"]
mod guest;
#[allow(dead_code, reason = "shared with the soft executor's tests")]
#[path = "../../../soft/tests/main/play.rs"]
mod play;

mod code;
mod copies;
mod graphs;
mod links;
mod matmuls;
mod memory;
mod order;
mod place;
mod products;
mod sessions;
