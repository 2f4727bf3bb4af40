//! Virtual memory management, on a device that says that it has it, as GGML's pools use it.

use std::ffi::c_void;

use vgpu_abi::driver::{CUmemAccessDesc, CUmemAllocationProp, CUmemLocation};

use crate::calls::*;
use crate::case::{Case, cases};
use crate::not_applicable;

pub const CASES: &[Case] = cases![
    "virtual_memory":
    a_pool_grows_in_a_reserved_range,
    handles_and_mappings_keep_memory,
    addresses_are_mapped_anew_behind_work,
];

const GRANULE: usize = 2 << 20;

fn on_device(id: i32) -> CUmemAllocationProp {
    let location = CUmemLocation { kind: 1, id };
    CUmemAllocationProp { kind: 1, handle_types: 0, location, win32: std::ptr::null_mut(), flags: [0; 8] }
}

/// Does not apply to a device without virtual memory management.
fn begin_with_virtual_memory() {
    begin();
    if get!(i32, cuDeviceGetAttribute(102, 0)) == 0 {
        not_applicable("the device has no virtual memory management");
    }
}

/// Copies reach across mappings, and an address that is mapped again is memory for later work.
fn addresses_are_mapped_anew_behind_work() {
    begin_with_virtual_memory();
    let prop = on_device(0);
    let rights = CUmemAccessDesc { location: prop.location, flags: 3 };
    let range = get!(u64, cuMemAddressReserve(4 * GRANULE, 0, 0, 0));
    let handles = [0; 2].map(|_| get!(u64, cuMemCreate(GRANULE, &raw const prop, 0)));
    let map = |index: usize| {
        let at = range + (index * GRANULE) as u64;
        ok!(cuMemMap(at, GRANULE, 0, handles[index], 0));
        ok!(cuMemSetAccess(at, GRANULE, &raw const rights, 1));
    };
    map(0);
    map(1);
    let (data, border) = (random(4000), range + GRANULE as u64 - 2000);
    upload(border, &data);
    assert!(download(border, 4000) == data);
    for round in 0..5_u8 {
        upload(range, &[round; 100]);
        ok!(cuMemUnmap(range, GRANULE));
        map(0);
        assert_eq!(download(range, 100), [round; 100]);
    }
    ok!(cuMemUnmap(range, 2 * GRANULE));
    ok!(cuMemAddressFree(range, 4 * GRANULE));
    for handle in handles {
        ok!(cuMemRelease(handle));
    }
}

fn a_pool_grows_in_a_reserved_range() {
    begin_with_virtual_memory();
    let (prop, third) = (on_device(0), on_device(3));
    let (prop, third) = (&raw const prop, &raw const third);
    assert_eq!(get!(usize, cuMemGetAllocationGranularity(prop, 1)), GRANULE);
    let range = get!(u64, cuMemAddressReserve(1 << 30, 0, 0, 0));
    let rights = CUmemAccessDesc { location: CUmemLocation { kind: 1, id: 0 }, flags: 3 };
    let rights = &raw const rights;
    let mut used = 0;
    for _ in 0..5 {
        let handle = get!(u64, cuMemCreate(2 * GRANULE, prop, 0));
        let at = range + used as u64;
        let sent = messages(|| {
            ok!(cuMemMap(at, 2 * GRANULE, 0, handle, 0));
            ok!(cuMemRelease(handle));
            ok!(cuMemSetAccess(at, 2 * GRANULE, rights, 1));
        });
        assert_eq!(sent, 2, "one way, and the memory ends with its mapping");
        used += 2 * GRANULE;
        ok!(cuMemsetD8_v2(at + 5, 1, GRANULE));
    }
    let sent = messages(|| {
        assert_eq!(cu!(cuMemMap(range, GRANULE, 0, 12345, 0)), 1);
        assert_eq!(cu!(cuMemSetAccess(range, GRANULE + 1, rights, 1)), 1);
        assert_eq!(cu!(cuMemSetAccess(range + 512, GRANULE, rights, 1)), 1);
        assert_eq!(cu!(cuMemUnmap(range - 1, GRANULE)), 1);
        assert_eq!(cu!(cuMemUnmap(range + (1 << 30), GRANULE)), 1);
        assert_eq!(cu!(cuMemFree_v2(range)), 1, "no allocation");
        assert_eq!(cu!(cuMemAddressFree(range, GRANULE)), 1, "not all of it");
        assert_eq!(cu!(cuMemAddressFree(range, 1 << 30)), 1, "something is mapped");
        assert_eq!(cu!(cuMemUnmap(range, GRANULE)), 1, "half of a mapping");
        assert_eq!(cu!(cuMemUnmap(range, used + GRANULE)), 1, "more than is mapped");
        assert_eq!(cu!(cuMemSetAccess(range + GRANULE as u64, GRANULE, rights, 1)), 1);
        assert_eq!(cu!(cuMemsetD8_v2(range + used as u64 - 1, 1, 2)), 1, "the end of what is mapped");
        assert_eq!(fails!(u64, cuMemCreate(GRANULE + 1, prop, 0)), 1);
        assert_eq!(fails!(u64, cuMemCreate(GRANULE, third, 0)), 101);
        assert_eq!(fails!(u64, cuMemAddressReserve(GRANULE, 3, 0, 0)), 1);
    });
    assert_eq!(sent, 0);
    ok!(cuMemsetD8_v2(range, 1, used));
    let sent = messages(|| ok!(cuMemUnmap(range, used)));
    assert_eq!(sent, 1 + 5, "one for the range, one for each memory that ends");
    assert_eq!(cu!(cuMemsetD8_v2(range, 1, 1)), 1, "nothing is mapped");
    ok!(cuMemAddressFree(range, 1 << 30));
    assert_eq!(cu!(cuMemAddressFree(range, 1 << 30)), 1);
}

fn handles_and_mappings_keep_memory() {
    begin_with_virtual_memory();
    let prop = on_device(0);
    let prop = &raw const prop;
    let here = CUmemLocation { kind: 1, id: 0 };
    let range = get!(u64, cuMemAddressReserve(4 * GRANULE, 0, 0, 0));
    let handle = get!(u64, cuMemCreate(GRANULE, prop, 0));
    let attribute = |address: u64, attribute| {
        let mut value = 0_u64;
        ok!(cuPointerGetAttribute((&raw mut value).cast(), attribute, address));
        value
    };
    let access = |address| {
        let mut flags = 9_u64;
        (cu!(cuMemGetAccess(&raw mut flags, &raw const here, address)), flags)
    };
    assert_eq!((attribute(range, 13), attribute(range, 16)), (0, 0), "reserved, not mapped");
    assert_eq!(access(range).0, 1);
    ok!(cuMemMap(range, GRANULE, 0, handle, 0));
    assert_eq!(cu!(cuMemMap(range, GRANULE, 0, handle, 0)), 1, "there already");
    assert_eq!(cu!(cuMemMap(range + GRANULE as u64, 2 * GRANULE, 0, handle, 0)), 1, "longer than it");
    assert_eq!(cu!(cuMemMap(range + GRANULE as u64, GRANULE, GRANULE, handle, 0)), 1, "an offset");
    // The same memory twice.
    ok!(cuMemMap(range + 2 * GRANULE as u64, GRANULE, 0, handle, 0));
    assert_eq!((attribute(range, 13), access(range)), (1, (0, 0)), "mapped, without rights");
    assert_eq!(cu!(cuMemsetD8_v2(range, 1, 1)), 1, "no rights");
    for flags in [1, 3] {
        let rights = CUmemAccessDesc { location: here, flags };
        ok!(cuMemSetAccess(range, GRANULE, &raw const rights, 1));
        assert_eq!((attribute(range, 16), access(range + 5)), (u64::from(flags), (0, u64::from(flags))));
    }
    assert_eq!((attribute(range + 7, 11), attribute(range + 7, 12)), (range, 4 * GRANULE as u64));
    let (mut base, mut bytes) = (0, 0);
    let mapped = range + 2 * GRANULE as u64;
    ok!(cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, mapped + 99));
    assert_eq!((base, bytes), (mapped, GRANULE));
    assert_eq!(cu!(cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, range + GRANULE as u64)), 500);

    let mut of_handle = on_device(7);
    ok!(cuMemGetAllocationPropertiesFromHandle(&raw mut of_handle, handle));
    assert_eq!((of_handle.kind, of_handle.location.kind, of_handle.location.id), (1, 1, 0));
    // A released handle comes back from a mapping, the same number, and is a handle again.
    ok!(cuMemRelease(handle));
    assert_eq!(cu!(cuMemRelease(handle)), 1);
    assert_eq!(cu!(cuMemMap(range + GRANULE as u64, GRANULE, 0, handle, 0)), 1, "no handle");
    let again = get!(u64, cuMemRetainAllocationHandle((range + 1) as *mut c_void));
    assert_eq!(again, handle);
    assert_eq!(fails!(u64, cuMemRetainAllocationHandle((range + GRANULE as u64) as *mut c_void)), 1);
    assert_eq!(messages(|| ok!(cuMemUnmap(range, GRANULE))), 1, "a mapping and a handle are left");
    assert_eq!(messages(|| ok!(cuMemUnmap(mapped, GRANULE))), 1, "a handle is left");
    assert_eq!(messages(|| ok!(cuMemRelease(handle))), 1, "nothing is left");
    assert_eq!(cu!(cuMemRelease(handle)), 1);
    ok!(cuMemAddressFree(range, 4 * GRANULE));
}
