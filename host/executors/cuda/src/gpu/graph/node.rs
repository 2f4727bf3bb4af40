//! The nodes of a graph, as the guest sent them.

use std::sync::Arc;

use vgpu_device::Violation;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::{Body, SEGMENT_INLINE, Span};

use crate::driver::error::DriverError;
use crate::driver::stream::Shape;
use crate::gpu::code::Kernel;
use crate::gpu::launch;
use crate::gpu::product::{ProductError, Products, Target};

/// What a node is, with its kernel.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) body: Body,
    /// The data of an inline copy, or the parameters of a kernel.
    pub(crate) tail: Box<[u8]>,
    /// The kernel of a launch.
    pub(crate) kernel: Option<Arc<Kernel>>,
    /// Numbers of the earlier nodes that it comes after.
    pub(crate) after: Box<[u32]>,
    /// An earlier node that it waits for, too: the record of the event that it names.
    pub(crate) awaits: Option<u32>,
}

/// Why a graph cannot be launched.
#[derive(Debug)]
pub(crate) enum GraphError {
    /// The guest named memory that is not its own.
    Violation(Violation),
    /// The driver refuses, or an address is not the session's.
    Driver(DriverError),
    /// A product cannot be carried out.
    Product(ProductError),
}

impl From<Violation> for GraphError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<DriverError> for GraphError {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

impl From<ProductError> for GraphError {
    fn from(error: ProductError) -> Self {
        Self::Product(error)
    }
}

impl Node {
    /// Whether it is a product, or another operation of cuBLAS.
    pub(super) const fn is_product(&self) -> bool {
        matches!(self.body, Body::Gemm(_) | Body::TriangularSolve(_) | Body::MatmulLt(_) | Body::VectorOp(_))
    }

    /// Whether it is a product whose message names no memory for cuBLAS to work in.
    pub(super) const fn shares_workspace(&self) -> bool {
        match &self.body {
            Body::Gemm(body) => body.workspace == 0,
            Body::MatmulLt(body) => body.workspace == 0,
            _ => self.is_product(),
        }
    }

    /// Gives a stream the node's product.
    pub(super) fn product(&self, products: &mut Products, to: &Target<'_>) -> Result<(), ProductError> {
        match &self.body {
            Body::Gemm(body) => products.gemm(to, body),
            Body::TriangularSolve(body) => products.solve(to, body),
            Body::MatmulLt(body) => products.matmul(to, body),
            Body::VectorOp(body) => products.vector(to, body),
            _ => Ok(()),
        }
    }

    /// The span of guest memory that it copies from or to.
    pub(crate) fn span(&self) -> Option<&Span> {
        let span = match &self.body {
            Body::CopyIn(body) => &body.source,
            Body::CopyOut(body) => &body.destination,
            _ => return None,
        };
        (span.segment != SEGMENT_INLINE).then_some(span)
    }

    /// Of a copy from or to the host: the address on the GPU, and the length in bytes.
    pub(super) const fn host_copy(&self) -> Option<(u64, u64)> {
        match &self.body {
            Body::CopyIn(body) if body.source.segment == SEGMENT_INLINE => {
                Some((body.destination, self.tail.len() as u64))
            }
            Body::CopyIn(body) => Some((body.destination, body.source.bytes)),
            Body::CopyOut(body) => Some((body.source, body.destination.bytes)),
            _ => None,
        }
    }

    /// Whether it can become another without being captured anew: both are kernels, and alike in what a plain
    /// launch does not have.
    pub(super) fn is_set_in_place(&self, new: &Self) -> bool {
        match (&self.body, &new.body) {
            (Body::Launch(old), Body::Launch(new)) => {
                let beyond = |launch: &Launch| (launch.cluster, launch.flags, launch.priority);
                beyond(old) == beyond(new)
            }
            _ => false,
        }
    }
}

/// The shape of a kernel in a graph. That it may start before its predecessors have ended is left out: the
/// guest's dependencies say nothing of it, and to wait is always right.
pub(super) fn shape(body: &Launch) -> Shape {
    Shape { programmatic: false, ..launch::shape(body) }
}
