//! Products of a session: its handle of cuBLAS, memory for that to work in, and what is checked of a message
//! before cuBLAS sees it.
//!
//! The library is loaded, and the handle made, with the session's first product. Both take long: some hundred
//! milliseconds, and a wait for the device. The thread that reads the session's ring waits for them, and
//! sessions whose first products come while the library is being loaded wait for that; nothing of a guest's
//! can make it longer. Nobody waits for another session's handle.
//!
//! What gives a stream a product ([`Products::gemm`]) neither allocates nor waits, so that it may be
//! captured, once [`Products::prepare`] has succeeded and the workspace is there.

use std::collections::HashMap;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{MatrixShape, Strided};
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, Gemm};

use crate::driver::blas::handle::{BlasError, Handle, Settings};
use crate::driver::blas::product::{HostScalar, Scalar};
use crate::driver::context::Context;
use crate::driver::range::DeviceRange;
use crate::driver::stream::Stream;
use crate::gpu::memory::{Freed, Memory};
use crate::gpu::operand::{OperandError, element, fits};
use crate::shared::Shared;

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`
const CAPABILITY_MAJOR: i32 = 75;
/// Bytes that NVIDIA's manual advises for a workspace: on Hopper and Blackwell, and on what came before.
const WORKSPACE_BYTES: [u64; 2] = [32 << 20, 4 << 20];
/// `CUBLAS_OP_N` is 0; `CUBLAS_OP_C` is the last that products take.
pub(super) const OPERATION_LAST: u32 = 2;

/// Why a product is not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProductError {
    /// There is no cuBLAS, which has been said.
    #[error("this host has no cuBLAS")]
    NoBlas,
    /// An operand cannot be.
    #[error(transparent)]
    Operand(#[from] OperandError),
    /// cuBLAS refuses.
    #[error(transparent)]
    Blas(#[from] BlasError),
    /// The driver refuses.
    #[error(transparent)]
    Driver(#[from] crate::driver::error::DriverError),
}

impl ProductError {
    /// The `CUresult` for the guest.
    pub(crate) const fn code(&self) -> CUresult {
        match self {
            Self::NoBlas => CUresult::NOT_SUPPORTED,
            Self::Operand(error) => error.code(),
            Self::Blas(error) => error.code(),
            Self::Driver(error) => error.code,
        }
    }
}

/// Device memory for cuBLAS to work in, for the products of one stream or one graph: those run one after the
/// other. The guest cannot name it. Dropping it frees it: no work may use it any more.
#[derive(Debug)]
pub(crate) struct Workspace {
    range: DeviceRange,
    _memory: Freed,
}

impl Workspace {
    /// Where it is.
    pub(crate) const fn range(&self) -> DeviceRange {
        self.range
    }
}

/// Where a product goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// The stream, which may be captured.
    pub(crate) stream: &'a Stream,
    /// The session's memory.
    pub(crate) memory: &'a Memory,
    /// What to work in if the message names nothing. `None`: the library's own, which it takes in turns.
    pub(crate) workspace: Option<DeviceRange>,
}

/// What a session has of cuBLAS.
#[derive(Debug, Default)]
pub(crate) struct Products {
    handle: Option<Handle>,
    /// By stream. `None`: there was no memory for one.
    workspaces: HashMap<u32, Option<Workspace>>,
}

impl Products {
    /// Makes the handle, unless there is one. The context is the thread's current one, and nothing is being
    /// captured.
    pub(crate) fn prepare(&mut self, shared: &Shared, context: &Arc<Context>) -> Result<(), ProductError> {
        if self.handle.is_none() {
            let blas = shared.blas().ok_or(ProductError::NoBlas)?;
            self.handle = Some(Handle::create(blas, context)?);
        }
        Ok(())
    }

    /// Memory for the products of one stream or graph. `None`: there is none.
    pub(crate) fn workspace(shared: &Shared, memory: &Arc<Memory>) -> Option<Workspace> {
        let hopper = shared.device.attribute(CAPABILITY_MAJOR).is_some_and(|major| major >= 9);
        let bytes = WORKSPACE_BYTES[usize::from(!hopper)];
        let address = memory.allocate(bytes).ok()?;
        let range = memory.find(address, bytes);
        // Taken from the session at once: no copy, product or free of the guest's may name it.
        let freed = memory.take(address)?;
        Some(Workspace { range: range?, _memory: freed })
    }

    /// The memory for the products of a stream. Without room for any, the library's own serves.
    pub(crate) fn workspace_of(
        &mut self,
        shared: &Shared,
        memory: &Arc<Memory>,
        stream: u32,
    ) -> Option<DeviceRange> {
        let made = self.workspaces.entry(stream).or_insert_with(|| {
            let made = Self::workspace(shared, memory);
            if made.is_none() {
                tracing::debug!(stream, "no memory for a workspace: cuBLAS works in its own");
            }
            made
        });
        made.as_ref().map(Workspace::range)
    }

    /// A stream ends: its workspace, for who drops it when the stream's work is complete.
    pub(crate) fn forget(&mut self, stream: u32) -> Option<Workspace> {
        self.workspaces.remove(&stream).flatten()
    }

    /// Ends everything. No work is under way, and the context is the thread's current one.
    pub(crate) fn end(&mut self) {
        self.handle = None;
        self.workspaces.clear();
    }

    /// Gives a stream a matrix product.
    pub(crate) fn gemm(&mut self, to: &Target<'_>, body: &Gemm) -> Result<(), ProductError> {
        let [m, n, k] = body.size;
        if m == 0 || n == 0 || body.batch == 0 {
            return Ok(());
        }
        let scalars = to.scalars(body.flags, [body.alpha, body.beta], body.scale)?;
        // As in BLAS: what is not multiplied is not read, and need not be there.
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
        // cuBLAS may want an address all the same: that of C is one of the session's.
        let [first, second] = inputs.map(|input| input.unwrap_or(result));
        let matrices = [first, second, result];
        let workspace = to.named_workspace(body.workspace, body.workspace_bytes)?;
        let settings = to.settings(body.flags, body.math, workspace);
        Ok(self.set(to, settings)?.gemm(body, matrices, &scalars)?)
    }

    /// The handle, for a call that takes all that it needs as arguments.
    pub(super) fn handle(&self) -> Result<&Handle, ProductError> {
        self.handle.as_ref().ok_or(ProductError::NoBlas)
    }

    /// The handle, set for a call.
    pub(super) fn set(&mut self, to: &Target<'_>, settings: Settings) -> Result<&Handle, ProductError> {
        let handle = self.handle.as_mut().ok_or(ProductError::NoBlas)?;
        handle.set(to.stream, settings)?;
        Ok(handle)
    }
}

impl Target<'_> {
    /// Alpha and beta of type `kind`, where the flags say.
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

    /// The workspace that a message names; at address 0 there is none.
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

    /// The settings of a call. `workspace`: that which its message names.
    pub(super) const fn settings(&self, flags: u32, math: u32, workspace: Option<DeviceRange>) -> Settings {
        let workspace = if workspace.is_some() { workspace } else { self.workspace };
        Settings { math, device_scalars: flags & GEMM_DEVICE_SCALARS != 0, workspace }
    }
}

/// Whether what a factor of type `kind` multiplies has to be read: it is not known to be nought.
pub(super) fn counts(factor: &Scalar, kind: u32) -> bool {
    match factor {
        Scalar::Host(number) => !vgpu_abi::blas::Scalar(number.0).is_zero(kind as i32),
        Scalar::Device(_) => true,
    }
}
