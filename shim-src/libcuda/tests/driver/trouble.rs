//! Tests of errors that the host reports late.

use vgpu_abi::driver::CUstream;

use crate::executor::{ENDS, FAILS_FOR_GOOD, FAILS_ONCE, odd};
use crate::host::with_device;
use vgpu_conformance::calls::*;

const NO_STREAM: CUstream = CUstream(0);

fn device() -> vgpu_device::DeviceConfig {
    odd("0000:00:05.0")
}

#[test]
fn a_late_error_is_told_once() {
    with_device("trouble::a_late_error_is_told_once", device, || {
        begin();
        let address = alloc(4096);
        let stream = get!(CUstream, cuStreamCreate(1));
        for code in [98, 702, 719] {
            // Told once: by the call itself if the host is that quick, else by the call that waits for it,
            let status = cu!(cuMemsetD32Async(address, FAILS_ONCE + code, 4, stream));
            let waited = cu!(cuCtxSynchronize());
            assert!([(0, code), (code, 0)].contains(&(status, waited)), "{status} {waited} for {code}");
            ok!(cuCtxSynchronize());
            ok!(cuMemsetD32Async(address, 0, 4, stream));
            // or by any later call that talks to the host.
            let mut status = cu!(cuMemsetD32Async(address, FAILS_ONCE + code, 4, stream));
            while status == 0 {
                status = cu!(cuMemsetD8Async(address, 0, 4, stream));
            }
            assert_eq!(status, code);
            ok!(cuStreamSynchronize(stream));
        }
        ok!(cuMemsetD32Async(address, FAILS_ONCE + 7, 4, NO_STREAM));
        let mut back = [0_u8; 16];
        assert_eq!(cu!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), address, 16)), 7, "a copy back waits too");
        assert_eq!(get!(i32, cuCtxGetDevice()), 0, "state has no errors");
    });
}

#[test]
fn a_sticky_error_stays() {
    with_device("trouble::a_sticky_error_stays", device, || {
        let context = begin();
        let address = alloc(4096);
        let stream = get!(CUstream, cuStreamCreate(1));
        ok!(cuMemsetD32Async(address, FAILS_FOR_GOOD + 700, 4, stream));
        assert_eq!(cu!(cuCtxSynchronize()), 700);
        let mut place = 0_u64;
        for _ in 0..3 {
            assert_eq!(cu!(cuCtxSynchronize()), 700);
            assert_eq!(cu!(cuStreamSynchronize(stream)), 700);
            assert_eq!(cu!(cuStreamQuery(stream)), 700);
            assert_eq!(cu!(cuMemAlloc_v2(&raw mut place, 16)), 700);
            assert_eq!(cu!(cuMemsetD8Async(address, 0, 4, stream)), 700);
            assert_eq!(cu!(cuMemcpyHtoD_v2(address, [0_u8; 4].as_ptr().cast(), 4)), 700);
        }
        ok!(cuCtxSetCurrent(context));
        assert_eq!(get!(i32, cuDeviceGetCount()), 1);
    });
}

/// The first synchronize of a session returns the status that ended the session, although it has no
/// completion word yet.
#[test]
fn a_session_that_is_over_is_not_out_of_memory() {
    const ENDED: Status = 999;
    with_device("trouble::a_session_that_is_over_is_not_out_of_memory", device, || {
        begin();
        let address = alloc(4096);
        ok!(cuMemsetD32Async(address, ENDS, 4, NO_STREAM));
        let mut status = 0;
        while status == 0 {
            status = cu!(cuMemsetD8Async(address, 0, 4, NO_STREAM));
        }
        assert_eq!(status, ENDED);
        assert_eq!(cu!(cuCtxSynchronize()), ENDED);
        assert_eq!(cu!(cuStreamSynchronize(NO_STREAM)), ENDED);
        assert_eq!(fails!(u64, cuMemAlloc_v2(16)), ENDED);
        assert_eq!(fails!(CUstream, cuStreamCreate(1)), ENDED);
    });
}
