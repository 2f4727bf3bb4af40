//! State of the whole library, and operations on several of its parts: the end of a context, faults, names of
//! addresses, checks of copies.

use std::collections::HashMap;

use serde_json::{Value, json};
use vgpu_abi::CUresult;

use crate::blas::{self, Handled};
use crate::capture::Captures;
use crate::code::ModuleTable;
use crate::context::{CONTEXT_BYTES, Contexts};
use crate::graph::{CopySide, Graphs, NodeKind};
use crate::handle;
use crate::host_memory::HostMemory;
use crate::link::Links;
use crate::lt::Lt;
use crate::memory::{AddressRange, DeviceMemory};
use crate::options::RecordingOptions;
use crate::raw::{self, HostFunction};
use crate::record::{CallRecord, RecordLine};
use crate::rule::{CallRefusal, CallResult, Rule};
use crate::stream::{Recorded, Streams};
use crate::virtual_memory::VirtualMemory;
use crate::work::{Effect, StreamKey, WorkQueue};

/// Result of one step of the device.
#[derive(Debug)]
pub enum DeviceStep {
    /// No work can complete at this moment.
    Nothing,
    /// A piece of work has completed.
    Completed,
    /// The piece of work with this number goes on when this host function has returned.
    Call(u64, HostFunction),
}

#[derive(Debug)]
pub struct RecordingMachine {
    pub options: RecordingOptions,
    pub record: CallRecord,
    /// Whether `cuInit` was called.
    pub initialized: bool,
    /// Number of calls that block calls of other threads.
    pub blockers: usize,
    /// Number of calls of each function.
    calls: HashMap<&'static str, u64>,
    /// Number of kernels that have completed.
    kernels: u64,
    pub contexts: Contexts,
    pub memory: DeviceMemory,
    pub space: VirtualMemory,
    pub host: HostMemory,
    pub streams: Streams,
    pub captures: Captures,
    pub graphs: Graphs,
    pub modules: ModuleTable,
    pub blas: Handled,
    pub lt: Lt,
    pub links: Links,
    pub work: WorkQueue,
}

impl RecordingMachine {
    /// Creates the initial state. Prints the error in the options, if there is one.
    pub fn new(options: Result<RecordingOptions, String>) -> Self {
        let options = options.unwrap_or_else(|error| {
            eprintln!("recording libcuda: {error}");
            RecordingOptions::default()
        });
        let record = CallRecord::open(options.record.as_deref()).unwrap_or_else(|error| {
            eprintln!("recording libcuda: {error}");
            CallRecord::default()
        });
        Self {
            record,
            initialized: false,
            blockers: 0,
            calls: HashMap::new(),
            kernels: 0,
            contexts: Contexts::new(),
            memory: DeviceMemory::new(),
            space: VirtualMemory::new(),
            host: HostMemory::default(),
            streams: Streams::new(),
            captures: Captures::default(),
            graphs: Graphs::new(),
            modules: ModuleTable::new(options.function_threads, options.local_bytes),
            blas: blas::none(),
            lt: Lt::new(),
            links: Links::new(),
            work: WorkQueue::default(),
            options,
        }
    }

    /// Counts a call. Returns the status that the options inject into it.
    pub fn count(&mut self, call: &'static str) -> Option<CUresult> {
        let count = self.calls.entry(call).or_default();
        *count += 1;
        let wanted =
            |failure: &&crate::options::InjectedFailure| failure.call == call && failure.nth == *count;
        self.options.failures.iter().find(wanted).map(|failure| CUresult(failure.status))
    }

    /// Returns the recorded form of a handle: its name, 0, or the number of a special stream.
    pub fn handle(raw: usize) -> Value {
        handle::name(raw).map_or_else(|| json!(raw), Value::from)
    }

    /// Returns the recorded form of an address.
    pub fn address(&self, address: u64) -> Value {
        let name = self
            .memory
            .name(address)
            .or_else(|| self.host.name(address))
            .or_else(|| self.space.name(address));
        match name {
            Some(name) => name.into(),
            None if address == 0 => 0.into(),
            None => "unknown".into(),
        }
    }

    /// Checks a range for a copy or a fill. It may be device memory, or mapped host memory.
    pub fn device_range(&self, range: AddressRange, write: bool) -> CallResult {
        if range.bytes == 0 {
            return Ok(());
        }
        let allocated = self.memory.at(range.start).is_some_and(|one| one.range.has(range));
        if allocated || self.space.accessible(range, write) || self.host.of_device(range).is_some() {
            return Ok(());
        }
        // Kept apart so that a use after a free is reported as one.
        Err(self
            .memory
            .starting(range.start)
            .err()
            .filter(|refusal| *refusal == Rule::Freed.into())
            .unwrap_or(Rule::OutOfRange.into()))
    }

    /// Checks both sides of a copy, destination first, and notes host memory that is not pinned.
    pub fn copy(&self, line: &mut RecordLine, sides: [CopySide; 2]) -> CallResult {
        for (side, write) in sides.into_iter().zip([true, false]) {
            match side {
                CopySide::Device(range) => self.device_range(range, write)?,
                CopySide::Host(range) if range.bytes == 0 => {}
                CopySide::Host(range) if range.start == 0 => return Err(Rule::NullArgument.into()),
                CopySide::Host(range) => {
                    if self.host.find(range).is_none() {
                        line.note("pageable");
                    }
                }
            }
        }
        if let [CopySide::Device(to), CopySide::Device(from)] = sides
            && to.overlaps(from)
        {
            return Err(Rule::Overlap.into());
        }
        Ok(())
    }

    /// Adds work to a stream, or a node to its capture.
    pub fn submit(&mut self, lane: StreamKey, kind: NodeKind) -> CallResult {
        let (mut effects, mut uses) = (Vec::new(), Vec::new());
        kind.effects(&mut effects, &mut uses);
        if self.captures.add(lane, &mut self.graphs, || kind)?.is_none() {
            self.work.push(lane, effects, uses);
        }
        Ok(())
    }

    /// Records an event in a stream.
    pub fn record_event(&mut self, lane: StreamKey, event: usize) -> CallResult {
        let context = self.streams.events.get(event)?.context;
        if context != lane.context {
            return Err(Rule::OtherContext.into());
        }
        self.captures.not_captured(lane)?;
        let number = self.work.push(lane, vec![Effect::Record { event }], Vec::new());
        self.recorded(event, number)
    }

    /// Sets a piece of work as an event's newest record.
    pub fn recorded(&mut self, event: usize, number: u64) -> CallResult {
        self.streams.events.get_mut(event)?.recorded = Recorded::Work { number, at: None, asked: 0 };
        Ok(())
    }

    /// Completes one piece of work, if one can complete.
    pub fn step(&mut self) -> DeviceStep {
        let Some(number) = self.work.due(self.options.order) else { return DeviceStep::Nothing };
        if let Some(function) = self.work.host_function(number) {
            return DeviceStep::Call(number, function);
        }
        let Some(done) = self.work.complete(number) else { return DeviceStep::Nothing };
        for effect in done.effects {
            match effect {
                Effect::Write { address, bytes, value } => raw::store(address, bytes, value),
                Effect::Record { event } => self.streams.completed(event, done.number),
                Effect::Wait { .. } | Effect::Call(_) => {}
                Effect::Kernel => {
                    self.kernels += 1;
                    if let Some(fault) = self.options.fault.filter(|fault| fault.launch == self.kernels) {
                        self.lose(done.context, CUresult(fault.status));
                        break;
                    }
                }
            }
        }
        DeviceStep::Completed
    }

    /// Marks a context as lost. Nothing in it completes any more.
    fn lose(&mut self, context: usize, status: CUresult) {
        if let Ok(context) = self.contexts.get_mut(context) {
            context.fault = Some(status);
        }
        self.work.drop_context(context);
    }

    /// Removes a context with all its objects.
    pub fn end_context(&mut self, context: usize) -> CallResult {
        self.contexts.destroy(context)?;
        self.memory.give_back(CONTEXT_BYTES);
        self.work.drop_context(context);
        self.memory.end_context(context);
        self.streams.end_context(context);
        self.captures.end_context(context);
        self.modules.end_context(context);
        self.links.end_context(context);
        Ok(())
    }

    /// Fails with the error by which a context was lost, if it was.
    pub fn fault_of(&self, context: usize) -> CallResult {
        match self.contexts.get(context)?.fault {
            Some(status) => Err(CallRefusal::Expected(status)),
            None => Ok(()),
        }
    }
}
