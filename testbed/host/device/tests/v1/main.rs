//! Version 1 as its guests meet it: raw accesses to BAR0 and BAR1, guest memory, frames on a socket.

mod blas;
mod bus;
mod code;
mod driver;
mod hostile;
mod link;
mod memory;
mod others;
mod owners;
mod parking;
mod routing;
mod socket;
mod states;
mod streams;
mod table;
