//! The soft executor as a guest meets it: messages through a ring, kernels as PTX.

mod functions;
mod graphs;
mod kernels;
mod limits;
mod modules;
mod no_memory;
mod stops;
mod streams;
mod virtual_memory;
