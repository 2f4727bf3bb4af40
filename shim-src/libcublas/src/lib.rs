//! The shim that stands in for libcublas.
