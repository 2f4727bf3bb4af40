//! Calls of cuBLAS and cuBLASLt into libcuda, with their statuses converted.

use core::ffi::c_void;
use core::ptr;

use vgpu_wire::body::gemm::{Gemm, TriangularSolve};
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::body::vector::VectorOp;

use crate::blas::BlasStatus;
use crate::calls::Calls;
use crate::link::Link;
use crate::table::Table;
use crate::{CUresult, log};

/// Connection of one of the two libraries to libcuda.
#[derive(Debug)]
pub struct Driver(Link);

impl Driver {
    /// Creates the connection of the library that the log calls `name`.
    #[must_use]
    pub const fn new(name: &'static str, calls: Calls) -> Self {
        Self(Link::new(name, calls))
    }

    /// Initialises libcuda and gives the thread a context if it has none, as NVIDIA's libraries require.
    ///
    /// # Errors
    /// Returns allocation failed where memory is short, and not initialised for any other failure.
    pub fn prepare(&self) -> Result<(), BlasStatus> {
        self.0.enter().map_err(|status| {
            log::info(format_args!("{}: no handle without a context: {status}", self.0.name()));
            if status == CUresult::OUT_OF_MEMORY {
                BlasStatus::ALLOC_FAILED
            } else {
                BlasStatus::NOT_INITIALIZED
            }
        })
    }

    fn table(&self) -> Result<&'static Table, BlasStatus> {
        self.0.table().ok_or(BlasStatus::NOT_INITIALIZED)
    }

    fn sent(&self, what: &str, status: CUresult) -> Result<(), BlasStatus> {
        status.ok().map_err(|status| {
            log::info(format_args!("{}: {what} is refused: {status}", self.0.name()));
            BlasStatus::from(status)
        })
    }

    /// Submits a matrix product to a stream, a `CUstream`.
    ///
    /// # Errors
    /// Returns libcuda's refusal, converted to a status of cuBLAS.
    pub fn multiply(&self, stream: usize, product: &Gemm) -> Result<(), BlasStatus> {
        let stream: *mut c_void = ptr::without_provenance_mut(stream);
        // SAFETY: an entry of libcuda's table, called with a stream, which it checks, and a live structure.
        self.sent("a matrix product", unsafe { (self.table()?.gemm)(stream, product) })
    }

    /// Submits a triangular solve to a stream.
    ///
    /// # Errors
    /// Fails as [`Self::multiply`] does.
    pub fn solve(&self, stream: usize, solve: &TriangularSolve) -> Result<(), BlasStatus> {
        let stream: *mut c_void = ptr::without_provenance_mut(stream);
        // SAFETY: as in `multiply`.
        self.sent("a triangular solve", unsafe { (self.table()?.solve)(stream, solve) })
    }

    /// Submits a product of cuBLASLt to a stream.
    ///
    /// # Errors
    /// Fails as [`Self::multiply`] does.
    pub fn matmul(&self, stream: usize, product: &MatmulLt) -> Result<(), BlasStatus> {
        let stream: *mut c_void = ptr::without_provenance_mut(stream);
        // SAFETY: as in `multiply`.
        self.sent("a matrix product with an epilogue", unsafe { (self.table()?.matmul)(stream, product) })
    }

    /// Submits a vector operation to a stream. If `host` is not null, its sum is stored there before the call
    /// returns.
    ///
    /// # Errors
    /// Fails as [`Self::multiply`] does.
    ///
    /// # Safety
    /// `host` is null, or valid for writing a number of the operation's scalar type.
    pub unsafe fn vector(
        &self,
        stream: usize,
        operation: &VectorOp,
        host: *mut c_void,
    ) -> Result<(), BlasStatus> {
        let stream: *mut c_void = ptr::without_provenance_mut(stream);
        // SAFETY: as in `multiply`; the caller vouches for the place.
        let status = unsafe { (self.table()?.vector)(stream, operation, host) };
        self.sent("an operation on vectors", status)
    }

    /// Returns whether the host of the current context's device announces an ability, a bit of
    /// [`vgpu_wire::facts::exec`].
    ///
    /// # Errors
    /// Fails as [`Self::multiply`] does.
    pub fn can(&self, ability: u32) -> Result<bool, BlasStatus> {
        let mut abilities = 0;
        // SAFETY: an entry of libcuda's table, called with a place for the answer.
        unsafe { (self.table()?.abilities)(&raw mut abilities) }.ok().map_err(BlasStatus::from)?;
        Ok(abilities & ability != 0)
    }
}
