//! The shim that stands in for libcuda.
