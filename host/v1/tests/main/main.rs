//! Tests of version 1 as its guests use it: raw accesses to BAR0 and BAR1, guest memory, frames on a socket.

mod blas;
mod bus;
mod client;
mod code;
mod driver;
mod frames;
mod hostile;
mod link;
mod memory;
mod others;
mod owners;
mod routing;
mod server;
mod states;
mod streams;
mod table;
