//! Version 1 as its guests meet it: raw accesses to BAR0 and BAR1, guest memory, frames on a socket.

mod bus;
mod driver;
mod memory;
