//! Tests of the library: one refused case for each rule, and the records of correct work.

#[macro_use]
mod bench;
mod driver;
mod edges;
mod links;
mod matmuls;
mod refusals;
mod right;
