//! Errors of the calls into GGML.

use std::path::PathBuf;

use thiserror::Error;

/// Errors of the calls into GGML.
#[derive(Debug, Error)]
pub enum FfiError {
    /// A directory cannot be read.
    #[error("list {}: {source}", .folder.display())]
    Folder {
        /// Path of the directory.
        folder: PathBuf,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// A directory lacks a library.
    #[error("{} holds no {wanted}", .folder.display())]
    Missing {
        /// Path of the directory.
        folder: PathBuf,
        /// Name of the missing library.
        wanted: &'static str,
    },
    /// The dynamic loader cannot load a library.
    #[error("load {}: {source}", .path.display())]
    Load {
        /// Path of the library that was not loaded.
        path: PathBuf,
        /// Error of the dynamic loader.
        source: libloading::Error,
    },
    /// The library lacks a function, so it is not the expected version of GGML.
    #[error("find {name}: {source}")]
    Symbol {
        /// Name of the missing function.
        name: &'static str,
        /// Error of the dynamic loader.
        source: libloading::Error,
    },
    /// The library is not GGML 0.25, for which the C types here are declared.
    #[error("this GGML is not 0.25: {what} is {found}, expected {expected}")]
    Version {
        /// Name of the property that differs.
        what: String,
        /// Value that this GGML reports.
        found: usize,
        /// Value that GGML 0.25 reports.
        expected: usize,
    },
    /// `ggml_backend_load` failed. GGML printed the reason on stderr.
    #[error("ggml_backend_load({}) failed", .0.display())]
    Backend(PathBuf),
    /// The loaded backend has no device with this index. GGML printed the reason on stderr.
    #[error("{} has no device {index}", .path.display())]
    NoDevice {
        /// Path of the backend's library.
        path: PathBuf,
        /// Index of the device within the backend.
        index: usize,
    },
    /// The named call returned a null pointer.
    #[error("{0} failed")]
    Null(&'static str),
    /// `ggml_backend_graph_compute` returned this status.
    #[error("ggml_backend_graph_compute returned {0}")]
    Compute(i32),
    /// The number of bytes does not match the size of the tensor.
    #[error("{given} bytes for a tensor of {wanted}")]
    Length {
        /// Number of bytes that were given.
        given: usize,
        /// Number of bytes that the tensor holds.
        wanted: usize,
    },
    /// The tensor belongs to another arena than the one that was placed.
    #[error("the tensor is of another arena")]
    Stranger,
    /// The path contains a zero byte.
    #[error("{} has a zero byte", .0.display())]
    Path(PathBuf),
}
