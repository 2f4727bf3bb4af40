//! What can go wrong between this program and GGML.

use std::path::PathBuf;

use thiserror::Error;

/// What can go wrong between this program and GGML.
#[derive(Debug, Error)]
pub enum FfiError {
    /// A folder cannot be read.
    #[error("list {}: {source}", .folder.display())]
    Folder {
        /// Path of the folder.
        folder: PathBuf,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// A folder lacks a library.
    #[error("{} holds no {wanted}", .folder.display())]
    Missing {
        /// Path of the folder.
        folder: PathBuf,
        /// The library's name.
        wanted: &'static str,
    },
    /// A library cannot be loaded.
    #[error("load {}: {source}", .path.display())]
    Load {
        /// Path of the library.
        path: PathBuf,
        /// What the loader reports.
        source: libloading::Error,
    },
    /// GGML lacks a function.
    #[error("find {name}: {source}")]
    Symbol {
        /// Name of the function.
        name: &'static str,
        /// What the loader reports.
        source: libloading::Error,
    },
    /// This is not the GGML that the C types here are from.
    #[error("this GGML is not 0.25: {what} is {found}, expected {expected}")]
    Version {
        /// Name of the property that differs.
        what: String,
        /// Value that this GGML reports.
        found: usize,
        /// Value that GGML 0.25 reports.
        expected: usize,
    },
    /// `ggml_backend_load` refused; GGML said why on stderr.
    #[error("ggml_backend_load({}) failed", .0.display())]
    Backend(PathBuf),
    /// A backend that loaded has no device of this number; GGML said why on stderr.
    #[error("{} has no device {index}", .path.display())]
    NoDevice {
        /// Path of the backend's library.
        path: PathBuf,
        /// Index of the device within the backend.
        index: usize,
    },
    /// A call returned a null pointer.
    #[error("{0} failed")]
    Null(&'static str),
    /// A graph failed.
    #[error("ggml_backend_graph_compute returned {0}")]
    Compute(i32),
    /// Bytes of a wrong length for a tensor.
    #[error("{given} bytes for a tensor of {wanted}")]
    Length {
        /// Number of bytes that were given.
        given: usize,
        /// Number of bytes that the tensor holds.
        wanted: usize,
    },
    /// A tensor that is not of the arena that was placed.
    #[error("the tensor is of another arena")]
    Stranger,
    /// A path with a zero byte.
    #[error("{} has a zero byte", .0.display())]
    Path(PathBuf),
}
