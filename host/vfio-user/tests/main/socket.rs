//! What a VMM sees of the socket: what it asks for, what it must not ask for, and that the next VMM is served
//! whatever the one before it did.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;

use vgpu_device::GuestMemory as _;

use crate::served::{Done, Served};
use crate::vmm::{NO_REPLY, Vmm, access, command, map, request, version, words};

const EINVAL: u32 = 22;
const EEXIST: u32 = 17;
const EOPNOTSUPP: u32 = 95;
/// Flags of a reply, and of a reply that is an error.
const REPLY: u32 = 1;
const ERROR: u32 = 0x21;

/// Index of the region of the configuration space.
const CONFIG: u32 = 7;

fn region_info(argsz: u32, index: u32) -> Vec<u8> {
    words(&[argsz, 0, index, 0, 0, 0, 0, 0])
}

#[test]
fn a_vmm_finds_the_function_and_its_memory() {
    let served = Served::start();
    let mut vmm = Vmm::start(&served.path);
    // PCI, can be reset; nine regions and five kinds of interrupts.
    let info = vmm.ask(command::GET_INFO, &words(&[16, 0, 0, 0]));
    assert_eq!((info.flags, info.payload), (REPLY, words(&[16, 3, 9, 5])));
    for index in 0..5 {
        let info = vmm.ask(command::GET_IRQ_INFO, &words(&[16, 0, index, 0]));
        assert_eq!(info.payload, words(&[16, 0, index, 0]), "no interrupts");
    }
    let sizes: Vec<_> = (0..9)
        .map(|index| {
            let info = vmm.ask(command::GET_REGION_INFO, &region_info(32, index));
            assert!(info.files.is_empty());
            let word = |at: usize| u32::from_le_bytes(info.payload[4 * at..4 * at + 4].try_into().unwrap());
            (word(0), word(1), word(4))
        })
        .collect();
    let mut expected = [(32, 0, 0); 9];
    expected[0] = (32, 3, 0x2000);
    // Mapped, with a list of areas, for which there was no room.
    expected[2] = (64, 0xf, 0x10_0000);
    expected[CONFIG as usize] = (32, 3, 256);
    assert_eq!(sizes, expected);
    let whole = vmm.ask(command::GET_REGION_INFO, &region_info(64, 2));
    assert_eq!(
        whole.payload,
        words(&[64, 0xf, 2, 32, 0x10_0000, 0, 0, 0, 1 << 16 | 1, 0, 1, 0, 0, 0, 0x10_0000, 0])
    );
    let [memory] = <[_; 1]>::try_from(whole.files).unwrap();
    assert_eq!(File::from(memory).metadata().unwrap().len(), 0);

    let read = vmm.ask(command::READ, &access(CONFIG, 0, 4));
    assert_eq!(read.payload, [access(CONFIG, 0, 4), vec![0xde, 0x10, 0x31, 0x23]].concat());
    let whole = vmm.ask(command::READ, &access(CONFIG, 0, 4096)).payload;
    assert_eq!((whole.len(), whole[16 + 256]), (16 + 4096, 0));
    assert!(served.function.take().is_empty(), "nothing but the configuration space");
}

#[test]
fn accesses_reach_the_function_and_are_answered_once() {
    for served in [Served::start(), Served::last()] {
        let mut vmm = Vmm::start(&served.path);
        let read = vmm.ask(command::READ, &access(0, 8, 3));
        assert_eq!((read.flags, read.payload), (REPLY, [access(0, 8, 3), vec![0x5a; 3]].concat()));
        let write = [access(0, 0x10, 4), vec![1, 2, 3, 4]].concat();
        let wrote = vmm.ask(command::WRITE, &write);
        assert_eq!((wrote.flags, wrote.payload), (REPLY, access(0, 0x10, 4)));
        // Posted, and in one piece with the next ones.
        let posted = request(900, command::WRITE, NO_REPLY, &write);
        let read = request(901, command::READ, 0, &access(0, 0, 1));
        vmm.send(&[&posted[..], &posted, &read, &posted].concat(), &[]);
        assert_eq!(vmm.reply().id, 901);
        assert!(vmm.ask(command::RESET, &[]).payload.is_empty());
        // Even an error is not answered if nobody wants an answer.
        vmm.post(command::WRITE, NO_REPLY, &access(0, 0, 99), &[]);
        vmm.post(command::READ, NO_REPLY, &access(0, 0, 4), &[]);
        vmm.post(command::DIRTY_PAGES, NO_REPLY, &[1; 9], &[]);
        // All ones, where nothing is.
        for (region, offset, count) in [(0, 0x1ffe, 4), (1, 0, 4), (5, 0, 1), (2, 1 << 40, 8), (8, 0, 2)] {
            let read = vmm.ask(command::READ, &access(region, offset, count));
            assert_eq!(read.payload[16..], vec![0xff; count as usize], "{region}");
            let nothing = [access(region, offset, count), vec![7; count as usize]].concat();
            assert_eq!(vmm.ask(command::WRITE, &nothing).flags, REPLY);
        }
        let wrote = || Done::Write(0, 0x10, vec![1, 2, 3, 4]);
        let expected = [
            Done::Read(0, 8, 3),
            wrote(),
            wrote(),
            wrote(),
            Done::Read(0, 0, 1),
            wrote(),
            Done::Reset,
            Done::Read(0, 0, 4),
        ];
        assert_eq!(served.function.take(), expected);
    }
}

#[test]
fn guest_memory_comes_with_its_descriptor() {
    let served = Served::start();
    let mut vmm = Vmm::start(&served.path);
    let memory = tempfile::tempfile().unwrap();
    memory.set_len(0x4000).unwrap();
    memory.write_all_at(b"here", 0x1008).unwrap();
    let file = [memory.as_fd()];
    assert_eq!(vmm.ask_with(command::DMA_MAP, &map(0x1000, 0x8000, 0x1000), &file).flags, REPLY);
    // A part of the guest's addresses that is not memory.
    assert_eq!(vmm.ask(command::DMA_MAP, &map(0, 0x10_0000, 0x1000)).flags, REPLY);
    let mut bytes = [0; 4];
    assert!(served.ram.read(0x8008, &mut bytes) && bytes == *b"here");
    assert!(served.ram.write(0x8ffc, b"back") && !served.ram.read(0x10_0000, &mut bytes));
    for (payload, errno) in [
        (map(0, 0x8fff, 0x10), EEXIST),
        (map(0, 0x9000, 0), EINVAL),
        (map(u64::MAX, 0x9000, 0x1000), EINVAL),
        (map(0, u64::MAX - 5, 0x1000), EINVAL),
    ] {
        let reply = vmm.ask_with(command::DMA_MAP, &payload, &file);
        assert_eq!((reply.flags, reply.error, reply.payload.len()), (ERROR, errno, 0));
    }
    // In one piece with what follows, each with descriptors of its own.
    let message = |id, address| request(id, command::DMA_MAP, 0, &map(0, address, 0x1000));
    vmm.send(&request(499, command::RESET, 0, &[]), &[]);
    vmm.send(&message(500, 0x2_0000), &file);
    vmm.send(&message(501, 0x3_0000), &file);
    assert_eq!(
        [vmm.reply(), vmm.reply(), vmm.reply()].map(|reply| (reply.id, reply.flags)),
        [499, 500, 501].map(|id| (id, REPLY))
    );
    assert!(served.ram.read(0x2_0000, &mut bytes) && served.ram.read(0x3_0000, &mut bytes));

    let unmap =
        [words(&[24, 0]), 0x8000u64.to_le_bytes().to_vec(), 0x1000u64.to_le_bytes().to_vec()].concat();
    assert_eq!(vmm.ask(command::DMA_UNMAP, &unmap).payload, unmap);
    assert!(!served.ram.read(0x8008, &mut bytes) && served.ram.is_shared());
    let all = [words(&[24, 2]), vec![0; 16]].concat();
    assert_eq!(vmm.ask(command::DMA_UNMAP, &all).payload, all);
    assert!(!served.ram.is_shared());
    assert_eq!(open_files_of(&memory), 1, "no descriptor of a VMM is left");
}

/// Returns how many descriptors of this process are a file.
fn open_files_of(file: &File) -> usize {
    let own = |file: &File| rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    let folder = std::fs::read_dir("/proc/self/fd").unwrap();
    let names = folder.map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    // A descriptor of another test may be closed meanwhile.
    let same = |path: &std::path::PathBuf| {
        std::fs::metadata(path).is_ok_and(|data| {
            use std::os::unix::fs::MetadataExt as _;
            Some((data.dev(), data.ino())) == own(file)
        })
    };
    names.iter().filter(|path| same(path)).count()
}

#[test]
fn a_request_that_cannot_be_carried_out_gets_one_error() {
    let served = Served::start();
    let mut vmm = Vmm::start(&served.path);
    let memory = tempfile::tempfile().unwrap();
    let one = memory.as_fd();
    let bitmap = [words(&[40, 1]), vec![0; 16], vec![0; 16]].concat();
    let irqs = |argsz, flags, index, start, count| words(&[argsz, flags, index, start, count]);
    let none: &[BorrowedFd<'_>] = &[];
    let (one, two) = (&[one][..], &[one, one][..]);
    let cases = [
        ("no such command", 99, vec![], none, EOPNOTSUPP),
        ("dirty pages", command::DIRTY_PAGES, vec![0; 8], none, EOPNOTSUPP),
        ("several writes, which were not negotiated", 15, vec![0; 32], none, EOPNOTSUPP),
        ("the version again", command::VERSION, version(b"{}\0"), none, EINVAL),
        ("a map that is too short", command::DMA_MAP, vec![0; 31], one, EINVAL),
        ("a map of two files", command::DMA_MAP, map(0, 0, 0x1000), two, EINVAL),
        ("a bitmap of changes", command::DMA_UNMAP, bitmap, none, EOPNOTSUPP),
        ("no room for the answer", command::GET_INFO, words(&[15, 0, 0, 0]), none, EINVAL),
        ("no room for the region", command::GET_REGION_INFO, region_info(31, 0), none, EINVAL),
        ("no such region", command::GET_REGION_INFO, region_info(32, 9), none, EINVAL),
        ("no such interrupt", command::GET_IRQ_INFO, words(&[16, 0, 5, 0]), none, EINVAL),
        ("an interrupt's effect", command::SET_IRQS, irqs(20, 0x21, 0, 0, 1), none, EINVAL),
        ("an interrupt's descriptor", command::SET_IRQS, irqs(20, 0x24, 0, 0, 1), one, EINVAL),
        ("a kind beyond the last", command::SET_IRQS, irqs(20, 0x21, 5, 0, 0), none, EINVAL),
        ("interrupts that wrap around", command::SET_IRQS, irqs(20, 0x21, 0, u32::MAX, 2), none, EINVAL),
        ("booleans that do not follow", command::SET_IRQS, irqs(22, 0x22, 0, 0, 2), none, EINVAL),
        ("a read of a region beyond the last", command::READ, access(9, 0, 4), none, EINVAL),
        ("a read of too much", command::READ, access(0, 0, u32::MAX), none, EINVAL),
        ("a read that wraps around", command::READ, access(CONFIG, u64::MAX, 4), none, EINVAL),
        ("a read with data", command::READ, [access(0, 0, 4), vec![0]].concat(), none, EINVAL),
        ("a read with a descriptor", command::READ, access(0, 0, 4), one, EINVAL),
        (
            "a write of more than there is",
            command::WRITE,
            [access(0, 0, 4), vec![0; 3]].concat(),
            none,
            EINVAL,
        ),
        (
            "a write of less than there is",
            command::WRITE,
            [access(0, 0, 4), vec![0; 5]].concat(),
            none,
            EINVAL,
        ),
        ("a reset of something", command::RESET, vec![0], none, EINVAL),
    ];
    for (what, command, payload, files, errno) in cases {
        let reply = vmm.ask_with(command, &payload, files);
        assert_eq!((reply.flags, reply.error, reply.payload.len()), (ERROR, errno, 0), "{what}");
        // The next request is answered by its own reply.
        assert_eq!(vmm.ask(command::SET_IRQS, &irqs(20, 0x21, 0, 0, 0)).flags, REPLY, "{what}");
    }
    let flags = vmm.post(command::RESET, 1 << 9, &[], &[]);
    assert_eq!((vmm.reply().id, flags), (flags, flags));
    assert!(served.function.take().is_empty(), "nothing of this had an effect");
    assert_eq!(open_files_of(&memory), 1, "no descriptor is left");
}

#[test]
fn a_request_that_comes_in_pieces_is_one() {
    let served = Served::start();
    let mut vmm = Vmm::connect(&served.path);
    let hello = request(1, command::VERSION, 0, &version(b"{}\0"));
    let read = request(2, command::READ, 0, &access(0, 0, 8));
    let large = request(3, command::WRITE, 0, &[access(2, 0, 4096), vec![9; 4096]].concat());
    // Too many pieces would fill the socket's buffer, in which each takes a page or so.
    for piece in [&hello[..], &read].concat().chunks(1).chain([&large[..], &read].concat().chunks(100)) {
        vmm.send(piece, &[]);
    }
    let ids = [vmm.reply(), vmm.reply(), vmm.reply(), vmm.reply()].map(|reply| (reply.id, reply.flags));
    assert_eq!(ids, [(1, REPLY), (2, REPLY), (3, REPLY), (2, REPLY)]);
    let expected = [Done::Read(0, 0, 8), Done::Write(2, 0, vec![9; 4096]), Done::Read(0, 0, 8)];
    assert_eq!(served.function.take(), expected);
}

/// A message, with its name, whether the version is negotiated before it, and its descriptors.
type Case<'a> = (&'a str, bool, Vec<u8>, &'a [BorrowedFd<'a>]);

/// Each of these ends its connection and nothing else.
#[test]
fn a_stream_that_cannot_be_followed_ends_and_the_next_vmm_is_served() {
    let served = Served::start();
    let memory = tempfile::tempfile().unwrap();
    let files = [memory.as_fd(); 17];
    let sized = |bytes: u32| {
        let mut message = request(1, command::READ, 0, &access(0, 0, 4));
        message[4..8].copy_from_slice(&bytes.to_le_bytes());
        message
    };
    let sizes = [sized(0), sized(15), sized(u32::MAX), sized(16 + 16 + 4097)];
    let text = |text: &[u8]| request(1, command::VERSION, 0, &version(text));
    let reset = request(1, command::RESET, 0, &[]);
    let cases: &[Case<'_>] = &[
        ("a size of none", true, sizes[0].clone(), &[]),
        ("a size of less than a header", true, sizes[1].clone(), &[]),
        ("a size that nobody allocates", true, sizes[2].clone(), &[]),
        ("a size of one byte too many", true, sizes[3].clone(), &[]),
        ("a reply", true, request(1, command::RESET, 1, &[]), &[]),
        ("a type that does not exist", true, request(1, command::RESET, 0xf, &[]), &[]),
        ("too many descriptors", true, reset.clone(), &files),
        ("descriptors with a part of a request", true, reset[..12].to_vec(), &files[..1]),
        ("no version first", false, reset.clone(), &[]),
    ];
    for (what, negotiated, message, files) in cases {
        let mut vmm = if *negotiated { Vmm::start(&served.path) } else { Vmm::connect(&served.path) };
        vmm.send(message, files);
        vmm.is_closed(what);
        assert_eq!(served.function.take(), [Done::Reset], "{what}: the machine is gone");
    }
    for (what, message) in [
        ("another major version", request(1, command::VERSION, 0, b"\x01\0\0\0{}\0")),
        ("no versions", request(1, command::VERSION, 0, b"\0\0")),
        ("a text without an end", text(b"{}")),
        ("a text with two ends", text(b"{}\0\0")),
        ("a text that is none", text(b"\xff\0")),
        ("a text that is no object", text(b"7\0")),
        ("capabilities that are none", text(b"{\"capabilities\":{\"max_msg_fds\":\"x\"}}\0")),
    ] {
        let mut vmm = Vmm::connect(&served.path);
        vmm.send(&message, &[]);
        let reply = vmm.reply();
        assert_eq!((reply.flags, reply.payload.len()), (ERROR, 0), "{what}");
        vmm.is_closed(what);
    }
    // A VMM that dies in the middle of a request.
    let vmm = Vmm::start(&served.path);
    vmm.send(&sizes[3][..20], &[]);
    drop(vmm);
    // One that is gone before it is answered.
    let mut vmm = Vmm::start(&served.path);
    for _ in 0..9 {
        vmm.post(command::READ, 0, &access(0, 0, 4), &[]);
    }
    drop(vmm);
    assert_eq!(Vmm::start(&served.path).ask(command::RESET, &[]).flags, REPLY);
    assert_eq!(open_files_of(&memory), 1, "no descriptor is left");
}

/// A connection of somebody who says nothing does not keep a VMM from its device.
#[test]
fn a_silent_connection_does_not_keep_others_waiting() {
    let served = Served::start();
    let mut silent = Vmm::connect(&served.path);
    silent.send(&[1, 2, 3], &[]);
    let mut vmm = Vmm::start(&served.path);
    silent.is_closed("no version");
    // A VMM may be silent for as long as it likes, and the next one waits.
    let mut next = Vmm::connect(&served.path);
    let id = next.post(command::VERSION, 0, &version(b""), &[]);
    assert_eq!(vmm.ask(command::RESET, &[]).flags, REPLY);
    drop(vmm);
    assert_eq!(next.reply().id, id);
}

/// What a VMM cannot receive is not sent to it.
#[test]
fn a_vmm_gets_no_more_than_it_takes() {
    let served = Served::start();
    let mut vmm = Vmm::connect(&served.path);
    let text = b"{\"capabilities\":{\"max_msg_fds\":0,\"max_data_xfer_size\":8}}\0";
    assert_eq!(vmm.ask(command::VERSION, &version(text)).flags, REPLY);
    let region = vmm.ask(command::GET_REGION_INFO, &region_info(64, 2));
    assert!(region.files.is_empty());
    assert_eq!(region.payload, words(&[32, 3, 2, 0, 0x10_0000, 0, 0, 0]), "it is not mapped");
    assert_eq!(vmm.ask(command::READ, &access(2, 0, 8)).flags, REPLY);
    assert_eq!(vmm.ask(command::READ, &access(2, 0, 9)).error, EINVAL);
}
