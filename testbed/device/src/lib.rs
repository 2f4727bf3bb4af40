//! The VGPU-STUB device model.
