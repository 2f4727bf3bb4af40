//! Operands of a graph's nodes: ranges that the session owns, kernels, and host memory. They live as long as
//! the instance.

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{SessionHost, Violation};
use vgpu_wire::Body;

use super::node::{GraphError, GuestNode, shape};
use super::stand_in::{BounceCopy, GraphMemory, Written};
use crate::driver::error::DriverError;
use crate::driver::host::{HostPart, RegisteredMemory};
use crate::driver::range::DeviceRange;
use crate::driver::stream::DriverStream;
use crate::gpu::code::LoadedKernel;
use crate::gpu::gpu_session::GpuSession;
use crate::gpu::host_memory::GuestLocation;
use crate::gpu::launch;
use crate::gpu::memory::DeviceMemory;
use crate::gpu::transfer::{self, Transfer};

/// Error for a session that ended during the capture of a graph.
pub(super) const STOPPED: DriverError =
    DriverError { call: "put a graph together", code: CUresult::NOT_READY };

/// Error for a graph that reads data that it has written itself, in guest memory that the GPU cannot access.
const WRITTEN_BEFORE: DriverError = DriverError {
    call: "copy unregistered memory that the graph has written",
    code: CUresult::NOT_SUPPORTED,
};

/// Alignment of the parts of a graph's own memory, in bytes.
const ALIGNMENT: u64 = 256;

/// Operands of one node.
#[derive(Debug)]
pub(super) enum NodeOperands {
    /// The node only orders other nodes.
    Point,
    Kernel(Arc<LoadedKernel>),
    Transfer(Transfer),
    /// The operands are looked up during the capture.
    Product,
    Upload(DeviceRange, HostOperand),
    Download(HostOperand, DeviceRange),
}

/// Host memory from or to which a node copies, and the offset in it.
#[derive(Clone, Debug)]
pub(super) struct HostOperand {
    memory: Backing,
    offset: u64,
}

#[derive(Clone, Debug)]
enum Backing {
    /// Registered memory of the guest.
    Registered(Arc<RegisteredMemory>),
    /// Memory of the graph that holds the node's data.
    Own(Arc<GraphMemory>),
    /// Memory of the graph that stands in for guest memory.
    StandIn(Arc<GraphMemory>),
}

impl HostOperand {
    fn part(&self, bytes: u64) -> HostPart<'_> {
        let gpu = match &self.memory {
            Backing::Registered(registered) => registered.part(self.offset, bytes),
            Backing::Own(own) | Backing::StandIn(own) => own.pinned.part(self.offset, bytes),
        };
        gpu.expect("the side was made for as many bytes")
    }

    fn is_same(&self, other: &Self) -> bool {
        match (&self.memory, &other.memory) {
            (Backing::Registered(one), Backing::Registered(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// Checks that the session owns the device memory that a node names. Kernels name none, and products are
/// checked when they are captured.
pub(super) fn check_ranges(memory: &DeviceMemory, node: &GuestNode) -> Result<(), DriverError> {
    if let Some(transfer) = Transfer::find(memory, &node.body) {
        return transfer.map(drop);
    }
    if let Some((address, bytes)) = node.host_copy() {
        transfer::find(memory, address, bytes)?;
    }
    Ok(())
}

/// Looks up the operands of the nodes with these numbers.
pub(super) fn find(
    gpu: &mut GpuSession,
    nodes: &[GuestNode],
    numbers: &[u32],
) -> Result<Vec<NodeOperands>, GraphError> {
    let mut sides = sides(gpu, nodes, numbers)?.into_iter();
    let mut steps = Vec::with_capacity(numbers.len());
    for &number in numbers {
        if gpu.host().stopping() {
            return Err(STOPPED.into());
        }
        let node = &nodes[number as usize];
        let step = match (&node.body, &node.kernel) {
            _ if node.is_product() => NodeOperands::Product,
            (Body::Launch(_), Some(kernel)) => {
                launch::check(kernel, &node.tail)?;
                gpu.local.grow(kernel.local_bytes)?;
                NodeOperands::Kernel(Arc::clone(kernel))
            }
            (body, _) => match (Transfer::find(&gpu.memory, body), node.host_copy()) {
                (Some(transfer), _) => {
                    let transfer = transfer?;
                    if transfer.is_nothing() { NodeOperands::Point } else { NodeOperands::Transfer(transfer) }
                }
                (None, Some((address, bytes))) => {
                    let range = transfer::find(&gpu.memory, address, bytes)?;
                    match (sides.next().flatten(), body) {
                        (None, _) => NodeOperands::Point,
                        (Some(side), Body::CopyOut(_)) => NodeOperands::Download(side, range),
                        (Some(side), _) => NodeOperands::Upload(range, side),
                    }
                }
                (None, None) => NodeOperands::Point,
            },
        };
        steps.push(step);
    }
    Ok(steps)
}

/// Kind of host memory that an operand needs, before the graph's memory is allocated.
enum Wanted<'a> {
    Nowhere,
    Guest(HostOperand),
    Own(u64, &'a [u8]),
    StandIn(u64),
}

/// Finds the host memory of each copy from and to the host, in the order of the nodes, with `None` for copies
/// of no bytes. It registers guest memory, and copies inline data to memory of the graph.
fn sides(
    gpu: &mut GpuSession,
    nodes: &[GuestNode],
    numbers: &[u32],
) -> Result<Vec<Option<HostOperand>>, GraphError> {
    let host = gpu.host().clone();
    let mut own_bytes = 0_u64;
    let mut take = |bytes: u64| {
        let offset = own_bytes;
        own_bytes = offset.saturating_add(bytes.next_multiple_of(ALIGNMENT));
        offset
    };
    let mut wanted = Vec::new();
    for &number in numbers {
        let node = &nodes[number as usize];
        let Some((_, bytes)) = node.host_copy() else { continue };
        wanted.push(match node.span() {
            _ if bytes == 0 => Wanted::Nowhere,
            None => Wanted::Own(take(bytes), &node.tail),
            Some(span) => match gpu.copies.place(&host.piece(span)?)? {
                GuestLocation::Registered(memory, offset) if memory.part(offset, bytes).is_some() => {
                    Wanted::Guest(HostOperand { memory: Backing::Registered(memory), offset })
                }
                _ => Wanted::StandIn(take(bytes)),
            },
        });
    }
    let own = if own_bytes == 0 { None } else { Some(GraphMemory::allocate(gpu, own_bytes)?) };
    let side = |wanted| {
        Some(match (wanted, &own) {
            (Wanted::Guest(side), _) => side,
            (Wanted::Own(offset, data), Some(own)) => {
                if let Ok(room) = own.pinned.slice().subslice(offset as usize, data.len()) {
                    room.copy_from(data);
                }
                HostOperand { memory: Backing::Own(Arc::clone(own)), offset }
            }
            (Wanted::StandIn(offset), Some(own)) => {
                HostOperand { memory: Backing::StandIn(Arc::clone(own)), offset }
            }
            (Wanted::Nowhere | Wanted::Own(..) | Wanted::StandIn(_), _) => return None,
        })
    };
    Ok(wanted.into_iter().map(side).collect())
}

/// Returns whether memory of the graph stands in for guest memory. Refuses a graph that reads from such
/// memory after an earlier node has written to it, because it would read the data from before the launch.
pub(super) fn stand_in(nodes: &[GuestNode], steps: &[NodeOperands]) -> Result<bool, DriverError> {
    let (mut any, mut written) = (false, Written::default());
    for (node, step) in nodes.iter().zip(steps) {
        let (Some(span), Some(side)) = (node.span(), step.side()) else { continue };
        if !matches!(side.memory, Backing::StandIn(_)) {
            continue;
        }
        any = true;
        match step {
            NodeOperands::Download(..) => written.add(span),
            _ if written.has_part_of(span) => return Err(WRITTEN_BEFORE),
            _ => {}
        }
    }
    Ok(any)
}

impl NodeOperands {
    /// Enqueues the node's work, which must be all that is added to the stream's capture.
    pub(super) fn issue(&self, node: &GuestNode, stream: &DriverStream) -> Result<(), DriverError> {
        match (self, &node.body) {
            (Self::Kernel(kernel), Body::Launch(body)) => {
                stream.enqueue_kernel(&kernel.function, &shape(body), &node.tail)
            }
            (Self::Transfer(transfer), _) => transfer.issue(stream),
            (Self::Upload(to, from), _) => stream.enqueue_h2d(*to, from.part(to.bytes())),
            (Self::Download(to, from), _) => stream.enqueue_d2h(to.part(from.bytes()), *from),
            (Self::Point | Self::Product | Self::Kernel(_), _) => Ok(()),
        }
    }

    /// Returns whether `other` keeps alive everything that these operands do.
    pub(super) fn uses_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Kernel(one), Self::Kernel(other)) => Arc::ptr_eq(one, other),
            (Self::Upload(_, one), Self::Upload(_, other))
            | (Self::Download(one, _), Self::Download(other, _)) => one.is_same(other),
            (Self::Point | Self::Product | Self::Transfer(_), _) => true,
            _ => false,
        }
    }

    /// Returns the host memory of a copy.
    const fn side(&self) -> Option<&HostOperand> {
        match self {
            Self::Upload(_, side) | Self::Download(side, _) => Some(side),
            Self::Point | Self::Product | Self::Kernel(_) | Self::Transfer(_) => None,
        }
    }

    /// Returns the start in this process of the guest memory that the node uses.
    pub(super) fn grant(&self) -> Option<usize> {
        match &self.side()?.memory {
            Backing::Registered(registered) => Some(registered.address()),
            Backing::Own(_) | Backing::StandIn(_) => None,
        }
    }

    /// Returns the copy between guest memory and the memory that stands in for it, if there is one.
    pub(super) fn relay(
        &self,
        host: &SessionHost,
        node: &GuestNode,
    ) -> Result<Option<BounceCopy>, Violation> {
        let (Some(side), Some(span)) = (self.side(), node.span()) else { return Ok(None) };
        let Backing::StandIn(own) = &side.memory else { return Ok(None) };
        let (own, upload) = (Arc::clone(own), matches!(self, Self::Upload(..)));
        Ok(Some(BounceCopy { own, offset: side.offset, piece: host.piece(span)?, upload }))
    }
}
