//! The device as guests and operators meet it: over the sim bus, by registers, window and sockets.

mod bus;
mod completions;
mod madness;
mod memory;
mod pages;
mod parked;
mod sessions;
mod violations;
