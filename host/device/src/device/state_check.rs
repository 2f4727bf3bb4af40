//! Checks whether this program, with this configuration, can restore a saved state. A check changes nothing.

use std::collections::BTreeSet;

use serde::Deserialize;
use vgpu_wire::body::pages::{PageRun, RUNS_MAX};
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::{Kind, MESSAGE_ALIGN, SEGMENT_BAR, SEGMENT_INLINE, TABLE_DIGEST, WIRE_VERSION, area};
use zerocopy::FromBytes;

use super::DeviceConfig;
use crate::charges::limits::{Limits, Resource};
use crate::dispatch::handles::RESOURCES;
use crate::memory::address_space::AddressSpace;
use crate::memory::window_allocator::{free_space, take_range};
use crate::saved::error::{RestoreError, STATE_MAX, STATE_VERSION, require};
use crate::saved::state::{ChannelState, DeviceState, MemoryState, RetiredState, RunningState, SessionState};

/// Limit of every saved counter and of the saved clock, for which it is 146 years in nanoseconds. The sum of
/// four values below it does not overflow.
const COUNT_MOST: u64 = 1 << 62;

/// The part of a state that every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl DeviceState {
    /// Reads a state that was written as JSON. What it says is not checked yet.
    pub fn parse(text: &[u8]) -> Result<Self, RestoreError> {
        require_size(text.len())?;
        let Versioned { version } = serde_json::from_slice(text)?;
        if version != STATE_VERSION {
            return Err(RestoreError::Version(version));
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// Returns the state as JSON, which [`DeviceState::parse`] reads.
    pub fn to_json(&self) -> Result<String, RestoreError> {
        Ok(serde_json::to_string(self)?)
    }

    /// Checks every field against the others and against the configuration of the device that is to continue.
    pub fn check(&self, config: &DeviceConfig) -> Result<(), RestoreError> {
        if self.version != STATE_VERSION {
            return Err(RestoreError::Version(self.version));
        }
        require(self.wire_version == WIRE_VERSION, "version of the contract", self.wire_version)?;
        require(
            self.wire_digest == TABLE_DIGEST,
            "digest of the contract",
            format_args!("{:#x}", self.wire_digest),
        )?;
        require(self.address == config.address.to_string(), "address", &self.address)?;
        require(self.executor == config.executor.name(), "executor", &self.executor)?;
        self.check_facts(&config.executor.facts())?;
        require(!matches!(self.generation, 0 | u32::MAX), "generation", self.generation)?;
        require((self.pages_key != 0) == config.memory.is_some(), "key of guest pages", self.pages_key != 0)?;
        require(self.window_bytes == config.window_bytes, "size of the window", self.window_bytes)?;
        require(
            self.channels.len() as u64 == u64::from(config.channels),
            "number of channels",
            self.channels.len(),
        )?;
        require(self.clock < COUNT_MOST, "clock", self.clock)?;
        let counted = |channel: &ChannelState| channel.doorbells.max(channel.earlier_doorbells);
        let doorbells = self.channels.iter().map(counted).max().unwrap_or(0);
        require(doorbells < COUNT_MOST, "number of doorbells", doorbells)?;
        config.executor.check(&self.executor_state)?;
        let areas = u64::from(config.channels) * area::AREA_BYTES;
        let mut taken = TakenMemory {
            pages: self.pages_key != 0,
            window: free_space(self.window_bytes, areas).0,
            runs: Vec::new(),
            processes: BTreeSet::new(),
        };
        let mut numbers = BTreeSet::new();
        for session in self.channels.iter().filter_map(|channel| channel.session.as_ref()) {
            let number = session.number;
            require(number != 0 && numbers.insert(number), "number of a session", number)?;
            session.check(config, &mut taken).map_err(|error| error.of(number))?;
        }
        require(!numbers.contains(&self.next_session), "number of the next session", self.next_session)?;
        taken.check_runs()
    }

    /// Checks that guests, which keep the facts that they have read, can use this device.
    fn check_facts(&self, own: &DeviceFacts) -> Result<(), RestoreError> {
        let saved = DeviceFacts::read_from_bytes(&self.facts.0);
        let saved = saved.map_err(|_| RestoreError::field("size of the facts", self.facts.0.len()))?;
        require(saved.uuid == own.uuid, "UUID", format_args!("{:02x?}", saved.uuid))?;
        require(saved.total_bytes == own.total_bytes, "size of the device's memory", saved.total_bytes)?;
        require(saved.addresses() == own.addresses(), "range of device addresses", "another one")?;
        let missing = saved.abilities & !own.abilities;
        require(
            missing == 0,
            "set of abilities",
            format_args!("{:#x}: {missing:#x} are missing", saved.abilities),
        )
    }
}

fn require_size(bytes: usize) -> Result<(), RestoreError> {
    if bytes > STATE_MAX { Err(RestoreError::Size(bytes)) } else { Ok(()) }
}

/// Memory that the sessions which were checked so far own.
struct TakenMemory {
    /// Whether the device accepts guest pages.
    pages: bool,
    window: AddressSpace,
    /// Start and end of each run of guest pages.
    runs: Vec<(u64, u64)>,
    processes: BTreeSet<u32>,
}

impl TakenMemory {
    fn take_range(&mut self, offset: u64, bytes: u64) -> Result<(), RestoreError> {
        let taken = take_range(&mut self.window, offset, bytes);
        require(taken, "range of the window", format_args!("{bytes:#x} bytes at {offset:#x}"))
    }

    fn take_runs(&mut self, runs: &[(u64, u64)]) -> Result<(), RestoreError> {
        require(self.pages, "list of guest pages", "other than empty")?;
        require((1..=RUNS_MAX as usize).contains(&runs.len()), "number of runs of guest pages", runs.len())?;
        for &(address, bytes) in runs {
            let good = PageRun { address, bytes }.is_good();
            require(good, "run of guest pages", format_args!("{bytes:#x} bytes at {address:#x}"))?;
            self.runs.push((address, address + bytes));
        }
        Ok(())
    }

    fn check_runs(mut self) -> Result<(), RestoreError> {
        self.runs.sort_unstable();
        let overlaps = self.runs.windows(2).find(|pair| pair[0].1 > pair[1].0);
        overlaps.map_or(Ok(()), |pair| {
            Err(RestoreError::field("run of guest pages", format_args!("{:#x} twice", pair[1].0)))
        })
    }
}

impl SessionState {
    fn check(&self, config: &DeviceConfig, taken: &mut TakenMemory) -> Result<(), RestoreError> {
        let before = taken.runs.len();
        self.memory.check(taken)?;
        for &(kind, _) in &self.figures.kinds {
            Kind::try_from(kind).map_err(|_| RestoreError::field("kind of message", kind))?;
        }
        if let Some(running) = &self.running {
            running.check(&config.limits)?;
            let claims = config.executor.check_session(running.number, &running.executor)?;
            if let Some(process) = claims.process {
                require(taken.processes.insert(process), "process of a worker", process)?;
            }
            for retired in claims.retired {
                match retired {
                    RetiredState::Window { offset, bytes } => taken.take_range(offset, bytes)?,
                    RetiredState::Pages { runs, slot, number, .. } => {
                        require(slot < area::REPLIES, "slot of an answer", slot)?;
                        require((1..=running.number).contains(&number), "number of an answer", number)?;
                        taken.take_runs(&runs)?;
                    }
                }
            }
        }
        let runs = taken.runs.len() - before;
        require(runs == 0 || self.memory.may_register, "right to register guest pages", false)?;
        require(runs <= RUNS_MAX as usize, "number of runs of guest pages", runs)
    }
}

impl MemoryState {
    fn check(&self, taken: &mut TakenMemory) -> Result<(), RestoreError> {
        require(!self.may_register || taken.pages, "right to register guest pages", true)?;
        if let Some(address) = self.returns {
            taken.take_runs(&[(address, area::RETURN_BYTES)])?;
        }
        for &(offset, bytes) in &self.ranges {
            taken.take_range(offset, bytes)?;
        }
        let mut numbers = BTreeSet::new();
        for segment in &self.segments {
            let number = segment.number;
            let possible = !matches!(number, SEGMENT_BAR | SEGMENT_INLINE) && numbers.insert(number);
            require(possible, "number of a segment", number)?;
            taken.take_runs(&segment.runs)?;
        }
        Ok(())
    }
}

impl RunningState {
    fn check(&self, limits: &Limits) -> Result<(), RestoreError> {
        let message = self.taken.as_ref().map_or(0, |bytes| bytes.0.len() as u64);
        let lengths = MESSAGE_ALIGN..=area::MESSAGE_MAX;
        let possible =
            self.taken.is_none() || lengths.contains(&message) && message.is_multiple_of(MESSAGE_ALIGN);
        require(possible, "size of a message", message)?;
        // Each message has at least a header.
        let least = self.number.checked_mul(MESSAGE_ALIGN).and_then(|bytes| bytes.checked_add(message));
        let possible = self.head.is_multiple_of(MESSAGE_ALIGN)
            && self.head < COUNT_MOST
            && least.is_some_and(|least| least <= self.head);
        require(possible, "position in the ring", self.head)?;
        require(self.done <= self.number, "number of messages that are done", self.done)?;
        let tables = &self.dispatch;
        for (numbers, resource) in tables.handles.iter().zip(RESOURCES) {
            let different: BTreeSet<&u32> = numbers.iter().collect();
            require(different.len() == numbers.len(), resource.name(), "the same twice")?;
            require(numbers.len() as u64 <= limits.limit(resource), resource.name(), numbers.len())?;
        }
        let (mut graphs, mut nodes) = (BTreeSet::new(), 0_u64);
        for graph in &tables.graphs {
            require(graphs.insert(graph.number), "number of a graph", graph.number)?;
            nodes += graph.nodes()?.0.len() as u64;
        }
        require(nodes <= limits.limit(Resource::GraphNodes), "number of nodes of graphs", nodes)?;
        for &(word, _) in &tables.promised {
            require((1..area::WORDS).contains(&word), "completion word", word)?;
        }
        let Some(pending) = &tables.pending else { return Ok(()) };
        require(self.taken.is_none() && self.number > 0, "message that waits", "one of two")?;
        pending.check(self.number).map(drop)
    }
}
