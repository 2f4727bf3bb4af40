//! Tests with a libcuda that is not this project's: every call fails.

#[path = "driver/calls.rs"]
mod calls;
mod driver;

use std::sync::atomic::Ordering::SeqCst;

use calls::{count, device};
use driver::DRIVER;

#[test]
fn every_call_answers_an_initialization_error() {
    calls::let_panics_print();
    DRIVER.foreign.store(true, SeqCst);
    assert_eq!((count(), device()), (Err(3), Err(3)));
    assert_eq!(calls::cudaGetLastError(), 3);
    assert_eq!(calls::cudaDeviceSynchronize(), 3);
    assert_eq!(calls::launch(calls::stand_in(1)), 3);
    assert_eq!(DRIVER.inits.load(SeqCst), 0, "it is not even initialised");
}
