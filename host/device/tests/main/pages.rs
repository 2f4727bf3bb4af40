//! Tests of guest pages: who may register them, which lists are invalid, who owns them, and that return areas
//! and copies use them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use vgpu_device::SimBus;
use vgpu_executor_soft::Soft;
use vgpu_host_testing::bench::{address, config, folder, gpu};
use vgpu_host_testing::guest::{Function, Guest, end, until};
use vgpu_wire::body::pages::{PAGE_BYTES, PageRun, PagesRegister, PagesUnregister, RUNS_MAX};
use vgpu_wire::body::session::Hello;
use vgpu_wire::registers::{self as reg, Refusal, channel};
use vgpu_wire::{Mark, SEGMENT_INLINE, Span, TABLE_DIGEST, WIRE_VERSION, area, pci};
use zerocopy::IntoBytes;

use crate::memory::{allocate, copy_in, copy_out};

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const NOT_PERMITTED: u32 = 800;
const NOT_SUPPORTED: u32 = 801;
const RAM: u64 = 8 << 20;

/// A device that can access its guest's memory.
struct Machine {
    dir: tempfile::TempDir,
    bus: SimBus,
    ram: File,
}

impl Machine {
    fn new() -> Self {
        let dir = folder();
        let devices = vec![config(Soft::new(&gpu()).unwrap())];
        let bus = SimBus::serve_with_memory(dir.path(), RAM, devices).unwrap();
        let ram = File::options().read(true).write(true).open(dir.path().join("ram")).unwrap();
        Self { dir, bus, ram }
    }

    /// Returns the key that the guest's administrator reads.
    fn key(&self) -> u64 {
        let path = self.dir.path().join(format!("bus/pci/devices/{}/config", address()));
        let mut key = [0; 8];
        File::open(path).unwrap().read_exact_at(&mut key, pci::PAGES_KEY).unwrap();
        u64::from_le_bytes(key)
    }

    /// Opens a function and writes what a guest writes before it attaches: a key, and the address of its
    /// return area.
    fn function(&self, index: u32, key: u64, returns: u64) -> Function {
        let function = Function::open(self.dir.path(), address());
        let at = |register| channel::base(index) + register;
        for (register, value) in [
            (channel::PAGES_KEY_LO, key),
            (channel::PAGES_KEY_HI, key >> 32),
            (channel::RETURN_GPA_LO, returns),
            (channel::RETURN_GPA_HI, returns >> 32),
        ] {
            function.write(at(register), value as u32);
        }
        function
    }

    fn attach(&self, index: u32, key: u64, returns: u64) -> Result<Guest, u32> {
        let function = self.function(index, key, returns);
        end(&function, index);
        Guest::try_attach(function, index, WIRE_VERSION, TABLE_DIGEST).map_err(|(why, _)| why)
    }

    /// Attaches a guest that may register pages.
    fn guest(&self, index: u32) -> Guest {
        let mut guest = self.attach(index, self.key(), 0).unwrap();
        guest.hello();
        guest
    }

    fn page_bytes(&self, index: u32) -> u64 {
        let status = self.bus.status();
        let mut sessions = status.devices[0].sessions.iter();
        sessions.find(|session| session.channel == index).map_or(0, |session| session.page_bytes)
    }
}

const fn pages(page: u64, pages: u64) -> PageRun {
    PageRun { address: page * PAGE_BYTES, bytes: pages * PAGE_BYTES }
}

fn register(guest: &mut Guest, segment: u32, runs: &[PageRun]) -> u32 {
    let body = PagesRegister { reply: 0, segment, runs: runs.len() as u32, reserved: 0 };
    guest.call(body, runs.as_bytes()).0
}

fn unregister(guest: &mut Guest, segment: u32) -> u32 {
    guest.call(PagesUnregister { reply: 0, segment }, &[]).0
}

#[test]
fn only_who_knows_the_key_names_pages() {
    let machine = Machine::new();
    let key = machine.key();
    assert_ne!(key, 0);
    let reader = Function::open(machine.dir.path(), address());
    assert_eq!(reader.read(reg::CAPABILITIES) & reg::CAP_PAGES, reg::CAP_PAGES);
    for wrong in [0, key ^ 1, key ^ 1 << 63, !key] {
        assert_eq!(machine.attach(0, wrong, 0x10_0000).err(), Some(Refusal::ReturnArea as u32));
        let mut guest = machine.attach(0, wrong, 0).unwrap();
        guest.hello();
        assert_eq!(register(&mut guest, 1, &[pages(0, 1)]), NOT_PERMITTED);
        guest.echo();
    }
    // No process reads what another wrote, and neither does the next process on the channel.
    drop(machine.guest(0));
    assert_eq!([0x2c, 0x30].map(|offset| reader.read(channel::base(0) + offset)), [0, 0]);
    let mut next = Guest::attach(machine.dir.path(), address(), 0);
    assert_eq!(register(&mut next, 1, &[pages(0, 1)]), NOT_PERMITTED);
}

#[test]
fn a_device_without_the_guests_memory_says_so() {
    let dir = folder();
    let _bus = SimBus::serve(dir.path(), vec![config(Soft::new(&gpu()).unwrap())]).unwrap();
    let mut guest = Guest::attach(dir.path(), address(), 0);
    assert_eq!(guest.function.read(reg::CAPABILITIES) & reg::CAP_PAGES, 0);
    assert_eq!(register(&mut guest, 1, &[pages(0, 1)]), NOT_SUPPORTED);
    guest.echo();
}

#[test]
fn lists_that_are_none_end_the_session() {
    let many = vec![pages(0, 1); RUNS_MAX as usize + 1];
    let unaligned = PageRun { address: 0x1800, bytes: PAGE_BYTES };
    let cut = PageRun { address: 0x1000, bytes: PAGE_BYTES + 1 };
    let endless = PageRun { address: u64::MAX - 0xfff, bytes: 2 * PAGE_BYTES };
    let nothing = PageRun { address: 0x1000, bytes: 0 };
    let lists: [(u32, &[PageRun]); 8] = [
        (1, &many),
        (1, &[unaligned]),
        (1, &[pages(0, 1), cut]),
        (1, &[endless]),
        (1, &[nothing]),
        (1, &[]),
        (0, &[pages(0, 1)]),
        (SEGMENT_INLINE, &[pages(0, 1)]),
    ];
    for (segment, runs) in lists {
        let machine = Machine::new();
        let mut guest = machine.guest(0);
        let mut other = machine.guest(1);
        assert_eq!(register(&mut other, 7, &[pages(100, 2)]), 0);
        let body = PagesRegister { reply: 1, segment, runs: runs.len() as u32, reserved: 0 };
        let number = guest.send(&body, runs.as_bytes());
        assert_eq!(guest.ended().2, number, "{segment} {runs:?}");
        assert_eq!(guest.register(channel::ERROR), Refusal::Violation as u32);
        other.echo();
        assert_eq!((machine.page_bytes(0), machine.page_bytes(1)), (0, 2 * PAGE_BYTES));
    }
    // A segment's number is assigned once, and the segment ends once.
    for twice in [true, false] {
        let machine = Machine::new();
        let mut guest = machine.guest(0);
        assert_eq!(register(&mut guest, 3, &[pages(0, 1)]), 0);
        let number = if twice {
            let body = PagesRegister { reply: 1, segment: 3, runs: 1, reserved: 0 };
            guest.send(&body, pages(5, 1).as_bytes())
        } else {
            guest.send(&PagesUnregister { reply: 1, segment: 4 }, &[])
        };
        assert_eq!(guest.ended().2, number);
    }
}

#[test]
fn pages_that_are_no_memory_or_anothers_are_refused() {
    let machine = Machine::new();
    let end = RAM / PAGE_BYTES;
    let (mut one, mut two) = (machine.guest(0), machine.guest(1));
    assert_eq!(register(&mut one, 1, &[pages(16, 16), pages(64, 4)]), 0);
    assert_eq!(machine.page_bytes(0), 20 * PAGE_BYTES);
    for bad in [
        vec![pages(end, 1)],
        vec![pages(end - 1, 2)],
        vec![pages(1 << 40, 1)],
        vec![pages(31, 2)],
        vec![pages(0, end)],
        vec![pages(200, 1), pages(67, 1)],
        vec![pages(200, 2), pages(201, 1)],
    ] {
        for guest in [&mut one, &mut two] {
            assert_eq!(register(guest, 9, &bad), INVALID_VALUE, "{bad:?}");
            guest.echo();
        }
    }
    assert_eq!(machine.attach(2, machine.key(), 16 * PAGE_BYTES).err(), Some(Refusal::ReturnArea as u32));
    assert_eq!(machine.page_bytes(1), 0);
    // Pages of an invalid list are free, and so are pages that were released, and those of a session that
    // ended.
    assert_eq!(register(&mut two, 1, &[pages(200, 2)]), 0);
    assert_eq!(unregister(&mut one, 1), 0);
    assert_eq!(register(&mut two, 2, &[pages(16, 16)]), 0);
    two.detach();
    assert_eq!(register(&mut one, 1, &[pages(0, 256)]), 0);

    let mut three = machine.guest(3);
    let single: Vec<PageRun> = (0..u64::from(RUNS_MAX)).map(|page| pages(512 + 2 * page, 1)).collect();
    assert_eq!(register(&mut three, 1, &single[..300]), 0);
    assert_eq!(register(&mut three, 2, &single[300..]), 0);
    assert_eq!(register(&mut three, 3, &[pages(300, 1)]), OUT_OF_MEMORY);
    assert_eq!(unregister(&mut three, 2), 0);
    assert_eq!(register(&mut three, 3, &[pages(300, 1)]), 0);
}

#[test]
fn copies_go_to_and_from_pages() {
    let machine = Machine::new();
    let mut guest = machine.guest(0);
    let there = allocate(&mut guest, 1 << 20).unwrap();
    assert_eq!(register(&mut guest, 5, &[pages(32, 2), pages(16, 2)]), 0);
    let data: Vec<u8> = (0..2 * PAGE_BYTES).map(|at| (at % 251) as u8).collect();
    machine.ram.write_all_at(&data, 32 * PAGE_BYTES).unwrap();
    let span = |offset, bytes| Span { segment: 5, reserved: 0, offset, bytes };
    copy_in(&mut guest, there, span(0, 2 * PAGE_BYTES), &[], Mark::new(3, 1));
    copy_out(&mut guest, there + 5, span(2 * PAGE_BYTES + 10, PAGE_BYTES), Mark::new(4, 1));
    guest.wait_word(4, 1);
    let mut seen = vec![0; PAGE_BYTES as usize];
    machine.ram.read_exact_at(&mut seen, 16 * PAGE_BYTES + 10).unwrap();
    assert!(seen == data[5..][..PAGE_BYTES as usize]);
    // A span may not cross runs, even if both belong to the session.
    let number = copy_out(&mut guest, there, span(2 * PAGE_BYTES - 1, 2), Mark::new(4, 2));
    assert_eq!(guest.ended().2, number);
}

#[test]
fn a_span_of_no_segment_ends_the_session() {
    let machine = Machine::new();
    let mut guest = machine.guest(0);
    let there = allocate(&mut guest, 1 << 20).unwrap();
    assert_eq!(register(&mut guest, 5, &[pages(32, 2)]), 0);
    assert_eq!(unregister(&mut guest, 5), 0);
    let gone = Span { segment: 5, reserved: 0, offset: 0, bytes: 8 };
    let number = copy_in(&mut guest, there, gone, &[], Mark::NONE);
    assert_eq!(guest.ended().2, number);
}

#[test]
fn a_return_area_lies_where_the_guest_says() {
    let machine = Machine::new();
    let at = 0x20_0000;
    machine.ram.write_all_at(&vec![0xee; area::RETURN_BYTES as usize + 1], at).unwrap();
    for bad in [at + 0x800, RAM, RAM - area::RETURN_BYTES + PAGE_BYTES, u64::MAX - 0xfff] {
        assert_eq!(machine.attach(0, machine.key(), bad).err(), Some(Refusal::ReturnArea as u32), "{bad:#x}");
    }
    let mut guest = machine.attach(0, machine.key(), at).unwrap();
    assert_eq!(machine.page_bytes(0), area::RETURN_BYTES);
    let number = guest.send(&Hello { reply: 2, process: 1, reserved: 0 }, &[]);
    // The host stores in the pages whether it sleeps, and this guest does not read them.
    guest.function.write(channel::base(0) + channel::DOORBELL, 1);
    let word = |offset: u64| {
        let mut word = [0; 8];
        machine.ram.read_exact_at(&mut word, at + offset).unwrap();
        u64::from_le_bytes(word)
    };
    let slot = area::RETURN_REPLIES + 2 * area::REPLY_BYTES;
    until("the answer", || word(slot + area::REPLY_TICKET) == number);
    until("the head", || word(area::RETURN_HEAD) == guest.tail);
    assert_eq!(word(area::RETURN_DONE), 1);
    // The area was cleared before, and no byte beyond it. The window holds no copy of it.
    assert_eq!((word(area::RETURN_ERROR_MESSAGE), word(area::RETURN_BYTES) as u8), (0, 0xee));
    assert_eq!((guest.head(), guest.done()), (0, 0));
    // The pages belong to nobody else as long as the session lives, whatever the guest does.
    assert_eq!(machine.attach(1, machine.key(), at + PAGE_BYTES).err(), Some(Refusal::ReturnArea as u32));
    guest.detach();
    assert!(machine.attach(1, machine.key(), at + PAGE_BYTES).is_ok());
}
