//! Support for tests of the engine: a [`device`] for one test, references of arithmetic ([`floats`], with the
//! permitted results of [`expect`]), operand [`values`], and a fuzzer that compares all engines ([`fuzz`]).

#![allow(clippy::cast_precision_loss, reason = "whole numbers here are small, or meant to be rounded")]
#![allow(clippy::many_single_char_names, reason = "operands have the names of the ISA")]
#![allow(clippy::format_push_string, clippy::format_collect, reason = "kernels are put together from pieces")]

pub mod device;
pub mod expect;
pub mod floats;
pub mod fuzz;
pub mod values;
