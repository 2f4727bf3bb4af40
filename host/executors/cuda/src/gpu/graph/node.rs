//! Nodes of a graph as the guest sent them.

use std::sync::Arc;

use vgpu_device::{GraphEdge, Violation};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::{Body, SEGMENT_INLINE, Span};

use crate::driver::error::DriverError;
use crate::driver::stream::LaunchShape;
use crate::gpu::code::LoadedKernel;
use crate::gpu::launch;
use crate::gpu::product::{ProductError, lacks_workspace};

/// A node, with its kernel if it is a launch.
#[derive(Debug)]
pub(crate) struct GuestNode {
    pub(crate) body: Body,
    /// Data of an inline copy, or parameters of a kernel.
    pub(crate) tail: Box<[u8]>,
    /// Kernel of a launch, and `None` for other nodes.
    pub(crate) kernel: Option<Arc<LoadedKernel>>,
    /// Earlier nodes on which the node depends.
    pub(crate) after: Box<[GraphEdge]>,
    /// Number of the earlier node that records the event for which this node waits.
    pub(crate) awaits: Option<u32>,
}

/// Reason for which a graph cannot be launched.
#[derive(Debug)]
pub(crate) enum GraphError {
    /// The guest named memory that it does not own.
    Violation(Violation),
    /// The driver refuses the call, or an address does not belong to the session.
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

impl GuestNode {
    /// Returns whether the node may start before an earlier one has ended.
    pub(super) fn is_early(&self) -> bool {
        self.after.iter().any(|edge| edge.programmatic)
    }

    /// Returns the earlier nodes on which the node depends. Without `programmatic` all edges are full.
    pub(super) fn edges(&self, programmatic: bool) -> impl Iterator<Item = GraphEdge> + '_ {
        self.after.iter().map(move |&GraphEdge { node, programmatic: early }| GraphEdge {
            node,
            programmatic: early && programmatic,
        })
    }

    /// Returns whether cuBLAS carries the node out.
    pub(super) const fn is_product(&self) -> bool {
        matches!(self.body, Body::Gemm(_) | Body::TriangularSolve(_) | Body::MatmulLt(_) | Body::VectorOp(_))
    }

    /// Returns whether the node is a product whose message names no workspace.
    pub(super) const fn shares_workspace(&self) -> bool {
        self.is_product() && lacks_workspace(&self.body)
    }

    /// Returns the span of guest memory from or to which the node copies.
    pub(crate) fn span(&self) -> Option<&Span> {
        let span = match &self.body {
            Body::CopyIn(body) => &body.source,
            Body::CopyOut(body) => &body.destination,
            _ => return None,
        };
        (span.segment != SEGMENT_INLINE).then_some(span)
    }

    /// Returns the GPU address and the length in bytes of a copy from or to the host.
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

    /// Returns whether the node can become `new` without a new capture. Both must be kernels with the same
    /// launch attributes.
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

/// Returns the shape of a kernel in a graph. The node's edges tell before which predecessors' ends the kernel
/// may start, so the launch has no attribute for it.
pub(super) fn shape(body: &Launch) -> LaunchShape {
    LaunchShape { programmatic: false, ..launch::shape(body) }
}
