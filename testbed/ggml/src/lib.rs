//! GGML's operations through its C API, computed on two backends and compared: a device of
//! libggml-cuda.so against the CPU backend of the same build.
//!
//! [`ffi`] is the only module with unsafe code: it loads GGML and wraps what is used of it. [`case`]
//! says what a case is, [`cases`] lists them, [`run`] runs one, [`compare`] judges it. The program
//! `vgpu-ops` prints one line of JSON, a [`report::CaseReport`], for each.
#![deny(unsafe_code)]
#![allow(clippy::cast_precision_loss, reason = "what is cast are counts of elements, all far below 2^23")]

pub mod case;
pub mod cases;
pub mod compare;
#[allow(unsafe_code, reason = "calls into GGML")]
pub mod ffi;
pub mod fill;
pub mod plan;
pub mod report;
pub mod run;
