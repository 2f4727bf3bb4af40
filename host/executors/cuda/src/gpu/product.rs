//! Products of a session: its cuBLAS handle, workspaces, and the checks of a message before cuBLAS sees it.
//!
//! The first product of a session loads the library and creates the handle, which takes some hundred
//! milliseconds and waits for the device. The thread that reads the session's ring waits for that, and so do
//! sessions whose first products come while the library loads. A guest cannot prolong it, and nobody waits
//! for another session's handle.
//!
//! Enqueuing a product ([`BlasSession::gemm`]) neither allocates nor waits after [`BlasSession::prepare`] and
//! with a workspace, so that it may be captured.

use std::collections::HashMap;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{MatrixShape, Strided};
use vgpu_wire::Body;
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, Gemm};

use crate::driver::blas::handle::{BlasError, BlasHandle, BlasSettings};
use crate::driver::blas::product::{HostScalar, Scalar};
use crate::driver::context::DriverContext;
use crate::driver::range::DeviceRange;
use crate::driver::stream::DriverStream;
use crate::gpu::memory::{DeviceMemory, Freed};
use crate::gpu::operand::{OperandError, element, fits};
use crate::shared_gpu::SharedGpu;

/// Number of the attribute `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
const CAPABILITY_MAJOR: i32 = 75;
/// Size of a workspace in bytes, as NVIDIA's manual recommends: first for Hopper and Blackwell, then for
/// older GPUs.
const WORKSPACE_BYTES: [u64; 2] = [32 << 20, 4 << 20];
/// `CUBLAS_OP_C`, the last operation that products accept. `CUBLAS_OP_N` is 0.
pub(super) const OPERATION_LAST: u32 = 2;

/// Maximum number of entries that a product takes in the driver's queue: cuBLAS may multiply in parts, which
/// a second kernel adds.
const PRODUCT_PIECES: u64 = 2;
/// Number of rows of a triangle for which a solve is estimated to take the entries of one product. cuBLAS
/// does not tell.
const SOLVE_ROWS: u64 = 128;

/// Reason for which a product is not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProductError {
    /// The host has no cuBLAS, which was logged.
    #[error("this host has no cuBLAS")]
    NoBlas,
    /// An operand is invalid.
    #[error(transparent)]
    Operand(#[from] OperandError),
    /// cuBLAS refuses the call.
    #[error(transparent)]
    Blas(#[from] BlasError),
    /// The driver refuses the call.
    #[error(transparent)]
    Driver(#[from] crate::driver::error::DriverError),
}

impl ProductError {
    /// Returns the `CUresult` for the guest.
    pub(crate) const fn code(&self) -> CUresult {
        match self {
            Self::NoBlas => CUresult::NOT_SUPPORTED,
            Self::Operand(error) => error.code(),
            Self::Blas(error) => error.code(),
            Self::Driver(error) => error.code,
        }
    }
}

/// Workspace for the products of one stream or one graph, which run one after the other. The guest cannot
/// name it. Dropping it frees the memory; no work may use it by then.
#[derive(Debug)]
pub(crate) struct BlasWorkspace {
    range: DeviceRange,
    _memory: Freed,
}

impl BlasWorkspace {
    /// Returns the address range of the workspace.
    pub(crate) const fn range(&self) -> DeviceRange {
        self.range
    }
}

/// Returns whether a message names no workspace for its product.
pub(crate) const fn lacks_workspace(body: &Body) -> bool {
    match body {
        Body::Gemm(body) => body.workspace == 0,
        Body::MatmulLt(body) => body.workspace == 0,
        _ => true,
    }
}

/// Returns the number of entries that a message takes in the driver's queue, at most.
pub(crate) fn pieces(body: &Body) -> u64 {
    let products = match body {
        Body::TriangularSolve(body) => {
            let order = if body.side == 0 { body.size[0] } else { body.size[1] };
            order.div_ceil(SOLVE_ROWS).max(1)
        }
        _ => 1,
    };
    products.saturating_mul(PRODUCT_PIECES)
}

/// Stream in which a product runs, and the memory that it may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductTarget<'a> {
    /// Stream in which the product runs. It may be capturing.
    pub(crate) stream: &'a DriverStream,
    /// Device memory of the session.
    pub(crate) memory: &'a DeviceMemory,
    /// Workspace if the message names none. `None` selects the library's own, which the products use in
    /// turns.
    pub(crate) workspace: Option<DeviceRange>,
}

/// The cuBLAS handle and workspaces of a session.
#[derive(Debug, Default)]
pub(crate) struct BlasSession {
    handle: Option<BlasHandle>,
    /// Workspaces by stream. `None` if there was no memory for one.
    workspaces: HashMap<u32, Option<BlasWorkspace>>,
}

impl BlasSession {
    /// Creates the handle if there is none. The context must be current in the calling thread, and no capture
    /// may be in progress.
    pub(crate) fn prepare(
        &mut self,
        shared: &SharedGpu,
        context: &Arc<DriverContext>,
    ) -> Result<(), ProductError> {
        if self.handle.is_none() {
            let blas = shared.blas().ok_or(ProductError::NoBlas)?;
            self.handle = Some(BlasHandle::create(blas, context)?);
        }
        Ok(())
    }

    /// Allocates a workspace for one stream or graph. Returns `None` if there is no memory.
    pub(crate) fn workspace(shared: &SharedGpu, memory: &Arc<DeviceMemory>) -> Option<BlasWorkspace> {
        let hopper = shared.device.attribute(CAPABILITY_MAJOR).is_some_and(|major| major >= 9);
        let bytes = WORKSPACE_BYTES[usize::from(!hopper)];
        let address = memory.allocate_unrequested(bytes).ok()?;
        let range = memory.find(address, bytes);
        // Hidden at once, so that no copy, product or free of the guest can name it.
        let freed = memory.hide_allocation(address)?;
        Some(BlasWorkspace { range: range?, _memory: freed })
    }

    /// Returns the workspace for the products of a stream. `None` selects the library's own.
    pub(crate) fn workspace_of(
        &mut self,
        shared: &SharedGpu,
        memory: &Arc<DeviceMemory>,
        stream: u32,
    ) -> Option<DeviceRange> {
        let made = self.workspaces.entry(stream).or_insert_with(|| {
            let made = Self::workspace(shared, memory);
            if made.is_none() {
                tracing::debug!(stream, "no memory for a workspace: cuBLAS works in its own");
            }
            made
        });
        made.as_ref().map(BlasWorkspace::range)
    }

    /// Removes the workspace of a stream that ends. The caller drops it after the stream's work.
    pub(crate) fn forget(&mut self, stream: u32) -> Option<BlasWorkspace> {
        self.workspaces.remove(&stream).flatten()
    }

    /// Frees everything. No work may be in progress, and the context must be current in the calling thread.
    pub(crate) fn end(&mut self) {
        self.handle = None;
        self.workspaces.clear();
    }

    /// Enqueues the product of a message. Other messages enqueue nothing.
    pub(crate) fn issue(&mut self, to: &ProductTarget<'_>, body: &Body) -> Result<(), ProductError> {
        match body {
            Body::Gemm(body) => self.gemm(to, body),
            Body::TriangularSolve(body) => self.solve(to, body),
            Body::MatmulLt(body) => self.matmul(to, body),
            Body::VectorOp(body) => self.vector(to, body),
            _ => Ok(()),
        }
    }

    /// Enqueues a matrix product, all operands of which the session must own. Does nothing if C is empty.
    pub(crate) fn gemm(&mut self, to: &ProductTarget<'_>, body: &Gemm) -> Result<(), ProductError> {
        let [m, n, k] = body.size;
        if m == 0 || n == 0 || body.batch == 0 {
            return Ok(());
        }
        let scalars = to.scalars(body.flags, [body.alpha, body.beta], body.scale)?;
        // As in BLAS, a matrix that is not multiplied is not read and need not exist.
        let reads = k > 0 && counts(&scalars[0], body.scale);
        let matrix = |at: usize, name, operation: u32, rows, columns| {
            if operation > OPERATION_LAST {
                return Err(OperandError::Invalid { name: "an operation", value: operation.into() });
            }
            let (rows, columns) = if operation == 0 { (rows, columns) } else { (columns, rows) };
            let element = element(body.types[at])?;
            let shape = fits(MatrixShape { rows, columns, leading: body.leading[at], element })?;
            if at < 2 && !reads {
                return Ok(None);
            }
            let address = body.matrix[at];
            let found = if body.flags & GEMM_POINTERS != 0 {
                to.memory.addresses(name, address, body.batch)
            } else {
                let place = Strided { address, stride: body.stride[at], element };
                to.memory.matrices(name, place, shape, body.batch)
            };
            found.map(Some)
        };
        let [on_a, on_b] = body.operation;
        let inputs = [matrix(0, "A", on_a, m, k)?, matrix(1, "B", on_b, k, n)?];
        let Some(result) = matrix(2, "C", 0, m, n)? else { unreachable!("C is always looked up") };
        // cuBLAS may still require an address. That of C belongs to the session.
        let [first, second] = inputs.map(|input| input.unwrap_or(result));
        let matrices = [first, second, result];
        let workspace = to.named_workspace(body.workspace, body.workspace_bytes)?;
        let settings = to.settings(body.flags, body.math, workspace);
        Ok(self.set(to, settings)?.gemm(body, matrices, &scalars)?)
    }

    /// Returns the handle, for a call that takes all settings as arguments.
    pub(super) fn handle(&self) -> Result<&BlasHandle, ProductError> {
        self.handle.as_ref().ok_or(ProductError::NoBlas)
    }

    /// Returns the handle after applying the settings for a call.
    pub(super) fn set(
        &mut self,
        to: &ProductTarget<'_>,
        settings: BlasSettings,
    ) -> Result<&BlasHandle, ProductError> {
        let handle = self.handle.as_mut().ok_or(ProductError::NoBlas)?;
        handle.set(to.stream, settings)?;
        Ok(handle)
    }
}

impl ProductTarget<'_> {
    /// Resolves alpha and beta of type `kind` in the memory that the flags select.
    pub(super) fn scalars<const N: usize>(
        &self,
        flags: u32,
        scalars: [[u8; 16]; N],
        kind: u32,
    ) -> Result<[Scalar; N], OperandError> {
        let bytes = element(kind)?;
        let mut found = scalars.map(|bytes| Scalar::Host(HostScalar(bytes)));
        if flags & GEMM_DEVICE_SCALARS != 0 {
            for (found, scalar) in found.iter_mut().zip(scalars) {
                let address = u128::from_le_bytes(scalar) as u64;
                *found = Scalar::Device(self.memory.operand("a scalar", address, bytes, bytes)?);
            }
        }
        Ok(found)
    }

    /// Returns the workspace that a message names. Address 0 means none.
    pub(super) fn named_workspace(
        &self,
        address: u64,
        bytes: u64,
    ) -> Result<Option<DeviceRange>, OperandError> {
        if address == 0 {
            return Ok(None);
        }
        self.memory.operand("the workspace", address, bytes, 1).map(Some)
    }

    /// Returns the settings of a call. `workspace` is the one that its message names.
    pub(super) const fn settings(
        &self,
        flags: u32,
        math: u32,
        workspace: Option<DeviceRange>,
    ) -> BlasSettings {
        let workspace = if workspace.is_some() { workspace } else { self.workspace };
        BlasSettings { math, device_scalars: flags & GEMM_DEVICE_SCALARS != 0, workspace }
    }
}

/// Returns whether the operand that a factor multiplies must be read. It need not if the factor is known to
/// be zero.
pub(super) fn counts(factor: &Scalar, kind: u32) -> bool {
    match factor {
        Scalar::Host(number) => !vgpu_abi::blas::Scalar(number.0).is_zero(kind as i32),
        Scalar::Device(_) => true,
    }
}
