//! Two devices get the same messages, and one of them is saved and restored between them. Both answer alike.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use vgpu_device::{Limits, SessionStatus};
use vgpu_host_testing::commands::node;
use vgpu_host_testing::guest::{Guest, end, until};
use vgpu_host_testing::reload::Reloadable;
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::body::graph::{GraphDefine, GraphDestroy, GraphLaunch};
use vgpu_wire::body::memory::{MemAlloc, MemFree, MemInfo};
use vgpu_wire::body::pages::{PAGE_BYTES, PageRun, PagesRegister, PagesUnregister};
use vgpu_wire::body::session::{WindowAlloc, WindowAllocReply, WindowFree};
use vgpu_wire::body::stream::{EventCreate, EventDestroy, EventRecord, Signal, StreamCreate, StreamDestroy};
use vgpu_wire::registers::channel;
use vgpu_wire::{JOIN_ALL, Mark, Span, area};
use zerocopy::{FromBytes, IntoBytes};

use crate::reload::reloadable_of;

const GUESTS: usize = 2;
/// Time after which two devices that still answer differently are different.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of pages that each guest may register.
const PAGES: u64 = 32;

/// What a guest does next. Numbers choose among what it has.
#[derive(Clone, Debug)]
enum Step {
    Allocate(u64),
    Free(usize),
    CopyIn(usize, u8),
    CopyOut(usize),
    Window(u64),
    WindowFree(usize),
    Stream(u32),
    StreamDestroy(usize),
    Event,
    EventRecord(usize),
    EventDestroy(usize),
    Graph(u32),
    GraphLaunch(usize),
    GraphDestroy(usize),
    Pages(u64, u64),
    PagesFree(usize),
    MemoryInfo,
    Echo,
    /// A message that ends the session, after which the guest attaches anew: one that frees what is not its own,
    /// or that promises less than an earlier one.
    Nonsense(bool),
    /// The first device is paused, and goes on or is replaced.
    Pause,
    Reload,
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0usize..8;
    prop_oneof![
        4 => (1u64..64).prop_map(Step::Allocate),
        1 => which.clone().prop_map(Step::Free),
        1 => (which.clone(), any::<u8>()).prop_map(|(which, seed)| Step::CopyIn(which, seed)),
        1 => which.clone().prop_map(Step::CopyOut),
        1 => (1u64..4).prop_map(Step::Window),
        1 => which.clone().prop_map(Step::WindowFree),
        4 => (1u32..12).prop_map(Step::Stream),
        1 => which.clone().prop_map(Step::StreamDestroy),
        4 => Just(Step::Event),
        1 => which.clone().prop_map(Step::EventRecord),
        1 => which.clone().prop_map(Step::EventDestroy),
        4 => (1u32..6).prop_map(Step::Graph),
        1 => which.clone().prop_map(Step::GraphLaunch),
        1 => which.clone().prop_map(Step::GraphDestroy),
        1 => (0..PAGES, 1u64..4).prop_map(|(page, pages)| Step::Pages(page, pages)),
        1 => which.prop_map(Step::PagesFree),
        1 => Just(Step::MemoryInfo),
        1 => Just(Step::Echo),
        1 => any::<bool>().prop_map(Step::Nonsense),
        1 => Just(Step::Pause),
        4 => Just(Step::Reload),
    ]
}

/// A guest and what it has.
struct Client {
    guest: Guest,
    memory: Vec<u64>,
    ranges: Vec<u64>,
    streams: Vec<u32>,
    events: Vec<u32>,
    graphs: Vec<u32>,
    segments: Vec<u32>,
    /// Newest number of a handle, and of a mark.
    newest: u32,
    value: u64,
    /// Word of the newest mark, or 0.
    word: u32,
}

fn take<T>(all: &mut Vec<T>, which: usize) -> Option<T> {
    let count = all.len();
    (count > 0).then(|| all.swap_remove(which % count))
}

fn pick<T: Copy>(all: &[T], which: usize) -> Option<T> {
    (!all.is_empty()).then(|| all[which % all.len()])
}

impl Client {
    fn attach(device: &Reloadable, index: u32) -> Self {
        let function = device.function();
        end(&function, index);
        let key = device.device().pages_key();
        for (register, value) in [(channel::PAGES_KEY_LO, key), (channel::PAGES_KEY_HI, key >> 32)] {
            function.write(channel::base(index) + register, value as u32);
        }
        let mut guest = Guest::attach_silently(function, index);
        guest.hello();
        Self {
            guest,
            memory: Vec::new(),
            ranges: Vec::new(),
            streams: Vec::new(),
            events: Vec::new(),
            graphs: Vec::new(),
            segments: Vec::new(),
            newest: 0,
            value: 0,
            word: 0,
        }
    }

    /// Carries a step out, and describes the answer.
    fn carry_out(&mut self, device: &Reloadable, index: u32, step: &Step) -> String {
        let guest = &mut self.guest;
        self.newest += 1;
        let (new, staging) = (self.newest, guest.area + area::STAGING);
        match *step {
            Step::Allocate(pages) => {
                let (status, data) = guest.call(MemAlloc { reply: 0, flags: 0, bytes: pages << 12 }, &[]);
                self.memory.extend(<[u8; 8]>::try_from(&data[..]).map(u64::from_le_bytes));
                return format!("{status} {data:x?}");
            }
            Step::Free(which) => {
                if let Some(address) = take(&mut self.memory, which) {
                    guest.send(&MemFree { address }, &[]);
                }
            }
            Step::CopyIn(which, seed) => {
                if let Some(destination) = pick(&self.memory, which) {
                    let source = Span::inline(4096);
                    let body = CopyIn { stream: 0, reserved: 0, destination, source, read: Mark::NONE };
                    guest.send(&body, &[seed; 4096]);
                }
            }
            Step::CopyOut(which) => {
                if let Some(source) = pick(&self.memory, which) {
                    self.value += 1;
                    self.word = 3;
                    let (destination, written) = (Span::bar(staging, 4096), Mark::new(3, self.value));
                    guest.send(&CopyOut { stream: 0, reserved: 0, source, destination, written }, &[]);
                    guest.wait_word(3, self.value);
                    return format!("{:x?}", guest.function.get(staging, 4096));
                }
            }
            Step::Window(granules) => {
                let body = WindowAlloc { reply: 0, reserved: 0, bytes: granules * area::WINDOW_GRANULE };
                let (status, data) = guest.call(body, &[]);
                // Where it lies depends on when the worker has released what was freed before.
                let range = WindowAllocReply::read_from_bytes(&data).ok();
                self.ranges.extend(range.map(|range| range.offset));
                return format!("{status} {:?}", range.map(|range| range.bytes));
            }
            Step::WindowFree(which) => {
                if let Some(offset) = take(&mut self.ranges, which) {
                    guest.send(&WindowFree { offset }, &[]);
                }
            }
            Step::Stream(flags) => {
                self.streams.push(new);
                guest.send(&StreamCreate { stream: new, flags: flags & 1, priority: 0, reserved: 0 }, &[]);
            }
            Step::StreamDestroy(which) => {
                if let Some(stream) = take(&mut self.streams, which) {
                    guest.send(&StreamDestroy { stream, reserved: 0 }, &[]);
                }
            }
            Step::Event => {
                self.events.push(new);
                guest.send(&EventCreate { event: new, flags: 0 }, &[]);
            }
            Step::EventRecord(which) => {
                if let Some(event) = pick(&self.events, which) {
                    self.value += 1;
                    self.word = 4;
                    let stream = pick(&self.streams, which).unwrap_or(0);
                    guest.send(&EventRecord { event, stream, mark: Mark::new(4, self.value) }, &[]);
                    guest.wait_word(4, self.value);
                }
            }
            Step::EventDestroy(which) => {
                if let Some(event) = take(&mut self.events, which) {
                    guest.send(&EventDestroy { event, reserved: 0 }, &[]);
                }
            }
            Step::Graph(nodes) => {
                if let Some(destination) = pick(&self.memory, nodes as usize) {
                    let source = Span::inline(4);
                    let copy = CopyIn { stream: 0, reserved: 0, destination, source, read: Mark::NONE };
                    let record = |index: u32| {
                        let after: Vec<u32> = index.checked_sub(1).into_iter().collect();
                        node(&after, &copy, &index.to_le_bytes())
                    };
                    let records: Vec<u8> = (0..nodes).flat_map(record).collect();
                    let span = Span::inline(records.len() as u64);
                    guest.send(&GraphDefine { graph: new, nodes, flags: 0, records: span }, &records);
                    self.graphs.push(new);
                }
            }
            Step::GraphLaunch(which) => {
                if let Some(graph) = pick(&self.graphs, which) {
                    guest.send(&GraphLaunch { graph, stream: 0 }, &[]);
                }
            }
            Step::GraphDestroy(which) => {
                if let Some(graph) = take(&mut self.graphs, which) {
                    guest.send(&GraphDestroy { graph, reserved: 0 }, &[]);
                }
            }
            Step::Pages(page, pages) => {
                let address = (u64::from(index) * 2 * PAGES + page) * PAGE_BYTES;
                let run = PageRun { address, bytes: pages * PAGE_BYTES };
                let body = PagesRegister { reply: 0, segment: new, runs: 1, reserved: 0 };
                let (status, _) = guest.call(body, [run].as_bytes());
                self.segments.extend((status == 0).then_some(new));
                return status.to_string();
            }
            Step::PagesFree(which) => {
                if let Some(segment) = take(&mut self.segments, which) {
                    return guest.call(PagesUnregister { reply: 0, segment }, &[]).0.to_string();
                }
            }
            Step::MemoryInfo => {
                return format!("{:x?}", guest.call(MemInfo { reply: 0, reserved: 0 }, &[]));
            }
            Step::Echo => guest.echo(),
            Step::Nonsense(decreases) => {
                if decreases && self.word != 0 {
                    let mark = Mark::new(self.word, 0);
                    guest.send(&Signal { stream: 0, reserved: 0, mark }, &[]);
                } else {
                    guest.send(&WindowFree { offset: 1 }, &[]);
                }
                let ended = guest.ended();
                *self = Self::attach(device, index);
                return format!("{ended:?}");
            }
            Step::Pause | Step::Reload => {}
        }
        String::new()
    }

    /// Returns what the device says of the session when all is done, without what differs between processes.
    fn status(&mut self, device: &Reloadable, index: u32) -> (SessionStatus, Option<(u32, u32, u64)>) {
        let value = u64::MAX;
        let mark = Mark::new(9, value);
        self.guest.send(&Signal { stream: JOIN_ALL, reserved: 0, mark }, &[]);
        self.guest.wait_word(9, value);
        let guest = &self.guest;
        until("all is done", || guest.done() == guest.number);
        let counted = || {
            let session = device.session(index).expect("a session");
            session.done == guest.number && session.messages == guest.number
        };
        until("the figures", counted);
        let session = device.session(index).expect("a session");
        let same = SessionStatus { worker: None, busy_us: 0, host_sleeps: 0, doorbells: 0, ..session };
        (same, guest.late())
    }
}

fn compare(steps: &[(usize, Step)]) {
    let config = crate::bench::worker_config("soft");
    // So few that some are refused, which excuses later messages.
    let limits = Limits { streams: 2, events: 2, graphs: 2, ..Limits::default() };
    let devices = [reloadable_of(config.clone(), limits), reloadable_of(config, limits)];
    let mut clients = devices.each_ref().map(|device| {
        let attach = |index: usize| Client::attach(device, index as u32);
        (0..GUESTS).map(attach).collect::<Vec<_>>()
    });
    for (at, (index, step)) in steps.iter().enumerate() {
        match step {
            Step::Pause => drop(devices[0].pause_and_resume().expect("a state")),
            Step::Reload => drop(devices[0].reload()),
            _ => {}
        }
        let answer = |(device, clients): (&Reloadable, &mut Vec<Client>)| {
            clients[*index].carry_out(device, *index as u32, step)
        };
        let mut answers = || -> [String; 2] {
            let answers: Vec<String> = devices.iter().zip(&mut clients).map(answer).collect();
            answers.try_into().expect("two")
        };
        let [mut saved, mut unsaved] = answers();
        // What the other session has freed is free once its worker has said so, which no answer waits for.
        let asked = Instant::now();
        while matches!(step, Step::MemoryInfo) && saved != unsaved && asked.elapsed() < PATIENCE {
            [saved, unsaved] = answers();
        }
        assert_eq!(saved, unsaved, "step {at} of {steps:?}");
    }
    for index in 0..GUESTS {
        let status =
            |(device, clients): (&Reloadable, &mut Vec<Client>)| clients[index].status(device, index as u32);
        let all: Vec<_> = devices.iter().zip(&mut clients).map(status).collect();
        assert_eq!(all[0], all[1]);
    }
    let figures =
        devices.each_ref().map(|device| (device.device().figures().lost, device.device().generation()));
    assert_eq!(figures[0].0, figures[1].0);
    for (device, clients) in devices.iter().zip(&mut clients) {
        for client in clients {
            client.guest.detach();
        }
        let status = device.device().status();
        assert_eq!((status.allocated, status.charged_bytes, status.workers_running), (0, 0, Some(0)));
    }
}

pub fn a_device_that_was_saved_answers_as_one_that_was_not() {
    let steps = prop::collection::vec((0..GUESTS, step()), 1..90);
    let config = Config { cases: 24, max_shrink_iters: 40, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&steps, |steps| {
            compare(&steps);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}
