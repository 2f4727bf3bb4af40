//! Tests of window memory when it runs out, and of the memory of a process that has died.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::driver::CUstream;
use vgpu_conformance::calls::*;

use crate::host::{Host, is_guest, soft, with_device};

const NO_STREAM: CUstream = CUstream(0);

fn device() -> vgpu_device::DeviceConfig {
    soft("0000:00:05.0", |_| ())
}

#[test]
fn a_full_window_gives_ordinary_memory() {
    const NAME: &str = "memory::a_full_window_gives_ordinary_memory";
    if is_guest(NAME) {
        begin();
        let bytes = 1 << 20;
        let data = random(bytes);
        let device = alloc(bytes);
        let blocks: Vec<*mut u8> = (0..64).map(|_| pinned(bytes)).collect();
        for &block in &blocks {
            // SAFETY: pinned memory of this size.
            unsafe { ptr::copy_nonoverlapping(data.as_ptr(), block, bytes) };
            ok!(cuMemcpyHtoDAsync_v2(device, block.cast(), bytes, NO_STREAM));
            ok!(cuStreamSynchronize(NO_STREAM));
            // SAFETY: as above; a synchronize came after the copy.
            unsafe { block.write_bytes(0, bytes) };
            ok!(cuMemcpyDtoHAsync_v2(block.cast(), device, bytes, NO_STREAM));
            ok!(cuStreamSynchronize(NO_STREAM));
            // SAFETY: as above.
            assert!(unsafe { std::slice::from_raw_parts(block, bytes) } == data);
        }
        for block in blocks {
            ok!(cuMemFreeHost(block.cast()));
        }
        ok!(cuMemFree_v2(device));
        return;
    }
    let mut config = device();
    config.window_bytes = 64 << 20;
    Host::serve(vec![config]).run(NAME, &[]);
}

#[test]
fn host_memory_that_cannot_be_shared_is_refused() {
    with_device("memory::host_memory_that_cannot_be_shared_is_refused", device, || {
        begin();
        let mut own = vec![0_u8; 8192];
        let own: *mut c_void = own.as_mut_ptr().cast();
        let pinned: *mut c_void = pinned(8192).cast();
        let sent = messages(|| {
            for attribute in [19, 83, 88, 89, 91, 99] {
                assert_eq!(get!(i32, cuDeviceGetAttribute(attribute, 0)), 0, "attribute {attribute}");
            }
            assert_eq!(cu!(cuMemHostRegister_v2(own, 8192, 0)), 801);
            assert_eq!(cu!(cuMemHostRegister_v2(own, 8192, 16)), 1, "no such flag");
            assert_eq!(cu!(cuMemHostRegister_v2(own, 0, 0)), 1);
            assert_eq!(cu!(cuMemHostRegister_v2(ptr::null_mut(), 8192, 0)), 1);
            assert_eq!(cu!(cuMemHostRegister_v2(pinned, 100, 0)), 712, "pinned already");
            assert_eq!(cu!(cuMemHostUnregister(own)), 713);
            assert_eq!(fails!(u64, cuMemAllocManaged(4096, 1)), 801);
            assert_eq!(fails!(u64, cuMemAllocManaged(0, 1)), 1);
            assert_eq!(fails!(u64, cuMemAllocManaged(4096, 3)), 1);
        });
        assert_eq!(sent, 0);
        ok!(cuMemFreeHost(pinned));
    });
}

#[test]
fn a_dead_process_gives_its_memory_to_who_needs_it() {
    const NAME: &str = "memory::a_dead_process_gives_its_memory_to_who_needs_it";
    if is_guest(NAME) {
        begin();
        let _big = alloc(700 << 20);
        if std::env::var_os("DIE").is_some() {
            // SAFETY: no preconditions.
            let own = unsafe { libc::getpid() };
            // SAFETY: ends this process without any handler.
            unsafe { libc::kill(own, libc::SIGKILL) };
        }
        return;
    }
    let host = Host::serve(vec![device()]);
    let killed = host.guest(NAME, &[("DIE", "1")]).status().unwrap();
    assert!(!killed.success());
    host.run(NAME, &[]);
    host.assert_nothing_allocated();
}
