//! Virtual memory management, on a device that says that it has it, as GGML's pools use it.

use vgpu_abi::driver::{CUmemAccessDesc, CUmemAllocationProp, CUmemLocation};

use crate::cuda::*;
use crate::executor::odd;
use crate::host::{soft, with_device};

const GRANULE: usize = 2 << 20;

fn on_device(id: i32) -> CUmemAllocationProp {
    let location = CUmemLocation { kind: 1, id };
    CUmemAllocationProp { kind: 1, handle_types: 0, location, win32: std::ptr::null_mut(), flags: [0; 8] }
}

#[test]
fn a_pool_grows_in_a_reserved_range() {
    with_device(
        "virtual_memory::a_pool_grows_in_a_reserved_range",
        || odd("0000:00:05.0"),
        || {
            begin();
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
                assert_eq!(sent, 3, "one way");
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
                assert_eq!(fails!(u64, cuMemCreate(GRANULE + 1, prop, 0)), 1);
                assert_eq!(fails!(u64, cuMemCreate(GRANULE, third, 0)), 101);
                assert_eq!(fails!(u64, cuMemAddressReserve(GRANULE, 3, 0, 0)), 1);
            });
            assert_eq!(sent, 0);
            ok!(cuMemUnmap(range, used));
            ok!(cuMemAddressFree(range, 1 << 30));
            assert_eq!(cu!(cuMemAddressFree(range, 1 << 30)), 1);
        },
    );
}

#[test]
fn a_device_without_it_says_so() {
    with_device(
        "virtual_memory::a_device_without_it_says_so",
        || soft("0000:00:05.0", |_| ()),
        || {
            begin();
            assert_eq!(get!(i32, cuDeviceGetAttribute(102, 0)), 0);
            let prop = on_device(0);
            assert_eq!(fails!(usize, cuMemGetAllocationGranularity(&raw const prop, 0)), 801);
            assert_eq!(fails!(u64, cuMemCreate(GRANULE, &raw const prop, 0)), 801);
            assert_eq!(fails!(u64, cuMemAddressReserve(GRANULE, 0, 0, 0)), 801);
        },
    );
}
