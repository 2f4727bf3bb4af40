//! The shim that stands in for libcublaslt.
