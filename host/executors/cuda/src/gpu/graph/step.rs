//! What the nodes of a graph give the GPU, looked up: ranges that are the session's, kernels, and memory of
//! the host. All of it lives as long as the steps do.

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{SessionHost, Violation};
use vgpu_wire::Body;

use super::node::{GraphError, Node, shape};
use super::relay::{Own, Relay, Written};
use crate::driver::error::DriverError;
use crate::driver::host::{HostPart, Registered};
use crate::driver::range::DeviceRange;
use crate::driver::stream::Stream;
use crate::gpu::code::Kernel;
use crate::gpu::host_memory::Place;
use crate::gpu::launch;
use crate::gpu::memory::Memory;
use crate::gpu::part::Part;
use crate::gpu::transfer::{self, Transfer};

/// The session ends while a graph is put together.
pub(super) const STOPPED: DriverError =
    DriverError { call: "put a graph together", code: CUresult::NOT_READY };

/// A graph reads what it has written, in memory of the guest's that the GPU does not reach.
const WRITTEN_BEFORE: DriverError = DriverError {
    call: "copy unregistered memory that the graph has written",
    code: CUresult::NOT_SUPPORTED,
};

/// Parts of the graph's own memory start at multiples of this.
const ALIGNMENT: u64 = 256;

/// What a node gives the GPU.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing: other nodes come after it.
    Point,
    Kernel(Arc<Kernel>),
    Transfer(Transfer),
    /// What it reaches is looked up when it is captured.
    Product,
    Upload(DeviceRange, Side),
    Download(Side, DeviceRange),
}

/// Memory of the host that a node copies from or to, and where in it.
#[derive(Clone, Debug)]
pub(super) struct Side {
    memory: Backing,
    offset: u64,
}

#[derive(Clone, Debug)]
enum Backing {
    /// The guest's.
    Registered(Arc<Registered>),
    /// The graph's own, which holds the node's data.
    Own(Arc<Own>),
    /// The graph's own, which stands in for the guest's.
    StandIn(Arc<Own>),
}

impl Side {
    fn part(&self, bytes: u64) -> HostPart<'_> {
        let part = match &self.memory {
            Backing::Registered(registered) => registered.part(self.offset, bytes),
            Backing::Own(own) | Backing::StandIn(own) => own.pinned.part(self.offset, bytes),
        };
        part.expect("the side was made for as many bytes")
    }

    fn is_same(&self, other: &Self) -> bool {
        match (&self.memory, &other.memory) {
            (Backing::Registered(one), Backing::Registered(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// Whether all device memory that a node names is the session's: of a kernel nothing is looked at, and of a
/// product not here.
pub(super) fn check_ranges(memory: &Memory, node: &Node) -> Result<(), DriverError> {
    if let Some(transfer) = Transfer::find(memory, &node.body) {
        return transfer.map(drop);
    }
    if let Some((address, bytes)) = node.host_copy() {
        transfer::find(memory, address, bytes)?;
    }
    Ok(())
}

/// Looks up what nodes name, by their numbers.
pub(super) fn find(part: &mut Part, nodes: &[Node], numbers: &[u32]) -> Result<Vec<Step>, GraphError> {
    let mut sides = sides(part, nodes, numbers)?.into_iter();
    let mut steps = Vec::with_capacity(numbers.len());
    for &number in numbers {
        if part.host().stopping() {
            return Err(STOPPED.into());
        }
        let node = &nodes[number as usize];
        let step = match (&node.body, &node.kernel) {
            _ if node.is_product() => Step::Product,
            (Body::Launch(_), Some(kernel)) => {
                launch::check(kernel, &node.tail)?;
                Step::Kernel(Arc::clone(kernel))
            }
            (body, _) => match (Transfer::find(&part.memory, body), node.host_copy()) {
                (Some(transfer), _) => {
                    let transfer = transfer?;
                    if transfer.is_nothing() { Step::Point } else { Step::Transfer(transfer) }
                }
                (None, Some((address, bytes))) => {
                    let range = transfer::find(&part.memory, address, bytes)?;
                    match (sides.next().flatten(), body) {
                        (None, _) => Step::Point,
                        (Some(side), Body::CopyOut(_)) => Step::Download(side, range),
                        (Some(side), _) => Step::Upload(range, side),
                    }
                }
                (None, None) => Step::Point,
            },
        };
        steps.push(step);
    }
    Ok(steps)
}

/// Where a side is to be, before the graph's own memory is there.
enum Wanted<'a> {
    Nowhere,
    Guest(Side),
    Own(u64, &'a [u8]),
    StandIn(u64),
}

/// The host's side of each copy from and to the host, in the order of the nodes; `None` for those of no
/// bytes. Registers guest memory, and copies data of the nodes' own to memory of the graph's own.
fn sides(part: &mut Part, nodes: &[Node], numbers: &[u32]) -> Result<Vec<Option<Side>>, GraphError> {
    let host = part.host().clone();
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
            Some(span) => match part.copies.place(&host.piece(span)?)? {
                Place::Registered(memory, offset) if memory.part(offset, bytes).is_some() => {
                    Wanted::Guest(Side { memory: Backing::Registered(memory), offset })
                }
                _ => Wanted::StandIn(take(bytes)),
            },
        });
    }
    let own = if own_bytes == 0 { None } else { Some(Own::allocate(part, own_bytes)?) };
    let side = |wanted| {
        Some(match (wanted, &own) {
            (Wanted::Guest(side), _) => side,
            (Wanted::Own(offset, data), Some(own)) => {
                if let Ok(room) = own.pinned.slice().subslice(offset as usize, data.len()) {
                    room.copy_from(data);
                }
                Side { memory: Backing::Own(Arc::clone(own)), offset }
            }
            (Wanted::StandIn(offset), Some(own)) => {
                Side { memory: Backing::StandIn(Arc::clone(own)), offset }
            }
            (Wanted::Nowhere | Wanted::Own(..) | Wanted::StandIn(_), _) => return None,
        })
    };
    Ok(wanted.into_iter().map(side).collect())
}

/// Whether memory of the graph's own stands in for guest memory anywhere. Refuses a graph that reads from
/// such memory what it has written there: it would read what was there before the launch.
pub(super) fn stand_in(nodes: &[Node], steps: &[Step]) -> Result<bool, DriverError> {
    let (mut any, mut written) = (false, Written::default());
    for (node, step) in nodes.iter().zip(steps) {
        let (Some(span), Some(side)) = (node.span(), step.side()) else { continue };
        if !matches!(side.memory, Backing::StandIn(_)) {
            continue;
        }
        any = true;
        match step {
            Step::Download(..) => written.add(span),
            _ if written.has_part_of(span) => return Err(WRITTEN_BEFORE),
            _ => {}
        }
    }
    Ok(any)
}

impl Step {
    /// Gives a stream the node's work, which is all that it adds to the stream's capture.
    pub(super) fn issue(&self, node: &Node, stream: &Stream) -> Result<(), DriverError> {
        match (self, &node.body) {
            (Self::Kernel(kernel), Body::Launch(body)) => {
                stream.launch(&kernel.function, &shape(body), &node.tail)
            }
            (Self::Transfer(transfer), _) => transfer.issue(stream),
            (Self::Upload(to, from), _) => stream.copy_in(*to, from.part(to.bytes())),
            (Self::Download(to, from), _) => stream.copy_out(to.part(from.bytes()), *from),
            (Self::Point | Self::Product | Self::Kernel(_), _) => Ok(()),
        }
    }

    /// Whether another step keeps alive all that this one does.
    pub(super) fn uses_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Kernel(one), Self::Kernel(other)) => Arc::ptr_eq(one, other),
            (Self::Upload(_, one), Self::Upload(_, other))
            | (Self::Download(one, _), Self::Download(other, _)) => one.is_same(other),
            (Self::Point | Self::Product | Self::Transfer(_), _) => true,
            _ => false,
        }
    }

    /// The host's side of a copy.
    const fn side(&self) -> Option<&Side> {
        match self {
            Self::Upload(_, side) | Self::Download(side, _) => Some(side),
            Self::Point | Self::Product | Self::Kernel(_) | Self::Transfer(_) => None,
        }
    }

    /// Where in this process the guest memory starts that it uses.
    pub(super) fn grant(&self) -> Option<usize> {
        match &self.side()?.memory {
            Backing::Registered(registered) => Some(registered.address()),
            Backing::Own(_) | Backing::StandIn(_) => None,
        }
    }

    /// The copy between the guest's memory and that which stands in for it, if there is such.
    pub(super) fn relay(&self, host: &SessionHost, node: &Node) -> Result<Option<Relay>, Violation> {
        let (Some(side), Some(span)) = (self.side(), node.span()) else { return Ok(None) };
        let Backing::StandIn(own) = &side.memory else { return Ok(None) };
        let (own, upload) = (Arc::clone(own), matches!(self, Self::Upload(..)));
        Ok(Some(Relay { own, offset: side.offset, piece: host.piece(span)?, upload }))
    }
}
