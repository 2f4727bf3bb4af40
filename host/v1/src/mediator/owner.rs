//! The objects of one owner, which is a guest process as its machine's device identifies it. No other owner
//! can reach them.
//!
//! The tables have the sizes of existing hosts. If a table is full, existing hosts continue with an object
//! that is in no table (Q21); this one returns out of memory, because an object that is in no table can be
//! neither checked nor freed.

use std::collections::{BTreeMap, HashMap};

use vgpu_device::Charge;
use vgpu_wire::v1::call;

use super::port::Port;
use super::status;
use crate::image::Layouts;

/// A module that is loaded in the owner's session, by itself or as a library.
#[derive(Debug)]
pub(super) struct OwnerModule {
    /// Number of the module in the owner's session.
    pub(super) number: u32,
    /// The parameter layouts of its kernels, for legacy launches.
    pub(super) layouts: Layouts,
}

/// A kernel whose handle the guest has. `module` is the handle of its module.
#[derive(Clone, Debug)]
pub(super) struct OwnerFunction {
    pub(super) number: u32,
    pub(super) module: u64,
    pub(super) name: String,
    pub(super) attributes: vgpu_wire::body::module::FunctionReply,
}

/// An event of a guest process.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerEvent {
    pub(super) number: u32,
    /// Index of its word among the words of events.
    pub(super) index: u32,
    pub(super) timed: bool,
    /// Mark of the newest record, or `None` if the event was never recorded.
    pub(super) record: Option<vgpu_wire::Mark>,
}

/// The newest query of a stream for completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamQuery {
    /// Index of its word among the words of queries.
    pub(super) index: u32,
    /// Mark after the work that the stream had then.
    pub(super) mark: vgpu_wire::Mark,
    /// Value of [`Port::given`] at the time of the query.
    pub(super) given: u64,
}

/// A table of handles of one kind, of limited size.
#[derive(Debug)]
pub(super) struct HandleTable<T> {
    entries: HashMap<u64, T>,
    most: usize,
}

impl<T> HandleTable<T> {
    fn new(most: usize) -> Self {
        Self { entries: HashMap::new(), most }
    }

    /// Fails with `CUDA_ERROR_OUT_OF_MEMORY` if the table has no room for one more handle.
    pub(super) fn room(&self) -> Result<(), u32> {
        if self.entries.len() < self.most { Ok(()) } else { Err(status::OUT_OF_MEMORY) }
    }

    pub(super) fn insert(&mut self, handle: u64, entry: T) {
        self.entries.insert(handle, entry);
    }

    pub(super) fn get(&self, handle: u64) -> Option<&T> {
        self.entries.get(&handle)
    }

    pub(super) fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        self.entries.get_mut(&handle)
    }

    pub(super) fn remove(&mut self, handle: u64) -> Option<T> {
        self.entries.remove(&handle)
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&u64, &mut T) -> bool) {
        self.entries.retain(keep);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&u64, &T)> {
        self.entries.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// Ranges of device memory, by address.
#[derive(Debug)]
pub(super) struct Ranges<T> {
    by_start: BTreeMap<u64, (u64, T)>,
    /// Number of bytes of all ranges together.
    bytes: u64,
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self { by_start: BTreeMap::new(), bytes: 0 }
    }
}

impl<T> Ranges<T> {
    /// Returns whether a single range contains all `bytes` from `address` on.
    pub(super) fn holds(&self, address: u64, bytes: u64) -> bool {
        self.by_start.range(..=address).next_back().is_some_and(|(start, (length, _))| {
            address.checked_add(bytes).is_some_and(|end| end <= start + length)
        })
    }

    pub(super) fn insert(&mut self, address: u64, bytes: u64, of: T) {
        self.bytes += bytes;
        if let Some((before, _)) = self.by_start.insert(address, (bytes, of)) {
            self.bytes -= before;
        }
    }

    pub(super) fn remove(&mut self, address: u64) -> Option<u64> {
        let (bytes, _) = self.by_start.remove(&address)?;
        self.bytes -= bytes;
        Some(bytes)
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let total = &mut self.bytes;
        self.by_start.retain(|_, (bytes, of)| {
            let kept = keep(of);
            *total -= if kept { 0 } else { *bytes };
            kept
        });
    }

    pub(super) fn addresses(&self) -> Vec<u64> {
        self.by_start.keys().copied().collect()
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }
}

/// The pieces received so far of an image that is not complete.
#[derive(Debug)]
pub(super) struct IncomingImage {
    pub(super) bytes: Vec<u8>,
    pub(super) charge: Charge,
}

/// The session and the tables of one owner.
pub(super) struct Owner {
    /// The session with the executor. If it is lost, the tables are dropped with it ([`Owner::new`]).
    pub(super) port: Port,
    /// Whether a call that needs a context has been made. Only then does a cleanup free the owner's memory
    /// (Q11).
    pub(super) context: bool,
    pub(super) allocations: Ranges<()>,
    /// Variables of modules whose addresses the guest has.
    pub(super) globals: Ranges<u64>,
    pub(super) modules: HandleTable<OwnerModule>,
    /// Libraries, with the handles of their modules.
    pub(super) libraries: HandleTable<u64>,
    /// Modules of libraries, which are unloaded with the library.
    pub(super) library_modules: HandleTable<OwnerModule>,
    pub(super) functions: HandleTable<OwnerFunction>,
    /// Streams, with their numbers in the session.
    pub(super) streams: HandleTable<u32>,
    /// The newest query of each stream, by the stream's number.
    pub(super) queries: HashMap<u32, StreamQuery>,
    pub(super) events: HandleTable<OwnerEvent>,
    /// cuBLAS handles, with the streams set for them.
    pub(super) cublas: HandleTable<u64>,
    /// An image that the guest is sending in pieces.
    pub(super) pieces: Option<IncomingImage>,
    /// The number assigned to the newest object of the session.
    minted: u32,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

impl Owner {
    pub(super) fn new(port: Port) -> Self {
        Self {
            port,
            context: false,
            allocations: Ranges::default(),
            globals: Ranges::default(),
            modules: HandleTable::new(call::MODULES_MAX),
            libraries: HandleTable::new(call::LIBRARIES_MAX),
            library_modules: HandleTable::new(call::LIBRARIES_MAX),
            functions: HandleTable::new(call::FUNCTIONS_MAX),
            streams: HandleTable::new(call::STREAMS_MAX),
            queries: HashMap::new(),
            events: HandleTable::new(call::EVENTS_MAX),
            cublas: HandleTable::new(call::CUBLAS_MAX),
            pieces: None,
            minted: 0,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// Returns the number of a new object in the session. Numbers are never used again.
    pub(super) fn mint(&mut self) -> u32 {
        self.minted += 1;
        self.minted
    }

    /// Fails with `CUDA_ERROR_INVALID_VALUE` unless `bytes` from `address` on are within one allocation or
    /// one variable (Q22).
    pub(super) fn reaches(&self, address: u64, bytes: u64) -> Result<(), u32> {
        if self.allocations.holds(address, bytes) || self.globals.holds(address, bytes) {
            return Ok(());
        }
        Err(status::INVALID_VALUE)
    }

    /// Finds a module, whether it was loaded by itself or by a library.
    pub(super) fn module(&self, handle: u64) -> Option<&OwnerModule> {
        self.modules.get(handle).or_else(|| self.library_modules.get(handle))
    }

    /// Returns the number of a stream in the session. Handles 0, 1 and 2 are the default streams, and an
    /// unknown handle also means the default stream.
    pub(super) fn stream(&self, handle: u64) -> u32 {
        self.streams.get(handle).copied().unwrap_or(0)
    }
}
