//! Matrix operations of a warp: products, and moves of 16-bit elements between lanes and shared memory (PTX
//! ISA, section "Warp Level Matrix Multiply-Accumulate Instructions").

mod product;
mod quads;
mod tiles;

pub(crate) use product::{Brains, Bytes, Doubles, Halves, Multiply, Singles};
pub(crate) use quads::{MultiplyQuads, a_element, b_element, c_element, place};
pub(crate) use tiles::{LoadMatrices, StoreMatrices, Transpose};
