//! GGML 0.25 (GGML_BACKEND_API_VERSION 2) through its C API, wrapped so that safe code cannot misuse it:
//! a [`Tensor`] borrows the [`Arena`] that its node lives in, and only [`Placed`], which holds the
//! memory of all of them, reads, writes and computes.
//!
//! GGML checks shapes itself, and ends the process when one is wrong.

mod arena;
mod backend;
mod error;
mod kinds;
mod library;
mod nodes;
mod raw;

use std::path::Path;

pub use arena::{Arena, Builder, Placed, Shape, Tensor};
pub use backend::Backend;
pub use error::FfiError;
pub use kinds::Type;
pub use library::Ggml;
pub use nodes::{Glu, Order, Precision, Rope, Unary};

/// Loads libggml-base and libggml from a directory. They stay loaded until the process ends, because GGML's
/// registry of backends does.
///
/// # Errors
/// Fails if a library or one of its functions is missing, or if the version is not supported.
pub fn load(folder: &Path) -> Result<&'static Ggml, FfiError> {
    let ggml = Ggml::load(folder)?;
    nodes::load(ggml)?;
    Ok(ggml)
}
