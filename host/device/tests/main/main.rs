//! Tests of the device as guests and operators use it: over the simulated bus, by registers, window and
//! sockets.

mod bus;
mod completions;
mod madness;
mod memory;
mod pages;
mod parked;
mod sessions;
mod times;
mod turns;
mod violations;
