//! Launches in several threads while fat binaries are registered and unregistered: no thread launches a
//! kernel that is gone, or another one.

#[path = "driver/calls.rs"]
mod calls;
mod driver;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use calls::{Wrapper, fatbin, function, launch, stand_in};
use driver::DRIVER;

const THREADS: usize = 4;
const ROUNDS: usize = 300;

#[test]
fn threads_launch_while_objects_are_loaded_and_unloaded() {
    calls::let_panics_print();
    let (kept, passing) = (Wrapper::new(), Wrapper::new());
    let handle = fatbin(&kept);
    for number in 0..64 {
        function(handle, stand_in(number), c"kept");
    }
    // Before this call, only the registering thread is sure to find the kernels.
    // SAFETY: a handle that was returned, whose contents are complete.
    unsafe { calls::__cudaRegisterFatBinaryEnd(handle) };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let launching: Vec<_> = (0..THREADS)
            .map(|first| {
                let stop = &stop;
                scope.spawn(move || {
                    let mut launches = 0;
                    loop {
                        for number in (first..64).step_by(THREADS) {
                            assert_eq!(launch(stand_in(number)), 0);
                            launches += 1;
                        }
                        if stop.load(SeqCst) {
                            return launches;
                        }
                    }
                })
            })
            .collect();
        for round in 0..ROUNDS {
            let handle = fatbin(&passing);
            function(handle, stand_in(1000), c"passing");
            assert_eq!(launch(stand_in(1000)), 0, "round {round}");
            // SAFETY: a handle that was returned, used once.
            unsafe { calls::__cudaUnregisterFatBinary(handle) };
            assert_eq!(launch(stand_in(1000)), 98, "round {round}");
        }
        stop.store(true, SeqCst);
        let launches: usize = launching.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(DRIVER.launches.load(SeqCst), launches + ROUNDS);
    });
    assert_eq!((DRIVER.loads.load(SeqCst), DRIVER.unloads.load(SeqCst)), (ROUNDS + 1, ROUNDS));
    assert_eq!(DRIVER.kernels.load(SeqCst), 64 + ROUNDS, "each kernel is asked for once");
}
