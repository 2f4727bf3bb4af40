//! Tests which device and which context each thread works on.

#[path = "driver/calls.rs"]
mod calls;
mod driver;

use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use calls::{Wrapper, device, fatbin, function, launch, stand_in};
use driver::{DRIVER, OWN, current, last_launch, make_current, primary};

/// Tests everything in one function, because the counters are those of the process.
#[test]
fn threads_have_their_own_device_and_get_its_context_when_they_need_one() {
    calls::let_panics_print();
    assert_eq!(device(), Ok(0), "device 0 until another is chosen");
    assert_eq!(current(), 0, "asking needs no context");
    assert_eq!(calls::cudaDeviceSynchronize(), 0);
    assert_eq!(current(), primary(0));

    thread::spawn(|| {
        assert_eq!(calls::cudaSetDevice(1), 0);
        assert_eq!(current(), primary(1), "choosing a device makes its context current");
        assert_eq!(device(), Ok(1));
        assert_eq!(calls::cudaSetDevice(2), 101);
        assert_eq!(calls::cudaSetDevice(-1), 101);
        assert_eq!(device(), Ok(1), "a device that there is not changes nothing");
    })
    .join()
    .unwrap();
    assert_eq!(device(), Ok(0));

    let mut value = 0;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { calls::cudaDeviceGetAttribute(&raw mut value, 75, 1) }, 0);
    assert_eq!(value, 1075);
    // SAFETY: as above.
    assert_eq!(unsafe { calls::cudaDeviceGetAttribute(&raw mut value, 75, 2) }, 101);
    // SAFETY: as above. The attribute is one that only the driver has.
    assert_eq!(unsafe { calls::cudaDeviceGetAttribute(&raw mut value, 102, 0) }, 1);

    // A thread whose first call is a launch gets its context from the launch.
    let wrapper = Wrapper::new();
    let handle = fatbin(&wrapper);
    function(handle, stand_in(1), c"kernel");
    // SAFETY: the handle is that of the registered fatbin. Compiled programs make this call, too, and other
    // threads find the kernel only after it.
    unsafe { calls::__cudaRegisterFatBinaryEnd(handle) };
    thread::spawn(|| {
        assert_eq!(launch(stand_in(1)), 0);
        assert_eq!((current(), last_launch().context), (primary(0), primary(0)));
    })
    .join()
    .unwrap();

    // A context that the program made itself is respected.
    thread::spawn(|| {
        make_current(OWN);
        assert_eq!(device(), Ok(1), "the device of the current context");
        assert_eq!(calls::cudaDeviceSynchronize(), 0);
        assert_eq!(launch(stand_in(1)), 0);
        assert_eq!((current(), last_launch().context), (OWN, OWN));
    })
    .join()
    .unwrap();

    // Each device has one primary context, however many threads there are.
    assert_eq!(DRIVER.retains.load(SeqCst), 2);

    // A reset ends it; the next call makes another, in other threads too.
    let (reset, was_reset) = std::sync::mpsc::channel();
    let other = thread::spawn(move || {
        assert_eq!(calls::cudaDeviceSynchronize(), 0);
        assert_eq!(current(), primary(0));
        was_reset.recv().unwrap();
        assert_eq!(calls::cudaDeviceSynchronize(), 0);
        DRIVER.retains.load(SeqCst)
    });
    assert_eq!(calls::cudaDeviceReset(), 0);
    assert_eq!(current(), 0);
    reset.send(()).unwrap();
    assert_eq!(other.join().unwrap(), 3);

    // A shape that the device cannot have is an invalid configuration, any other invalid value is one.
    assert_eq!(calls::cudaDeviceSynchronize(), 0);
    DRIVER.launch.store(1, SeqCst);
    assert_eq!(launch(stand_in(1)), 1, "that shape is fine, so it was something else");
    let (zero, one) = (calls::Dim3(0, 1, 1), calls::Dim3(1, 1, 1));
    let null = std::ptr::null_mut();
    // SAFETY: the driver of the tests does not look at arguments.
    assert_eq!(unsafe { calls::cudaLaunchKernel(stand_in(1), zero, one, null, 0, 0) }, 9);
    // SAFETY: as above.
    assert_eq!(unsafe { calls::cudaLaunchKernel(stand_in(1), one, calls::Dim3(1025, 1, 1), null, 0, 0) }, 9);
    // SAFETY: as above.
    assert_eq!(unsafe { calls::cudaLaunchKernel(stand_in(1), one, one, null, usize::MAX, 0) }, 1);

    // An error that lost the context stays the last error.
    DRIVER.launch.store(700, SeqCst);
    assert_eq!(launch(stand_in(1)), 700);
    assert_eq!((calls::cudaGetLastError(), calls::cudaGetLastError()), (700, 700));
}
