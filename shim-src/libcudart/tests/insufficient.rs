//! Tests with a driver that is too old for the library: every call that initialises fails with
//! insufficient-driver.

#[path = "driver/calls.rs"]
mod calls;
mod driver;

use std::sync::atomic::Ordering::SeqCst;

use calls::{count, device};
use driver::DRIVER;

#[test]
fn a_driver_of_an_older_major_is_insufficient() {
    calls::let_panics_print();
    let least = if cfg!(feature = "cuda13") { 13_000 } else { 12_000 };
    DRIVER.version.store(least - 20, SeqCst);
    assert_eq!((count(), device()), (Err(35), Err(35)));
    assert_eq!(calls::cudaGetLastError(), 35);
    assert_eq!(calls::cudaSetDevice(0), 35);
    assert_eq!(calls::launch(calls::stand_in(1)), 35);
    let mut version = 0;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { calls::cudaDriverGetVersion(&raw mut version) }, 0);
    assert_eq!(version, least - 20);

    DRIVER.version.store(least, SeqCst);
    assert_eq!(count(), Ok(2), "any minor of the same major will do");
}
