//! Tests the life of a process: no device, a device that appears later, a forked child, and exit.

#[path = "driver/calls.rs"]
mod calls;
mod driver;

use std::sync::atomic::Ordering::SeqCst;

use calls::{count, device};
use driver::DRIVER;

/// Tests everything in one function, because a process has only one life.
#[test]
fn a_process_is_initialised_once_there_is_a_device_and_ends() {
    calls::let_panics_print();
    let version = |call: unsafe extern "C" fn(*mut i32) -> u32| {
        let mut version = -1;
        // SAFETY: the place is a local.
        let status = unsafe { call(&raw mut version) };
        (status, version)
    };
    let (status, runtime) = version(calls::cudaRuntimeGetVersion);
    assert_eq!(status, 0);
    assert_eq!(runtime / 1000, if cfg!(feature = "cuda13") { 13 } else { 12 });
    assert_eq!(version(calls::cudaDriverGetVersion), (0, 13_000));
    assert_eq!(DRIVER.inits.load(SeqCst), 0, "versions initialise nothing");

    DRIVER.init.store(100, SeqCst);
    assert_eq!(count(), Err(100));
    assert_eq!(device(), Err(100));
    assert_eq!(calls::cudaGetLastError(), 100);
    assert_eq!(calls::cudaGetLastError(), 100, "it stays while there is none");
    assert_eq!(calls::cudaSetDevice(0), 100);

    DRIVER.init.store(0, SeqCst);
    assert_eq!(count(), Ok(2));
    let inits = DRIVER.inits.load(SeqCst);
    assert_eq!(count(), Ok(2));
    assert_eq!(DRIVER.inits.load(SeqCst), inits, "once is enough");
    assert_eq!(DRIVER.retains.load(SeqCst), 0, "counting makes no context");
    assert_eq!(calls::cudaGetLastError(), 100, "the errors of before are remembered");
    assert_eq!(calls::cudaGetLastError(), 0);

    // SAFETY: a null place is what is tested.
    assert_eq!(unsafe { calls::cudaGetDeviceCount(std::ptr::null_mut()) }, 1);
    assert_eq!(calls::cudaPeekAtLastError(), 1);
    assert_eq!(calls::cudaGetLastError(), 1);
    assert_eq!(calls::cudaPeekAtLastError(), 0);

    // In a forked child the driver says not-initialised.
    DRIVER.life.store(3, SeqCst);
    assert_eq!((count(), device()), (Err(3), Err(3)));
    assert_eq!(calls::cudaGetLastError(), 3);
    assert_eq!(calls::cudaDeviceSynchronize(), 3);

    // After exit handlers it says deinitialised.
    DRIVER.life.store(4, SeqCst);
    assert_eq!((count(), device()), (Err(4), Err(4)));
    assert_eq!(calls::cudaSetDevice(0), 4);
    assert_eq!(calls::cudaGetLastError(), 4);
}
