//! Programs of a played VM. Each compares everything that comes back with what this process computes itself,
//! and panics if that differs or if the device reports an error.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use vgpu_host_testing::commands::{
    FILL, KERNELS, LAUNCH, allocate, launch, node, params, read_u32, send_module, synchronize, try_function,
    try_load, window,
};
use vgpu_host_testing::guest::Guest;
use vgpu_testbed::bed::PATIENCE;
use vgpu_testbed::vmm::address;
use vgpu_wire::body::copy::{CopyDevice, CopyIn, CopyOut, Fill};
use vgpu_wire::body::graph::{GraphDefine, GraphLaunch};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::{
    MemAlloc, MemCreate, MemFree, MemInfo, MemInfoReply, MemMap, MemRelease, MemReserve, MemSetAccess,
    MemUnmap,
};
use vgpu_wire::body::module::{ModuleLoad, ModuleUnload};
use vgpu_wire::{Mark, Span};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::figures::Interval;

/// Launches of a token, each on so many numbers, in blocks of so many threads.
const LAUNCHES: u32 = 200;
const NUMBERS: u32 = 4096;
const THREADS: u32 = 256;
/// Nodes of a graph, and launches of it in a round.
const NODES: u32 = 16;
const GRAPH_LAUNCHES: u32 = 8;
/// Bytes that a program compares of a long copy, at each of several places.
const SAMPLE: u64 = 4096;
/// Granularity in bytes of an allocation that is to take whole granules of the GPU.
const GRANULE: u64 = 2 << 20;
/// Bytes that a small program copies in a round.
const SMALL: u64 = 4096;
/// Rounds of a program that comes and goes.
const ROUNDS: u64 = 5;
/// Pause between two looks at a completion word.
const POLL: Duration = Duration::from_micros(50);
/// Completion word of this module.
const WORD: u32 = 9;
/// Numbers of the kernels that a program asks for.
const SCALE: u32 = 1;
const DIGIT: u32 = 2;
const ENDLESS: u32 = 3;

/// What a program does, round after round.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Copies so many bytes within device memory.
    Device(u64),
    /// Copies so many bytes to the device and back through the window.
    Window(u64),
    /// Launches a graph.
    Graph,
    /// Loads modules that the host has not seen before.
    Modules,
    /// Allocates memory that is free only when earlier messages of its own have been carried out.
    Waiting,
    /// Runs a kernel that never ends.
    Endless,
    /// Attaches, works and detaches.
    Attaching,
    /// Copies a little.
    Small,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Device(_) => "copies within the device",
            Self::Window(_) => "copies through the window",
            Self::Graph => "graphs",
            Self::Modules => "modules",
            Self::Waiting => "allocations that wait",
            Self::Endless => "a kernel that never ends",
            Self::Attaching => "programs that come and go",
            Self::Small => "small copies",
        }
    }
}

/// An attached program with some device memory and a range of the window.
struct Program {
    guest: Guest,
    memory: u64,
    offset: u64,
    bytes: u64,
    rng: StdRng,
}

impl Program {
    fn attach(sysfs: &Path, channel: u32, bytes: u64) -> Self {
        let mut guest = Guest::attach(sysfs, address(), channel);
        let (memory, offset) = (allocate(&mut guest, bytes), window(&mut guest, bytes));
        Self { guest, memory, offset, bytes, rng: StdRng::seed_from_u64(channel.into()) }
    }

    /// Waits for the completion word as programs of a VM do, whose kernel nobody of the host wakes.
    fn wait(&self, value: u64) {
        let end = Instant::now() + PATIENCE;
        while self.guest.word(WORD) < value {
            assert!(Instant::now() < end, "work is not completed: {:?}", self.guest.late());
            thread::sleep(POLL);
        }
    }

    /// Copies device memory back.
    fn back(&mut self, source: u64, bytes: u64) -> Vec<u8> {
        let value = self.guest.number + 1;
        let (destination, written) = (Span::bar(self.offset, bytes), Mark::new(WORD, value));
        self.guest.send(&CopyOut { stream: 0, reserved: 0, source, destination, written }, &[]);
        self.wait(value);
        self.guest.function.get(self.offset, bytes)
    }

    /// Copies random bytes to the device and back.
    fn copy(&mut self) {
        let mut bytes = vec![0; self.bytes as usize];
        self.rng.fill(&mut bytes[..]);
        self.guest.function.put(self.offset, &bytes);
        let value = self.guest.number + 1;
        let body = CopyIn {
            stream: 0,
            reserved: 0,
            destination: self.memory,
            source: Span::bar(self.offset, self.bytes),
            read: Mark::new(WORD, value),
        };
        self.guest.send(&body, &[]);
        self.wait(value);
        // What comes back is not what was left there.
        self.guest.function.put(self.offset, &[0; SAMPLE as usize]);
        assert!(self.back(self.memory, self.bytes) == bytes, "wrong bytes");
    }

    /// Requests the kernels of module 1.
    fn load(&mut self) {
        try_load(&mut self.guest, 1, KERNELS).expect("the kernels");
        for (number, name) in [(SCALE, "scale"), (DIGIT, "digit"), (ENDLESS, "endless")] {
            try_function(&mut self.guest, 1, number, name).expect(name);
        }
    }

    fn leave(self) {
        assert_eq!(self.guest.late(), None, "the device has reported an error");
        self.guest.detach();
    }
}

/// What a program has done.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Number of its rounds.
    pub(super) rounds: u64,
    /// Times in which it waited for an allocation.
    pub(super) waits: Vec<Interval>,
}

/// A round of a program, with its number.
type Round<'a> = Box<dyn FnMut(&mut Program, u64) + 'a>;

/// Runs a program on a channel while `going`.
pub(super) fn run(kind: Kind, sysfs: &Path, channel: u32, going: &dyn Fn() -> bool) -> Done {
    let bytes = if let Kind::Window(bytes) = kind { bytes } else { SMALL };
    let mut rounds = 0;
    if let Kind::Attaching = kind {
        while going() {
            let mut program = Program::attach(sysfs, channel, bytes);
            (0..ROUNDS).for_each(|_| program.copy());
            program.leave();
            rounds += 1;
        }
        return Done { rounds, ..Done::default() };
    }
    let mut waits = Vec::new();
    let mut program = Program::attach(sysfs, channel, bytes);
    let mut round: Round = match kind {
        Kind::Device(bytes) => {
            let from = allocate(&mut program.guest, bytes);
            let to = allocate(&mut program.guest, bytes);
            Box::new(move |program, round| copy_within(program, from, to, bytes, round))
        }
        Kind::Graph => {
            define(&mut program);
            let mut expected = 0;
            Box::new(move |program, _| expected = launch_graph(program, expected))
        }
        Kind::Modules => Box::new(load_anew),
        Kind::Waiting => {
            let bytes = two_thirds(&mut program);
            let reserved = reserve(&mut program, bytes);
            let mut memory = allocate(&mut program.guest, bytes);
            let waits = &mut waits;
            Box::new(move |program, round| {
                let (next, wait) = allocate_again(program, memory, (reserved, bytes), round);
                memory = next;
                waits.push(wait);
            })
        }
        Kind::Endless => {
            program.load();
            launch(&mut program.guest, Launch { function: ENDLESS, ..LAUNCH }, &params(program.memory, &[]));
            // It is told apart from a device that is gone.
            Box::new(|program, _| program.guest.echo())
        }
        _ => Box::new(|program, _| program.copy()),
    };
    while going() {
        round(&mut program, rounds);
        rounds += 1;
    }
    drop(round);
    program.leave();
    Done { rounds, waits }
}

/// Returns two thirds of the VM's memory, which cannot be allocated twice. The other programs have a third.
fn two_thirds(program: &mut Program) -> u64 {
    let (status, answer) = program.guest.call(MemInfo { reply: 0, reserved: 0 }, &[]);
    assert_eq!(status, 0);
    let info = MemInfoReply::read_from_bytes(&answer).expect("an answer");
    (info.total / 3 * 2).next_multiple_of(GRANULE)
}

/// Reserves addresses for memory that the program maps itself.
fn reserve(program: &mut Program, bytes: u64) -> u64 {
    let (status, answer) =
        program.guest.call(MemReserve { reply: 0, reserved: 0, bytes, alignment: 0, hint: 0 }, &[]);
    assert_eq!(status, 0, "a reservation");
    u64::from_le_bytes(answer.try_into().expect("an address"))
}

/// Frees memory behind a module that is being loaded, and takes as much again meanwhile: by an allocation, or
/// every other time by physical memory at the addresses that the program has `reserved`. Returns the new
/// address, and the time that the device took for the memory.
fn allocate_again(
    program: &mut Program,
    memory: u64,
    (reserved, bytes): (u64, u64),
    round: u64,
) -> (u64, Interval) {
    let text = unknown_text(program.guest.channel, round);
    let guest = &mut program.guest;
    send_module(guest, 1, &text).expect("a module");
    let loaded = guest.send(&ModuleLoad { reply: 0, module: 1 }, &[]);
    if memory == reserved {
        guest.send(&MemUnmap { address: memory, bytes }, &[]);
    } else {
        guest.send(&MemFree { address: memory }, &[]);
    }
    let maps = memory != reserved;
    let start = Instant::now();
    let ask = |guest: &mut Guest| {
        let number = if maps {
            guest.send(&MemCreate { reply: 1, handle: 1, bytes }, &[])
        } else {
            guest.send(&MemAlloc { reply: 1, flags: 0, bytes }, &[])
        };
        guest.answer(1, number)
    };
    let (mut status, mut answer) = ask(guest);
    if status != 0 {
        // As the shim asks again, since what is freed is unmapped a little later.
        synchronize(guest);
        (status, answer) = ask(guest);
    }
    let wait = (start, Instant::now());
    assert_eq!(status, 0, "an allocation whose memory becomes free is refused");
    let memory = if maps {
        guest.send(&MemMap { handle: 1, reserved: 0, address: reserved, bytes, offset: 0 }, &[]);
        guest.send(&MemSetAccess { address: reserved, bytes, access: 3, reserved: 0 }, &[]);
        guest.send(&MemRelease { handle: 1, reserved: 0 }, &[]);
        reserved
    } else {
        u64::from_le_bytes(answer.try_into().expect("an address"))
    };
    assert_eq!(guest.answer(0, loaded).0, 0, "a module");
    guest.send(&ModuleUnload { module: 1, reserved: 0 }, &[]);
    let value = round as u8;
    let fill = Fill { value: value.into(), destination: memory, width: SAMPLE, pitch: SAMPLE, ..FILL };
    guest.send(&fill, &[]);
    assert!(program.back(memory, SAMPLE).iter().all(|&byte| byte == value), "wrong bytes");
    (memory, wait)
}

/// Fills device memory, copies it within the device, and compares samples of the copy.
fn copy_within(program: &mut Program, from: u64, to: u64, bytes: u64, round: u64) {
    let value = (round as u8).wrapping_mul(31).wrapping_add(1);
    let fill = Fill { value: value.into(), destination: from, width: bytes, pitch: bytes, ..FILL };
    program.guest.send(&fill, &[]);
    program.guest.send(&CopyDevice { stream: 0, reserved: 0, destination: to, source: from, bytes }, &[]);
    for at in [0, bytes / 2, bytes - SAMPLE] {
        let back = program.back(to + at, SAMPLE);
        assert!(back.iter().all(|&byte| byte == value), "wrong bytes at {at:#x} of a copy");
    }
}

/// Defines a graph of launches, each after the one before.
fn define(program: &mut Program) {
    program.load();
    let parameters = params(program.memory, &[7]);
    let body = Launch { function: DIGIT, param_bytes: parameters.len() as u32, ..LAUNCH };
    let record = |index: u32| node(index.checked_sub(1).as_slice(), &body, &parameters);
    let records: Vec<u8> = (0..NODES).flat_map(record).collect();
    let offset = window(&mut program.guest, records.len() as u64);
    program.guest.function.put(offset, &records);
    let records = Span::bar(offset, records.len() as u64);
    program.guest.send(&GraphDefine { graph: 1, nodes: NODES, flags: 0, records }, &[]);
    set(program, 0);
}

/// Stores a number at the start of the device memory.
fn set(program: &mut Program, value: u32) {
    let (destination, source) = (program.memory, Span::inline(4));
    let body = CopyIn { stream: 0, reserved: 0, destination, source, read: Mark::NONE };
    program.guest.send(&body, value.as_bytes());
}

fn launch_graph(program: &mut Program, before: u32) -> u32 {
    for _ in 0..GRAPH_LAUNCHES {
        program.guest.send(&GraphLaunch { graph: 1, stream: 0 }, &[]);
    }
    let digits = GRAPH_LAUNCHES * NODES;
    let expected = (0..digits).fold(before, |value, _| value.wrapping_mul(10).wrapping_add(7));
    let found = program.back(program.memory, 4);
    assert_eq!(found, expected.to_le_bytes(), "wrong numbers of a graph");
    expected
}

/// Returns the text of a module that the host has not seen before.
fn unknown_text(channel: u32, round: u64) -> String {
    format!("{KERNELS}\n// {channel} {round}\n")
}

/// Loads a module whose text the host has not seen before, and uses it.
fn load_anew(program: &mut Program, round: u64) {
    let text = unknown_text(program.guest.channel, round);
    try_load(&mut program.guest, 1, &text).expect("a module");
    try_function(&mut program.guest, 1, DIGIT, "digit").expect("digit");
    let value = round as u32;
    set(program, value);
    launch(&mut program.guest, Launch { function: DIGIT, ..LAUNCH }, &params(program.memory, &[3]));
    synchronize(&mut program.guest);
    assert_eq!(read_u32(&mut program.guest, program.memory), value.wrapping_mul(10).wrapping_add(3));
    program.guest.send(&ModuleUnload { module: 1, reserved: 0 }, &[]);
}

/// A program that streams tokens. Each depends on all that came before, so that nothing can be lost or done
/// twice without a difference.
pub(super) struct Stream {
    program: Program,
    last: u32,
}

impl Stream {
    pub(super) fn attach(sysfs: &Path, channel: u32) -> Self {
        let mut program = Program::attach(sysfs, channel, u64::from(NUMBERS) * 4);
        program.load();
        let zeros = Fill { destination: program.memory, width: program.bytes, pitch: program.bytes, ..FILL };
        program.guest.send(&zeros, &[]);
        Self { program, last: 0 }
    }

    pub(super) fn token(&mut self) -> u32 {
        let Self { program, last } = self;
        let body =
            Launch { function: SCALE, grid: [NUMBERS / THREADS, 1, 1], block: [THREADS, 1, 1], ..LAUNCH };
        for index in 0..LAUNCHES {
            launch(&mut program.guest, body, &params(program.memory, &[NUMBERS, factor(*last, index)]));
        }
        let bytes = program.back(program.memory, program.bytes);
        let numbers =
            bytes.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        *last = token_of(numbers);
        *last
    }

    pub(super) fn leave(self) {
        self.program.leave();
    }
}

/// Returns what a launch multiplies by, which is odd, so that no bit of a number is lost.
fn factor(last: u32, index: u32) -> u32 {
    last.wrapping_add(index) | 1
}

fn token_of(numbers: impl Iterator<Item = u32>) -> u32 {
    numbers.fold(0, |token, number| token.wrapping_mul(31).wrapping_add(number))
}

/// Returns the tokens that a stream has, as this process computes them.
pub(super) fn tokens(count: usize) -> Vec<u32> {
    let mut numbers = vec![0_u32; NUMBERS as usize];
    let mut last = 0;
    let mut next = || {
        for index in 0..LAUNCHES {
            let factor = factor(last, index);
            for (thread, number) in (0..).zip(&mut numbers) {
                *number = number.wrapping_mul(factor).wrapping_add(thread);
            }
        }
        last = token_of(numbers.iter().copied());
        last
    };
    (0..count).map(|_| next()).collect()
}
