//! Tests of version 1 against recorded bytes, written by hand from the protocol's worked examples, and
//! against the routing tables row by row.

use proptest::prelude::*;
use vgpu_wire::v1::call::{Op, Treatment};
use vgpu_wire::v1::frame::{CUDA_CALL, Call, FrameError, Header, MAGIC, Outcome};
use vgpu_wire::v1::payload::{GemmBatched, GemmEx, GemmStrided, GpuInfo, Launch, Sgemm};
use vgpu_wire::v1::route::{Place, Preferences, Prefixes, limit, to_guest, to_host};
use vgpu_wire::v1::{INLINE_BYTES, PAYLOAD_MAX, is_device, join, owner, split};
use zerocopy::{FromZeros, IntoBytes};

/// `cuMemAlloc(4096)` of process 1234 in machine 10: the frame that the device sends, sequence 7, request 1.
const ALLOC_FRAME: &[u8] = &[
    0x55, 0x50, 0x47, 0x56, 0x10, 0, 0, 0, 10, 0, 0, 0, 1, 0, 0, 0, b'A', 1, 0, 0, 88, 0, 0,
    0, // header
    0x55, 0x50, 0x47, 0x56, 0x30, 0, 0, 0, 7, 0, 0, 0, 0xd2, 0x04, 0, 0x0a, 4, 0, 0, 0, 0, 0, 0,
    0, // call
    0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // args 0 to 3
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // args 4 to 15
];

#[test]
fn the_worked_allocation_is_these_bytes() {
    let mut call = Call::new_zeroed();
    call.magic = MAGIC.into();
    call.op = (Op::MemAlloc as u32).into();
    call.seq = 7.into();
    call.owner = owner(10, 1234).into();
    call.num_args = 4.into();
    call.args[0] = 4096.into();
    let mut bytes = Header::new(CUDA_CALL, 10, 1, 88).as_bytes().to_vec();
    bytes.extend_from_slice(call.as_bytes());
    assert_eq!(bytes, ALLOC_FRAME);
    assert_eq!(call.owner.get(), 0x0a00_04d2);

    let (read, data) = Call::decode(&bytes[24..]).unwrap();
    assert_eq!((read.args()[0], join(&read.args(), 0), data.len()), (4096, 4096, 0));
}

#[test]
fn structures_have_the_sizes_of_the_c_ones() {
    assert_eq!(size_of::<GpuInfo>(), 472);
    assert_eq!(size_of::<Launch>(), 60);
    assert_eq!(size_of::<Sgemm>(), 72);
    assert_eq!(size_of::<GemmEx>(), 92);
    assert_eq!(size_of::<GemmStrided>(), 120);
    assert_eq!(size_of::<GemmBatched>(), 72);
}

#[test]
fn calls_that_the_host_refuses_are_marked() {
    let refused = Op::ALL.iter().filter(|op| op.treatment() == Treatment::Refused).map(|op| *op as u32);
    let table = [
        0x17, 0x18, 0x24, 0x25, 0x36, 0x38, 0x39, 0x3a, 0x3d, 0x3e, 0x51, 0x80, 0x81, 0xa0, 0xa1, 0xb2, 0xb3,
        0xb7, 0xb8, 0xb9,
    ];
    assert!(refused.eq(table), "the table of calls, row by row");
    assert!(Op::ALL.iter().all(|op| Op::try_from(*op as u32) == Ok(*op)));
    assert_eq!(Op::try_from(0x19), Err(0x19));
}

#[test]
fn a_real_h100_is_no_device() {
    // Its BAR0 has 16 MiB, its BAR2 is where BAR1 would be.
    assert!(!is_device(16 << 20, 0, 0, 0));
    assert!(is_device(0x1000, 16 << 20, 0x0001_0000, 0x71));
    assert!(!is_device(0x1000, 16 << 20, 0x0001_0000, 0x61), "no CUDA remoting");
    assert!(!is_device(0x1000, 16 << 20, 0x0002_0000, 0x71), "another version");
}

/// Tests the rows of the table for requests, in their order.
#[test]
fn requests_take_the_place_of_their_row() {
    const HALF: u32 = 2 << 20;
    let htod = Op::MemcpyHtoD as u32;
    let module = Op::ModuleLoadData as u32;
    let library = Op::LibraryLoadData as u32;
    let launch = Op::LaunchKernel as u32;
    let none = Prefixes::default();
    let window = Prefixes { window: true, ..none };
    let bar1 = Prefixes { bar1: true, ..none };
    let both = Prefixes { window: true, bar1: true, ..none };
    let plain = Preferences::default();
    let first = Preferences { prefer_bar1_htod: true, ..plain };

    assert_eq!(to_host(htod, 0, HALF, both, plain), (Place::Nowhere, 0));
    assert_eq!(to_host(htod, 1024, HALF, both, plain), (Place::Inline, 1024));
    assert_eq!(to_host(htod, 1025, HALF, window, plain), (Place::Window, 1025));
    assert_eq!(
        to_host(htod, HALF + 1, HALF, window, plain),
        (Place::Bar1, HALF + 1),
        "bulk, no room in the window"
    );
    assert_eq!(to_host(launch, HALF + 1, HALF, window, plain), (Place::Window, HALF), "Q7: cut");
    assert_eq!(to_host(launch, 2000, 0, none, plain), (Place::Bar1, 2000));
    assert_eq!(to_host(launch, PAYLOAD_MAX + 1, 0, none, plain), (Place::Bar1, PAYLOAD_MAX));

    assert_eq!(to_host(htod, 4096, HALF, both, first).0, Place::Bar1, "preferred");
    assert_eq!(to_host(library, 4096, HALF, both, first).0, Place::Window, "a copy's preference only");
    assert_eq!(
        to_host(htod, 4096, HALF, bar1, plain).0,
        Place::Bar1,
        "Q6: zeros in the window, something in BAR1"
    );
    assert_eq!(to_host(htod, 4096, HALF, none, plain).0, Place::Window);
    assert_eq!(to_host(module, 4096, HALF, bar1, plain).0, Place::Window, "modules end in the window");
    assert_eq!(to_host(library, 4096, HALF, bar1, plain).0, Place::Bar1);
    let sure = Preferences { authoritative_library: true, ..plain };
    assert_eq!(to_host(library, 4096, HALF, bar1, sure).0, Place::Window);
    let probing = Preferences { probe_fresh_library: true, ..plain };
    assert_eq!(to_host(library, 4096, HALF, bar1, probing).0, Place::Bar1);
    assert_eq!(
        to_host(library, 4096, HALF, Prefixes { window_fresh: true, ..bar1 }, probing).0,
        Place::Window
    );
}

#[test]
fn answers_take_the_place_of_their_row() {
    assert_eq!(to_guest(0, 0), (Place::Nowhere, 0));
    assert_eq!(to_guest(INLINE_BYTES, 1 << 20), (Place::Inline, INLINE_BYTES));
    assert_eq!(to_guest(1025, 1 << 20), (Place::Window, 1025));
    assert_eq!(to_guest(2 << 20, 1 << 20), (Place::Window, 1 << 20));
    assert_eq!(to_guest(1025, 0), (Place::Bar1, 1025));
}

proptest! {
    /// A payload within the limit arrives whole, whatever the other places hold.
    #[test]
    fn what_is_within_the_limit_is_not_cut(
        op in 0_u32..=0xff, bytes in 1..=PAYLOAD_MAX,
        half in prop_oneof![Just(0_u32), 16_384..(64_u32 << 20)],
        window: bool, bar1: bool, prefer: bool,
    ) {
        let seen = Prefixes { window, bar1, window_fresh: window };
        let prefer = Preferences { prefer_bar1_htod: prefer, ..Preferences::default() };
        if bytes <= limit(half) {
            prop_assert_eq!(to_host(op, bytes, half, seen, prefer).1, bytes);
            prop_assert_eq!(to_guest(bytes, half).1, bytes);
        }
    }

    /// An argument is unchanged after it is split and joined.
    #[test]
    fn arguments_split_and_join(value: u64, at in 0_usize..15) {
        let mut args = [0; 16];
        args[at..at + 2].copy_from_slice(&split(value));
        prop_assert_eq!(join(&args, at), value);
    }

    /// Checks that no bytes make the decoders panic, and that decoded payloads are parts of the input.
    #[test]
    fn decoders_take_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        match Call::decode(&bytes) {
            Ok((call, data)) => prop_assert_eq!(data.len(), call.data_len.get() as usize),
            Err(FrameError::Short(length)) => prop_assert!(length < 88),
            Err(_) => {}
        }
        if let Ok((_, data)) = Outcome::decode(&bytes) {
            prop_assert!(data.len() + 88 <= bytes.len());
        }
    }
}
