//! What cuBLAS does with a handle, and what a product reaches of device memory.
//!
//! Written from the manual of cuBLAS. A product is work of its handle's stream that writes its result.

use vgpu_abi::CUresult;
use vgpu_abi::blas::element_bytes;

use crate::blas::Blas;
use crate::call::Call;
use crate::graph::NodeKind;
use crate::matrix::Matrix;
use crate::memory::Range;
use crate::raw::{Address, HostAddress};
use crate::rule::{Answer, Refusal, Rule};

/// `cublasSetWorkspace`: "The workspace pointer has to be aligned to at least 256 bytes".
pub const WORKSPACE_ALIGNMENT: u64 = 256;

impl Call {
    /// `cublasCreate`: in the current context. Allocates, which a capture does not permit.
    pub fn blas_create(&mut self) -> Answer<usize> {
        let context = self.context_unsafe()?;
        let blas = Blas { context, stream: 0, workspace: None, device_pointers: false };
        Ok(self.blas.add(blas))
    }

    /// `cublasDestroy`: waits for the device.
    pub fn blas_destroy(&mut self, handle: usize) -> Answer {
        let context = self.context_unsafe()?;
        self.blas(handle)?;
        self.until(|machine| !machine.work.has_work(context));
        self.blas.remove(handle).map(drop)
    }

    /// A handle of the current context.
    pub fn blas(&mut self, handle: usize) -> Answer<&mut Blas> {
        let context = self.context()?;
        let blas = self.blas.get_mut(handle)?;
        if blas.context == context { Ok(blas) } else { Err(Rule::OtherContext.into()) }
    }

    /// `cublasSetStream`: "unconditionally resets the cuBLAS library workspace back to the default".
    pub fn blas_stream(&mut self, handle: usize, stream: usize) -> Answer {
        let context = self.blas(handle)?.context;
        self.streams.lane(context, stream)?;
        let blas = self.blas(handle)?;
        (blas.stream, blas.workspace) = (stream, None);
        Ok(())
    }

    /// `cublasSetWorkspace`
    pub fn blas_workspace(&mut self, handle: usize, workspace: Range) -> Answer {
        self.blas(handle)?;
        if !workspace.start.is_multiple_of(WORKSPACE_ALIGNMENT) {
            return Err(Rule::BlasWorkspace.into());
        }
        self.device_range(workspace, true)?;
        self.blas(handle)?.workspace = Some(workspace);
        Ok(())
    }

    /// `cublasSetPointerMode`
    pub fn blas_pointers(&mut self, handle: usize, mode: i32) -> Answer {
        let blas = self.blas(handle)?;
        blas.device_pointers = mode == 1;
        if matches!(mode, 0 | 1) { Ok(()) } else { Err(Rule::Argument.into()) }
    }

    /// `cublasSetMathMode`
    pub fn blas_math(&mut self, handle: usize, known: bool) -> Answer {
        self.blas(handle)?;
        if known { Ok(()) } else { Err(Rule::Argument.into()) }
    }

    /// Alpha, beta or a result of type `kind`, where the pointer mode says.
    pub fn blas_scalar(&mut self, handle: usize, place: HostAddress, kind: i32, write: bool) -> Answer {
        let bytes = element_bytes(kind).ok_or(Refusal::Expected(CUresult::NOT_SUPPORTED))?;
        if place.number() == 0 {
            return Err(Rule::NullArgument.into());
        }
        if !self.blas(handle)?.device_pointers {
            // The call would wait for its result, which nothing that is captured may.
            return if write { self.unsafe_call() } else { Ok(()) };
        }
        self.device_range(Range::new(place.number(), bytes), write)
    }

    /// A matrix that is read or written: a leading dimension as BLAS has it, and memory that is there.
    pub fn blas_matrix(&self, matrix: Matrix, count: i64, write: bool) -> Answer<Range> {
        let bytes = element_bytes(matrix.kind).ok_or(Refusal::Expected(CUresult::NOT_SUPPORTED))?;
        let [rows, columns] = matrix.size;
        if rows < 0 || columns < 0 || count < 0 || matrix.leading < rows.max(1) {
            return Err(Rule::Argument.into());
        }
        if rows == 0 || columns == 0 || count == 0 {
            return Ok(Range::new(matrix.address.0, 0));
        }
        let reach = ((columns - 1) * matrix.leading + rows).cast_unsigned() * bytes;
        let last = matrix.address.0.wrapping_add_signed((count - 1) * matrix.stride * bytes.cast_signed());
        let (low, high) = (matrix.address.0.min(last), matrix.address.0.max(last));
        let range = Range::new(low, high - low + reach);
        self.device_range(range, write).map(|()| range)
    }

    /// Arrays of as many addresses, in device memory.
    pub fn blas_arrays<const N: usize>(&self, arrays: [Address; N], count: i64) -> Answer {
        let bytes = u64::try_from(count).map_err(|_| Rule::Argument)? * 8;
        arrays.iter().try_for_each(|array| self.device_range(Range::new(array.0, bytes), false))
    }

    /// Gives the handle's stream work that writes `result`; with the workspace, which has to be there still.
    pub fn blas_submit(&mut self, handle: usize, result: Range) -> Answer {
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
