//! The state of the whole library, and what concerns more than one part of it: a context's end, a fault, the
//! name of an address, the addresses of copies.

use std::collections::HashMap;

use serde_json::{Value, json};
use vgpu_abi::CUresult;

use crate::blas::{self, Handled};
use crate::capture::Captures;
use crate::code::Modules;
use crate::context::Contexts;
use crate::graph::{Graphs, NodeKind, Side};
use crate::handle;
use crate::host_memory::HostMemory;
use crate::link::Links;
use crate::lt::Lt;
use crate::memory::{Memory, Range};
use crate::options::Options;
use crate::raw::{self, HostFunction};
use crate::record::{Line, Record};
use crate::rule::{Answer, Refusal, Rule};
use crate::stream::{Recorded, Streams};
use crate::virtual_memory::VirtualMemory;
use crate::work::{Effect, Lane, Work};

/// What became of the device's next piece of work.
#[derive(Debug)]
pub enum Step {
    /// None can be complete.
    Nothing,
    /// It is complete.
    Completed,
    /// It is complete once this function has returned.
    Call(HostFunction),
}

/// Everything.
#[derive(Debug)]
pub struct Machine {
    /// What the library was told.
    pub options: Options,
    /// Where calls are recorded.
    pub record: Record,
    /// `cuInit` has been called.
    pub initialized: bool,
    /// How often each function was called.
    calls: HashMap<&'static str, u64>,
    /// Kernels that have completed.
    kernels: u64,
    /// Contexts and threads.
    pub contexts: Contexts,
    /// Device memory.
    pub memory: Memory,
    /// Virtual memory.
    pub space: VirtualMemory,
    /// Host memory.
    pub host: HostMemory,
    /// Streams and events.
    pub streams: Streams,
    /// Captures.
    pub captures: Captures,
    /// Graphs.
    pub graphs: Graphs,
    /// Code.
    pub modules: Modules,
    /// Handles of cuBLAS.
    pub blas: Handled,
    /// Descriptions of cuBLASLt's.
    pub lt: Lt,
    /// The linker.
    pub links: Links,
    /// Work.
    pub work: Work,
}

impl Machine {
    /// A machine that nobody has called. Says what is wrong with the options.
    pub fn new(options: Result<Options, String>) -> Self {
        let options = options.unwrap_or_else(|error| {
            eprintln!("recording libcuda: {error}");
            Options::default()
        });
        let record = Record::open(options.record.as_deref()).unwrap_or_else(|error| {
            eprintln!("recording libcuda: {error}");
            Record::default()
        });
        Self {
            record,
            initialized: false,
            calls: HashMap::new(),
            kernels: 0,
            contexts: Contexts::new(),
            memory: Memory::new(options.memory_bytes),
            space: VirtualMemory::new(),
            host: HostMemory::default(),
            streams: Streams::new(),
            captures: Captures::default(),
            graphs: Graphs::new(),
            modules: Modules::new(options.function_threads),
            blas: blas::none(),
            lt: Lt::new(),
            links: Links::new(),
            work: Work::default(),
            options,
        }
    }

    /// Counts a call; the status that the options want it to answer.
    pub fn count(&mut self, call: &'static str) -> Option<CUresult> {
        let count = self.calls.entry(call).or_default();
        *count += 1;
        let wanted = |failure: &&crate::options::Failure| failure.call == call && failure.nth == *count;
        self.options.failures.iter().find(wanted).map(|failure| CUresult(failure.status))
    }

    /// A device.
    pub fn device(&self, ordinal: i32) -> Answer<i32> {
        if (0..self.options.devices).contains(&ordinal) { Ok(ordinal) } else { Err(Rule::Device.into()) }
    }

    /// A handle as records have it: its name, 0, or the number of a special stream.
    pub fn handle(raw: usize) -> Value {
        handle::name(raw).map_or_else(|| json!(raw), Value::from)
    }

    /// An address as records have it.
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

    /// Checks a range of device memory, which may be mapped or registered host memory, for a copy or a fill.
    pub fn device_range(&self, range: Range, write: bool) -> Answer {
        if range.bytes == 0 {
            return Ok(());
        }
        let allocated = self.memory.at(range.start).is_some_and(|one| one.range.has(range));
        if allocated || self.space.accessible(range, write) || self.host.of_device(range).is_some() {
            return Ok(());
        }
        // Kept apart so that a use after a free is told as one.
        Err(self
            .memory
            .starting(range.start)
            .err()
            .filter(|refusal| *refusal == Rule::Freed.into())
            .unwrap_or(Rule::OutOfRange.into()))
    }

    /// Checks both sides of a copy, destination first, and notes host memory that is not pinned.
    pub fn copy(&self, line: &mut Line, sides: [Side; 2]) -> Answer {
        for (side, write) in sides.into_iter().zip([true, false]) {
            match side {
                Side::Device(range) => self.device_range(range, write)?,
                Side::Host(range) if range.bytes == 0 => {}
                Side::Host(range) if range.start == 0 => return Err(Rule::NullArgument.into()),
                Side::Host(range) => {
                    if self.host.find(range).is_none() {
                        line.note("pageable");
                    }
                }
            }
        }
        if let [Side::Device(to), Side::Device(from)] = sides
            && to.overlaps(from)
        {
            return Err(Rule::Overlap.into());
        }
        Ok(())
    }

    /// Gives work to a stream, or a node to its capture.
    pub fn submit(&mut self, lane: Lane, kind: NodeKind) -> Answer {
        let (mut effects, mut uses) = (Vec::new(), Vec::new());
        kind.effects(&mut effects, &mut uses);
        if self.captures.add(lane, &mut self.graphs, || kind)?.is_none() {
            self.work.push(lane, effects, uses);
        }
        Ok(())
    }

    /// A record of an event in a stream.
    pub fn record_event(&mut self, lane: Lane, event: usize) -> Answer {
        let context = self.streams.events.get(event)?.context;
        if context != lane.context {
            return Err(Rule::OtherContext.into());
        }
        if let Some((capture, nodes)) = self.captures.record(lane)? {
            let event = self.streams.events.get_mut(event)?;
            event.recorded = Recorded::Captured { capture };
            event.nodes = nodes;
            return Ok(());
        }
        let number = self.work.push(lane, vec![Effect::Record { event }], Vec::new());
        self.recorded(event, number)
    }

    /// Says that an event's newest record is a piece of work.
    pub fn recorded(&mut self, event: usize, number: u64) -> Answer {
        self.streams.events.get_mut(event)?.recorded = Recorded::Work { number, at: None, asked: 0 };
        Ok(())
    }

    /// Goes on with one piece of work, if one can be complete.
    pub fn step(&mut self) -> Step {
        let Some(number) = self.work.due(self.options.order) else { return Step::Nothing };
        if let Some(function) = self.work.host_function(number) {
            return Step::Call(function);
        }
        let Some(done) = self.work.complete(number) else { return Step::Nothing };
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
        Step::Completed
    }

    /// A context is lost: nothing of it completes any more.
    fn lose(&mut self, context: usize, status: CUresult) {
        if let Ok(context) = self.contexts.get_mut(context) {
            context.fault = Some(status);
        }
        self.work.drop_context(context);
    }

    /// Takes away a context with all that it had.
    pub fn end_context(&mut self, context: usize) -> Answer {
        let gone = self.contexts.destroy(context)?;
        self.memory.give_back(gone.device, self.options.context_bytes);
        self.work.drop_context(context);
        self.memory.end_context(context);
        self.streams.end_context(context);
        self.captures.end_context(context);
        self.modules.end_context(context);
        self.links.end_context(context);
        Ok(())
    }

    /// The error of the context that an event is of, if it was lost.
    pub fn fault_of(&self, context: usize) -> Answer {
        match self.contexts.get(context)?.fault {
            Some(status) => Err(Refusal::Expected(status)),
            None => Ok(()),
        }
    }
}
