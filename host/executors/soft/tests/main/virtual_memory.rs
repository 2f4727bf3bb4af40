//! Tests of virtual memory management: reservations, physical memory, mappings and access rights.

use vgpu_host_testing::bench::{Bench, MEMORY};
use vgpu_host_testing::commands::{
    LAUNCH, adversarial, copy_in, function, launch, load, params, read, read_u32, synchronize,
};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::{
    MemCreate, MemMap, MemRelease, MemReserve, MemSetAccess, MemUnmap, MemUnreserve,
};

const GRANULE: u64 = 2 << 20;

fn reserve(guest: &mut Guest, bytes: u64) -> u64 {
    let (status, data) = guest.call(MemReserve { reply: 0, reserved: 0, bytes, alignment: 0, hint: 0 }, &[]);
    assert_eq!(status, 0);
    u64::from_le_bytes(data.try_into().unwrap())
}

fn create(guest: &mut Guest, handle: u32, bytes: u64) -> u32 {
    guest.call(MemCreate { reply: 0, handle, bytes }, &[]).0
}

fn map(guest: &mut Guest, handle: u32, address: u64) {
    guest.send(&MemMap { handle, reserved: 0, address, bytes: GRANULE, offset: 0 }, &[]);
    guest.send(&MemSetAccess { address, bytes: GRANULE, access: 3, reserved: 0 }, &[]);
}

#[test]
fn a_pool_grows_as_ggmls_does_and_goes_away() {
    for bench in [Bench::soft(), adversarial(5)] {
        let mut guest = bench.guest(0);
        load(&mut guest, 1);
        function(&mut guest, 1, "scale");
        let before = bench.allocated();
        let base = reserve(&mut guest, 32 << 30);
        assert_eq!((base % GRANULE, bench.allocated()), (0, before), "addresses cost nothing");
        for (handle, at) in [(1, base), (2, base + GRANULE)] {
            assert_eq!(create(&mut guest, handle, GRANULE), 0);
            map(&mut guest, handle, at);
            guest.send(&MemRelease { handle, reserved: 0 }, &[]);
        }
        // The range crosses the border of two mappings.
        let p = base + GRANULE - 64;
        copy_in(&mut guest, 0, p, &1u32.to_le_bytes().repeat(32));
        launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(p, &[32, 100]));
        let expected: Vec<u8> = (0..32u32).flat_map(|i| (100 + i).to_le_bytes()).collect();
        assert_eq!(read(&mut guest, p, 128), expected);
        assert_eq!(bench.allocated(), before + 2 * GRANULE);
        guest.send(&MemUnmap { address: base, bytes: 2 * GRANULE }, &[]);
        guest.send(&MemUnreserve { address: base, bytes: 32 << 30 }, &[]);
        synchronize(&mut guest);
        assert_eq!((bench.allocated(), guest.late()), (before, None));
        let number = copy_in(&mut guest, 0, base, &[1]);
        synchronize(&mut guest);
        assert_eq!(guest.late().map(|(code, _, message)| (code, message)), Some((700, number)));
    }
}

#[test]
fn physical_memory_counts_and_rights_are_kept() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    load(&mut guest, 1);
    function(&mut guest, 1, "digit");
    let base = reserve(&mut guest, 8 * GRANULE);
    assert_eq!(create(&mut guest, 1, 2 * MEMORY), 2, "out of memory");
    assert_eq!(create(&mut guest, 1, GRANULE + 1), 1);
    assert_eq!(create(&mut guest, 1, GRANULE), 0);
    // One physical memory is mapped at two addresses.
    map(&mut guest, 1, base);
    map(&mut guest, 1, base + 4 * GRANULE);
    copy_in(&mut guest, 0, base, &12u32.to_le_bytes());
    launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(base + 4 * GRANULE, &[3]));
    assert_eq!(read_u32(&mut guest, base), 123);
    for bad in [base + GRANULE / 2, base, base + 8 * GRANULE, 0] {
        let number =
            guest.send(&MemMap { handle: 1, reserved: 0, address: bad, bytes: GRANULE, offset: 0 }, &[]);
        guest.echo();
        assert_eq!(guest.late(), Some((1, 0, number)), "{bad:#x}");
    }
    // The mapping is read-only from now on.
    guest.send(&MemSetAccess { address: base, bytes: GRANULE, access: 1, reserved: 0 }, &[]);
    assert_eq!(read_u32(&mut guest, base), 123);
    let number = launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(base, &[3]));
    synchronize(&mut guest);
    assert_eq!(guest.late().map(|(code, _, message)| (code, message)), Some((700, number)));
}
