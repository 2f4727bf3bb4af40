//! What belongs to one owner, which is a guest process as its machine's device tells it apart. Nothing of it
//! is reached by another.
//!
//! The tables have the sizes of the host that exists. Where that one goes on with what it has not entered
//! (Q21) this one says that it is out of memory: what is in no table cannot be checked, nor freed.

use std::collections::{BTreeMap, HashMap};

use vgpu_wire::v1::call;

use super::port::Port;
use super::status;
use crate::charges::charge::Charge;
use crate::v1::image::Layouts;

/// A loaded module.
#[derive(Debug)]
pub(super) struct Module {
    /// Its number in the owner's session.
    pub(super) number: u32,
    /// Where its kernels' parameters lie.
    pub(super) layouts: Layouts,
}

/// A kernel that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) number: u32,
    pub(super) module: u64,
    pub(super) name: String,
    pub(super) attributes: vgpu_wire::body::module::FunctionReply,
}

/// An event of a guest process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) number: u32,
    /// Which of the events' words is its own.
    pub(super) index: u32,
    pub(super) timed: bool,
    /// Its newest record.
    pub(super) record: Option<vgpu_wire::Mark>,
}

/// What a stream was last asked, which is whether its work is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    /// Which of the queries' words is its own.
    pub(super) index: u32,
    /// Behind the stream's work as it was then.
    pub(super) mark: vgpu_wire::Mark,
    /// [`Port::given`] at that time.
    pub(super) given: u64,
}

/// Handles of one kind.
#[derive(Debug)]
pub(super) struct Table<T> {
    entries: HashMap<u64, T>,
    most: usize,
}

impl<T> Table<T> {
    fn new(most: usize) -> Self {
        Self { entries: HashMap::new(), most }
    }

    /// Whether one more finds room.
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

/// Ranges of device memory by their addresses.
#[derive(Debug)]
pub(super) struct Ranges<T> {
    by_start: BTreeMap<u64, (u64, T)>,
    /// Of all of them.
    bytes: u64,
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self { by_start: BTreeMap::new(), bytes: 0 }
    }
}

impl<T> Ranges<T> {
    /// Whether all of `bytes` from `address` on lie in one range.
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

/// Pieces of an image that is not whole yet.
#[derive(Debug)]
pub(super) struct Pieces {
    pub(super) bytes: Vec<u8>,
    pub(super) charge: Charge,
}

/// The session and the tables of one owner.
pub(super) struct Owner {
    /// Its session with the executor. Before the tables are, so that a lost one takes them along
    /// ([`Owner::new`]).
    pub(super) port: Port,
    /// A call has been made that needs a context: a cleanup frees what the owner has (Q11).
    pub(super) context: bool,
    pub(super) allocations: Ranges<()>,
    /// Variables of modules, whose addresses were asked for.
    pub(super) globals: Ranges<u64>,
    pub(super) modules: Table<Module>,
    /// Libraries and their modules' handles.
    pub(super) libraries: Table<u64>,
    /// Modules of libraries, which end with them.
    pub(super) library_modules: Table<Module>,
    pub(super) functions: Table<Function>,
    /// Streams and their numbers.
    pub(super) streams: Table<u32>,
    /// The newest query of each stream, by its number.
    pub(super) queries: HashMap<u32, Query>,
    pub(super) events: Table<Event>,
    /// Products' handles and the streams set for them.
    pub(super) cublas: Table<u64>,
    /// An image that comes in pieces.
    pub(super) pieces: Option<Pieces>,
    /// Numbers minted for the session.
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
            modules: Table::new(call::MODULES_MAX),
            libraries: Table::new(call::LIBRARIES_MAX),
            library_modules: Table::new(call::LIBRARIES_MAX),
            functions: Table::new(call::FUNCTIONS_MAX),
            streams: Table::new(call::STREAMS_MAX),
            queries: HashMap::new(),
            events: Table::new(call::EVENTS_MAX),
            cublas: Table::new(call::CUBLAS_MAX),
            pieces: None,
            minted: 0,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// A number for a new handle in the session.
    pub(super) fn mint(&mut self) -> u32 {
        self.minted += 1;
        self.minted
    }

    /// Whether copies may reach `bytes` from `address` on: allocations and variables (Q22).
    pub(super) fn reaches(&self, address: u64, bytes: u64) -> Result<(), u32> {
        if self.allocations.holds(address, bytes) || self.globals.holds(address, bytes) {
            return Ok(());
        }
        Err(status::INVALID_VALUE)
    }

    /// A module, a library's or one by itself.
    pub(super) fn module(&self, handle: u64) -> Option<&Module> {
        self.modules.get(handle).or_else(|| self.library_modules.get(handle))
    }

    /// A stream's number: 0, 1 and 2 are the default ones, and so is what is no stream.
    pub(super) fn stream(&self, handle: u64) -> u32 {
        self.streams.get(handle).copied().unwrap_or(0)
    }
}
