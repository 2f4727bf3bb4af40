//! Tests of registration and lazy loading: nothing is loaded until a kernel is used, and then one library for
//! each fat binary.

#[path = "driver/calls.rs"]
mod calls;
mod driver;

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use calls::{Dim3, Wrapper, fatbin, function, launch, stand_in};
use driver::{DRIVER, last_launch};

/// Number of fat binaries that GGML registers.
const FATBINS: usize = 143;
const FUNCTIONS: usize = 6741;
const VARIABLES: usize = 1689;

/// Tests everything in one function, because the counters are those of the process.
#[test]
fn a_program_of_ggmls_size_registers_at_once_and_loads_what_it_uses() {
    calls::let_panics_print();
    let wrappers: Vec<Wrapper> = (0..FATBINS).map(|_| Wrapper::new()).collect();

    // The registration is repeated several times, so that one turn is free of other processes' interference.
    let mut best = Duration::MAX;
    let mut handles = Vec::new();
    for turn in 0..400 {
        if turn >= 4 && best < Duration::from_millis(10) {
            break;
        }
        for handle in handles.drain(..) {
            // SAFETY: a handle that was returned, used once.
            unsafe { calls::__cudaUnregisterFatBinary(handle) };
        }
        let start = Instant::now();
        for (index, wrapper) in wrappers.iter().enumerate() {
            let handle = fatbin(wrapper);
            for number in (index..FUNCTIONS).step_by(FATBINS) {
                function(handle, stand_in(number), c"kernel");
            }
            for number in (index..VARIABLES).step_by(FATBINS) {
                let (host, name) = (stand_in(100_000 + number), c"variable".as_ptr());
                // SAFETY: the name lives as long as the program.
                unsafe { calls::__cudaRegisterVar(handle, host, name, name, 0, 4, 1, 0) };
            }
            // SAFETY: the handle was just returned.
            unsafe { calls::__cudaRegisterFatBinaryEnd(handle) };
            handles.push(handle);
        }
        best = best.min(start.elapsed());
    }
    assert!(best < Duration::from_millis(10), "registration took {best:?}");
    assert_eq!(DRIVER.inits.load(SeqCst), 0, "registration initialises nothing");
    assert_eq!(DRIVER.calls.load(SeqCst), 0, "registration asks nothing");

    // Two kernels of one fatbin: one library, two kernels; then none again.
    assert_eq!(launch(stand_in(5)), 0);
    assert_eq!(launch(stand_in(5 + FATBINS)), 0);
    assert_eq!((DRIVER.loads.load(SeqCst), DRIVER.kernels.load(SeqCst)), (1, 2));
    assert_eq!(driver::codes(), [Wrapper::code()], "the driver gets the container");
    let calls = DRIVER.calls.load(SeqCst);
    for _ in 0..10 {
        assert_eq!(launch(stand_in(5)), 0);
    }
    assert_eq!(DRIVER.calls.load(SeqCst) - calls, 10, "a launch is one call to the driver");
    assert_eq!(DRIVER.launches.load(SeqCst), 12);
    let seen = last_launch();
    assert_eq!((seen.kernel.as_str(), seen.shape, seen.shared), ("kernel", [2, 3, 4, 5, 6, 7], 48));

    // Another thread finds the same kernels without another call to the driver.
    std::thread::spawn(|| assert_eq!(launch(stand_in(5)), 0)).join().unwrap();
    assert_eq!((DRIVER.loads.load(SeqCst), DRIVER.kernels.load(SeqCst)), (1, 2));

    // CUDA 13's interface, and the per-thread default stream.
    let mut kernel = 0;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { calls::__cudaGetKernel(&raw mut kernel, stand_in(5)) }, 0);
    let one = Dim3(1, 1, 1);
    // SAFETY: the driver of the tests does not look at arguments.
    assert_eq!(unsafe { calls::__cudaLaunchKernel(kernel, one, one, std::ptr::null_mut(), 0, 9) }, 0);
    assert_eq!((last_launch().kernel.as_str(), last_launch().stream), ("kernel", 9));
    // A kernel's handle may be passed where a stand-in is expected.
    let host = std::ptr::without_provenance(kernel);
    let null = std::ptr::null_mut();
    // SAFETY: as above.
    assert_eq!(unsafe { calls::cudaLaunchKernel_ptsz(host, one, one, null, 0, 0) }, 0);
    assert_eq!((last_launch().kernel.as_str(), last_launch().stream), ("kernel", 2));

    // An address that was never registered and a name that the image does not have are no kernels.
    assert_eq!(launch(stand_in(FUNCTIONS + 1)), 98);
    assert_eq!(launch(std::ptr::null()), 98);
    let extra = Wrapper::new();
    let handle = fatbin(&extra);
    function(handle, stand_in(50_000), c"missing");
    assert_eq!(launch(stand_in(50_000)), 98);
    assert_eq!(calls::cudaGetLastError(), 98);

    // An image that does not load fails each launch, and is tried again.
    let late = Wrapper::new();
    let handle = fatbin(&late);
    function(handle, stand_in(60_000), c"late");
    DRIVER.load.store(209, SeqCst);
    assert_eq!(launch(stand_in(60_000)), 209);
    DRIVER.load.store(0, SeqCst);
    assert_eq!(launch(stand_in(60_000)), 0);
    assert_eq!(last_launch().kernel, "late");

    // The object is unloaded and another is loaded at the same address: no thread launches the old kernel.
    // SAFETY: a handle that was returned, used once.
    unsafe { calls::__cudaUnregisterFatBinary(handle) };
    assert_eq!(DRIVER.unloads.load(SeqCst), 1);
    assert_eq!(launch(stand_in(60_000)), 98);
    let again = Wrapper::new();
    function(fatbin(&again), stand_in(60_000), c"new");
    assert_eq!(launch(stand_in(60_000)), 0);
    assert_eq!(last_launch().kernel, "new");
    assert_eq!(launch(stand_in(5)), 0);
    assert_eq!(last_launch().kernel, "kernel", "the others stay");

    // Once the exit has started, nothing is unloaded and nothing crashes.
    DRIVER.life.store(4, SeqCst);
    let unloads = DRIVER.unloads.load(SeqCst);
    for handle in handles {
        // SAFETY: a handle that was returned, used once.
        unsafe { calls::__cudaUnregisterFatBinary(handle) };
    }
    assert_eq!(DRIVER.unloads.load(SeqCst), unloads);
    assert_eq!(launch(stand_in(60_000)), 4);
}
