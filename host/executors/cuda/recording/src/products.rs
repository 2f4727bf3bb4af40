//! Operations of cuBLAS on a handle, and checks of the memory that products access.
//!
//! It is written from the manual of cuBLAS. A product is work in its handle's stream that writes the result.

use vgpu_abi::CUresult;
use vgpu_abi::blas::element_bytes;

use crate::blas::Blas;
use crate::call::ApiCall;
use crate::graph::NodeKind;
use crate::matrix::BlasMatrix;
use crate::memory::AddressRange;
use crate::raw::{DeviceAddress, HostAddress};
use crate::rule::{CallRefusal, CallResult, Rule};

/// Alignment in bytes that `cublasSetWorkspace` requires: "The workspace pointer has to be aligned to at
/// least 256 bytes".
pub const WORKSPACE_ALIGNMENT: u64 = 256;

/// Device memory that a handle takes in bytes, mostly the library's own workspace.
pub const HANDLE_BYTES: u64 = 40 << 20;

impl ApiCall {
    /// Carries out `cublasCreate`. It creates a handle in the current context, which takes [`HANDLE_BYTES`]
    /// of device memory.
    pub fn blas_create(&mut self) -> CallResult<usize> {
        let context = self.context()?;
        self.memory.acquire(HANDLE_BYTES)?;
        let blas = Blas { context, stream: 0, workspace: None, device_pointers: false };
        Ok(self.blas.add(blas))
    }

    /// Carries out `cublasDestroy`. It waits for all work of the current context.
    pub fn blas_destroy(&mut self, handle: usize) -> CallResult {
        let context = self.context()?;
        self.blas(handle)?;
        self.until(|machine| !machine.work.has_work(context));
        self.memory.give_back(HANDLE_BYTES);
        self.blas.remove(handle).map(drop)
    }

    pub fn blas(&mut self, handle: usize) -> CallResult<&mut Blas> {
        let context = self.context()?;
        let blas = self.blas.get_mut(handle)?;
        if blas.context == context { Ok(blas) } else { Err(Rule::OtherContext.into()) }
    }

    /// Carries out `cublasSetStream`. It "unconditionally resets the cuBLAS library workspace back to the
    /// default".
    pub fn blas_stream(&mut self, handle: usize, stream: usize) -> CallResult {
        let context = self.blas(handle)?.context;
        self.streams.lane(context, stream)?;
        let blas = self.blas(handle)?;
        (blas.stream, blas.workspace) = (stream, None);
        Ok(())
    }

    /// Carries out `cublasSetWorkspace`.
    pub fn blas_workspace(&mut self, handle: usize, workspace: AddressRange) -> CallResult {
        self.blas(handle)?;
        if !workspace.start.is_multiple_of(WORKSPACE_ALIGNMENT) {
            return Err(Rule::BlasWorkspace.into());
        }
        self.device_range(workspace, true)?;
        self.blas(handle)?.workspace = Some(workspace);
        Ok(())
    }

    /// Carries out `cublasSetPointerMode`.
    pub fn blas_pointers(&mut self, handle: usize, mode: i32) -> CallResult {
        let blas = self.blas(handle)?;
        blas.device_pointers = mode == 1;
        if matches!(mode, 0 | 1) { Ok(()) } else { Err(Rule::Argument.into()) }
    }

    /// Carries out `cublasSetMathMode`.
    pub fn blas_math(&mut self, handle: usize, known: bool) -> CallResult {
        self.blas(handle)?;
        if known { Ok(()) } else { Err(Rule::Argument.into()) }
    }

    /// Checks alpha, beta or a result of type `kind` in the memory that the pointer mode selects.
    pub fn blas_scalar(&mut self, handle: usize, place: HostAddress, kind: i32, write: bool) -> CallResult {
        let bytes = element_bytes(kind).ok_or(CallRefusal::Expected(CUresult::NOT_SUPPORTED))?;
        if place.number() == 0 {
            return Err(Rule::NullArgument.into());
        }
        if !self.blas(handle)?.device_pointers {
            return Ok(());
        }
        self.device_range(AddressRange::new(place.number(), bytes), write)
    }

    /// Checks the leading dimension and the memory of a matrix that is read or written.
    pub fn blas_matrix(&self, matrix: BlasMatrix, count: i64, write: bool) -> CallResult<AddressRange> {
        let bytes = element_bytes(matrix.kind).ok_or(CallRefusal::Expected(CUresult::NOT_SUPPORTED))?;
        let [rows, columns] = matrix.size;
        if rows < 0 || columns < 0 || count < 0 || matrix.leading < rows.max(1) {
            return Err(Rule::Argument.into());
        }
        if rows == 0 || columns == 0 || count == 0 {
            return Ok(AddressRange::new(matrix.address.0, 0));
        }
        let reach = ((columns - 1) * matrix.leading + rows).cast_unsigned() * bytes;
        let last = matrix.address.0.wrapping_add_signed((count - 1) * matrix.stride * bytes.cast_signed());
        let (low, high) = (matrix.address.0.min(last), matrix.address.0.max(last));
        let range = AddressRange::new(low, high - low + reach);
        self.device_range(range, write).map(|()| range)
    }

    /// Checks arrays of `count` addresses in device memory.
    pub fn blas_arrays<const N: usize>(&self, arrays: [DeviceAddress; N], count: i64) -> CallResult {
        let bytes = u64::try_from(count).map_err(|_| Rule::Argument)? * 8;
        arrays.iter().try_for_each(|array| self.device_range(AddressRange::new(array.0, bytes), false))
    }

    /// Enqueues work that writes `result` in the handle's stream. The workspace must still exist.
    pub fn blas_submit(&mut self, handle: usize, result: AddressRange) -> CallResult {
        let (context, stream, workspace) = {
            let blas = self.blas(handle)?;
            (blas.context, blas.stream, blas.workspace)
        };
        if let Some(workspace) = workspace {
            self.device_range(workspace, true)?;
        }
        let lane = self.streams.lane(context, stream)?;
        let ranges = workspace.into_iter().chain([result]).collect();
        self.submit(lane, NodeKind::Product { ranges })
    }
}
