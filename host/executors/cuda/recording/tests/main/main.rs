//! What the library refuses, one case for each rule, and what it says of work that is right.

#[macro_use]
mod bench;
mod links;
mod matmuls;
mod refusals;
mod right;
