//! The exports, in modules named after the chapters of CUDA's driver API manual, and those of cuBLAS.

mod blas;
mod code;
mod context;
mod device;
mod event;
mod graph;
mod initialization;
mod link;
mod lt;
mod memory;
mod memory_operations;
mod stream;
mod virtual_memory;
