//! The device as guests and operators meet it: over the sim bus, by registers, window and sockets.

mod bench;
mod bus;
mod completions;
mod guest;
mod madness;
mod memory;
mod pages;
mod parked;
mod sessions;
mod violations;
