//! The shim that stands in for libcudart.
