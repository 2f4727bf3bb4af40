//! Pools: stream-ordered allocation, what is counted, and what is refused.

use std::ffi::c_void;

use vgpu_abi::driver::{CUmemAccessDesc, CUmemLocation, CUmemPoolProps, CUmemoryPool, CUstream};

use crate::calls::*;
use crate::case::{Case, cases};

pub const CASES: &[Case] = cases![
    "pools":
    a_pool_counts_what_it_gives_out,
    what_a_pool_cannot_is_refused,
];

const STREAM: CUstream = CUstream(2);

fn props(id: i32, max_size: usize) -> CUmemPoolProps {
    let location = CUmemLocation { kind: 1, id };
    CUmemPoolProps {
        kind: 1,
        handle_types: 0,
        location,
        win32: std::ptr::null_mut(),
        max_size,
        rest: [0; 28],
    }
}

fn figure(pool: CUmemoryPool, attribute: u32) -> u64 {
    let mut value = 0_u64;
    ok!(cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    value
}

fn a_pool_counts_what_it_gives_out() {
    begin();
    assert_eq!(get!(i32, cuDeviceGetAttribute(115, 0)), 1);
    let default = get!(CUmemoryPool, cuDeviceGetDefaultMemPool(0));
    assert_eq!(get!(CUmemoryPool, cuDeviceGetMemPool(0)), default);
    assert_eq!(cu!(cuMemPoolDestroy(default)), 1, "the default pool stays");
    let wanted = props(0, 0);
    let pool = get!(CUmemoryPool, cuMemPoolCreate(&raw const wanted));

    let data = random(100_000);
    {
        let a = get!(u64, cuMemAllocFromPoolAsync(100_000, pool, STREAM));
        ok!(cuMemcpyHtoDAsync_v2(a, data.as_ptr().cast(), 100_000, STREAM));
        assert_eq!((figure(pool, 7), figure(pool, 5)), (100_000, 100_000));
        let mut of = 0_usize;
        ok!(cuPointerGetAttribute((&raw mut of).cast(), 17, a + 9));
        assert_eq!(of, pool.0);
        let mut back = vec![0; 100_000];
        ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), a, 100_000, STREAM));
        assert!(back == data);
        ok!(cuMemFreeAsync(a, STREAM));
        assert_eq!(cu!(cuMemFreeAsync(a, STREAM)), 1, "twice");
    }
    assert_eq!((figure(pool, 7), figure(pool, 8), figure(pool, 6)), (0, 100_000, 100_000));
    let mut zero = 0_u64;
    ok!(cuMemPoolSetAttribute(pool, 8, (&raw mut zero).cast()));
    assert_eq!((figure(pool, 8), figure(pool, 6)), (0, 100_000));
    zero = 5;
    assert_eq!(cu!(cuMemPoolSetAttribute(pool, 8, (&raw mut zero).cast())), 1, "only 0");
    assert_eq!(cu!(cuMemPoolSetAttribute(pool, 7, (&raw mut zero).cast())), 1, "a figure");
    ok!(cuMemPoolSetAttribute(pool, 4, (&raw mut zero).cast()));
    assert_eq!(figure(pool, 4), 5);
    let mut off = 0_i32;
    assert_eq!(figure(pool, 2) as i32, 1);
    ok!(cuMemPoolSetAttribute(pool, 2, (&raw mut off).cast()));
    assert_eq!(figure(pool, 2) as i32, 0);
    ok!(cuMemPoolTrimTo(pool, 0));

    // Memory of either kind is freed either way, and outlives its pool.
    ok!(cuDeviceSetMemPool(0, pool));
    let b = get!(u64, cuMemAllocAsync(4096, STREAM));
    assert_eq!(figure(pool, 7), 4096);
    ok!(cuMemPoolDestroy(pool));
    assert_eq!(cu!(cuMemPoolDestroy(pool)), 1);
    assert_eq!(get!(CUmemoryPool, cuDeviceGetMemPool(0)), default, "back to the default");
    ok!(cuMemsetD8_v2(b, 1, 4096));
    ok!(cuMemFree_v2(b));
    let c = alloc(4096);
    ok!(cuMemFreeAsync(c, STREAM));
    assert_eq!(figure(default, 7), 0);
}

fn what_a_pool_cannot_is_refused() {
    begin();
    let small = props(0, 10_000);
    let pool = get!(CUmemoryPool, cuMemPoolCreate(&raw const small));
    let a = get!(u64, cuMemAllocFromPoolAsync(9_000, pool, STREAM));
    let sent = messages(|| {
        assert_eq!(fails!(u64, cuMemAllocFromPoolAsync(1_001, pool, STREAM)), 2, "its most is reached");
        assert_eq!(fails!(u64, cuMemAllocFromPoolAsync(0, pool, STREAM)), 1);
        assert_eq!(fails!(u64, cuMemAllocFromPoolAsync(8, CUmemoryPool(0x1230), STREAM)), 1);
        let (far, host) = (props(3, 0), CUmemPoolProps { handle_types: 1, ..props(0, 0) });
        assert_eq!(fails!(CUmemoryPool, cuMemPoolCreate(&raw const far)), 101);
        assert_eq!(fails!(CUmemoryPool, cuMemPoolCreate(&raw const host)), 801, "for other processes");
        let mut here = CUmemLocation { kind: 1, id: 0 };
        assert_eq!(get!(u32, cuMemPoolGetAccess(pool, &raw mut here)), 3);
        for (flags, status) in [(3, 0), (1, 1), (0, 1)] {
            let rights = CUmemAccessDesc { location: here, flags };
            assert_eq!(cu!(cuMemPoolSetAccess(pool, &raw const rights, 1)), status);
        }
        let mut value = 0_u64;
        let value: *mut c_void = (&raw mut value).cast();
        assert_eq!(cu!(cuMemPoolGetAttribute(pool, 99, value)), 1);
        assert_eq!(cu!(cuMemPoolGetAttribute(pool, 4, std::ptr::null_mut())), 1);
    });
    assert_eq!(sent, 0);
    // What the host refuses is not counted.
    let large = props(0, 0);
    let other = get!(CUmemoryPool, cuMemPoolCreate(&raw const large));
    assert_eq!(fails!(u64, cuMemAllocFromPoolAsync(1 << 40, other, STREAM)), 2);
    assert_eq!(figure(other, 7), 0);
    ok!(cuMemFreeAsync(a, STREAM));
    assert_eq!(figure(pool, 7), 0);
}
