//! Matrices of a warp: products, and moves of elements of 16 bits between lanes and shared memory.

mod product;
mod quads;
mod tiles;
mod wmma;

pub(crate) use product::{Brains, Bytes, Doubles, Halves, Multiply, Singles};
pub(crate) use quads::{MultiplyQuads, a_element, b_element, c_element, place};
pub(crate) use tiles::{LoadMatrices, StoreMatrices, Transpose};
pub(crate) use wmma::MultiplyWmma;
