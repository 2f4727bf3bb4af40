//! The cuda executor on a libcuda that refuses what CUDA's documentation refuses, and writes down each call.
//! No call is refused, the calls come as the files of `sequences` have them, and nothing of a guest's data is
//! looked at.

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
