//! The C API of llama.cpp 0.5.0 and of GGML 0.25.1 (llama.h, ggml-backend.h), loaded at run time: all of this
//! crate's unsafe code. What leaves the module is safe to use.
//!
//! The libraries are found by name in a directory and are loaded for the life of the process: backends have
//! threads and exit handlers. Structures are passed by value, so a library with other structures must not be
//! called: [`Llama::load`] compares the version and the defaults that the library fills in with those of the
//! header ([`layout`]), and refuses.

mod api;
mod encode;
mod error;
mod files;
pub mod layout;
mod llama;
mod model;
mod sink;

pub use encode::Encoding;
pub use error::LlamaError;
pub use llama::Llama;
pub use model::{Context, ContextOptions, FlashAttention, Model};
