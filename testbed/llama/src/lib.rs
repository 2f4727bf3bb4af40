//! A language model through the C API of stock llama.cpp libraries, for the test bed: the program
//! `vgpu-llama` plays a guest's inference server, and the test bed reads what it says.
//!
//! The program knows nothing of VGPU-STUB. It loads libllama, GGML's CPU backend and, if it is told to,
//! libggml-cuda.so by their public names, and gives them a model and a prompt; which CUDA libraries the
//! latter finds is the affair of who started the program.
//!
//! - [`ffi`] has the libraries, and all unsafe code;
//! - [`run`] decodes greedily or along given tokens;
//! - [`event`] is what the program prints, a JSON object a line;
//! - [`logits`] is the file of raw logits, [`distribution`] compares two of them.

#![deny(unsafe_code)]

pub mod distribution;
pub mod event;
#[allow(unsafe_code, reason = "calls C functions")]
pub mod ffi;
pub mod log;
pub mod logits;
pub mod run;
pub mod text;
