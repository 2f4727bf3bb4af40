//! The code of all shims, as one static library.
//!
//! Each library that a shim stands in for is a crate of its own. Linked one by one, each object would carry
//! its own copy of the standard library, of the unwinder and of what the crates have in common: half of each
//! of the smaller objects. The launcher copies all objects at every start, and every process of a program
//! maps them. So libcuda.so.1 holds the code of all, and the other objects hold names and jumps
//! (`xtask/src/shims/gate.rs`). The libraries of CUDA 12 and of CUDA 13 remain two crates with a
//! state of their own, because a program that loads both has two runtimes.
//!
//! With `--cfg vgpu_core` an export bears the name of its crate before its own (`vgpu_abi::export!`), because
//! both versions of a library export the same names.

use vgpu_libcublas as _;
use vgpu_libcublas13 as _;
use vgpu_libcublaslt as _;
use vgpu_libcublaslt13 as _;
use vgpu_libcuda as _;
use vgpu_libcudart as _;
use vgpu_libcudart13 as _;
use vgpu_libnvidia_ml as _;
