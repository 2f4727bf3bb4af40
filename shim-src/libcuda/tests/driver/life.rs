//! Tests of processes: forks, exits at any time, threads, and a device that goes away.

use std::process::Stdio;
use std::time::{Duration, Instant};

use vgpu_abi::driver::{CUcontext, CUstream};

use crate::host::{Host, finish, is_guest, null, soft, with_device};
use vgpu_conformance::calls::*;

fn device() -> vgpu_device::DeviceConfig {
    soft("0000:00:05.0", |_| ())
}

/// Runs `child` in a forked process and returns its exit code.
fn forked(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls the driver, which answers without locks there, and leaves by `_exit` or `exit`.
    match unsafe { libc::fork() } {
        0 => {
            let code = child();
            // SAFETY: ends the child, with its exit handlers.
            unsafe { libc::exit(code) }
        }
        process => {
            let mut status = 0;
            // SAFETY: waits for the child that was just made.
            assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
            assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
            libc::WEXITSTATUS(status)
        }
    }
}

#[test]
fn a_forked_child_is_not_initialised() {
    with_device("life::a_forked_child_is_not_initialised", device, || {
        begin();
        let address = alloc(1 << 20);
        let data = random(1 << 20);
        upload(address, &data);
        for _ in 0..3 {
            let code = forked(|| {
                let mut value = 0;
                let mut place = 0;
                let context = CUcontext(0);
                let answers = [
                    cu!(cuInit(0)),
                    cu!(cuDeviceGetCount(&raw mut value)),
                    cu!(cuCtxSetCurrent(context)),
                    cu!(cuMemAlloc_v2(&raw mut place, 100)),
                    cu!(cuMemFree_v2(address)),
                    cu!(cuCtxSynchronize()),
                    cu!(cuStreamSynchronize(CUstream(0))),
                    cu!(cuDriverGetVersion(&raw mut value)),
                    // SAFETY: no arguments.
                    unsafe { (table().life)() }.0,
                ];
                if answers.iter().all(|&answer| answer == 3) { 11 } else { 12 }
            });
            assert_eq!(code, 11);
            assert!(download(address, 1 << 20) == data, "the parent's session lives on");
        }
        // SAFETY: no arguments.
        assert_eq!(unsafe { (table().life)() }.0, 0);
    });
}

#[test]
fn a_child_of_a_process_that_only_looked_is_told_too() {
    with_device("life::a_child_of_a_process_that_only_looked_is_told_too", device, || {
        assert_eq!(get!(i32, cuDriverGetVersion()), 13_000);
        let code = forked(|| {
            let answers =
                [cu!(cuInit(0)), fails!(i32, cuDriverGetVersion()), fails!(i32, cuDeviceGetCount())];
            i32::from(answers == [3; 3])
        });
        assert_eq!(code, 1);
        begin();
        ok!(cuMemFree_v2(alloc(64)));
    });
}

/// Registered before the driver's own handler, so it runs after that: everything answers that it is over.
extern "C" fn late() {
    let mut count = 0;
    let answers = [
        cu!(cuInit(0)),
        cu!(cuDeviceGetCount(&raw mut count)),
        cu!(cuCtxSynchronize()),
        fails!(u64, cuMemAlloc_v2(100)),
        fails!(i32, cuDriverGetVersion()),
        // SAFETY: no arguments.
        unsafe { (table().life)() }.0,
    ];
    // SAFETY: ends the process here and now.
    unsafe { libc::_exit(if answers == [4; 6] { 41 } else { 42 }) };
}

#[test]
fn the_end_of_a_process_is_clean() {
    const NAME: &str = "life::the_end_of_a_process_is_clean";
    if is_guest(NAME) {
        let how = std::env::var("HOW").unwrap();
        if how == "late" {
            // SAFETY: a function of this process.
            assert_eq!(unsafe { libc::atexit(late) }, 0);
        }
        let context = begin();
        let address = alloc(1 << 20);
        let threads = if how == "busy" { 4 } else { 0 };
        for _ in 0..threads {
            std::thread::spawn(move || {
                // Until the process is gone, or the driver says that it goes.
                let data = random(100_000);
                let mut back = vec![0; 100_000];
                if cu!(cuCtxSetCurrent(context)) != 0 {
                    return;
                }
                loop {
                    let answers = [
                        cu!(cuMemcpyHtoD_v2(address, data.as_ptr().cast(), data.len())),
                        cu!(cuMemsetD8Async(address, 1, 1000, CUstream(2))),
                        cu!(cuStreamSynchronize(CUstream(2))),
                        cu!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), address, back.len())),
                        cu!(cuCtxSynchronize()),
                    ];
                    assert!(answers.iter().all(|answer| matches!(answer, 0 | 4)), "{answers:?}");
                }
            });
        }
        std::thread::sleep(Duration::from_millis(if how == "busy" { 30 } else { 0 }));
        // SAFETY: ends the process, with its exit handlers.
        unsafe { libc::exit(40) };
    }
    let host = Host::serve(vec![device()]);
    for (how, code, rounds) in [("plain", 40, 1), ("late", 41, 1), ("busy", 40, 15)] {
        for _ in 0..rounds {
            let mut guest = host.guest(NAME, &[("HOW", how)]).spawn().unwrap();
            let begin = Instant::now();
            let status = guest.wait().unwrap();
            assert_eq!(status.code(), Some(code), "{how}: {status}");
            assert!(begin.elapsed() < Duration::from_mins(1));
            host.assert_nothing_allocated();
        }
    }
}

#[test]
fn a_device_that_goes_away_is_told() {
    const NAME: &str = "life::a_device_that_goes_away_is_told";
    if is_guest(NAME) {
        begin();
        let address = alloc(1 << 20);
        std::fs::write(std::env::var_os("READY").unwrap(), "").unwrap();
        let begin = Instant::now();
        let code = loop {
            let status = cu!(cuCtxSynchronize());
            if status != 0 {
                break status;
            }
            assert!(begin.elapsed() < Duration::from_mins(2));
        };
        assert_eq!(code, 46);
        for _ in 0..2 {
            assert_eq!(cu!(cuMemsetD8_v2(address, 0, 16)), 46, "and stays so");
            assert_eq!(fails!(u64, cuMemAlloc_v2(16)), 46);
            assert_eq!(cu!(cuStreamSynchronize(CUstream(0))), 46);
        }
        assert_eq!(get!(i32, cuDeviceGetCount()), 1, "state is still known");
        return;
    }
    // One whose user asked for nothing, and one whose user asked for silence.
    let mut host = Host::serve(vec![device()]);
    let [unasked, silent] = ["unasked", "silent"].map(|who| {
        let ready = host.path().join(who);
        let mut guest = host.guest(NAME, &[("READY", ready.to_str().unwrap())]);
        if who == "unasked" {
            guest.env_remove("VGPU_LOG");
        }
        let guest = guest.stderr(Stdio::piped()).spawn().unwrap();
        while !ready.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        guest
    });
    host.bus = None;
    let said = [unasked, silent].map(|guest| {
        let output = guest.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {text}", output.status);
        text
    });
    let line = "vgpu-run: 0000:00:05.0: the device is gone: its register socket is closed. \
                To find out what is wrong: vgpu-run check\n";
    assert_eq!(said, [line, ""]);
}

#[test]
fn many_processes_at_once() {
    const NAME: &str = "life::many_processes_at_once";
    if is_guest(NAME) {
        begin();
        for round in 0..10 {
            let bytes = 10_000 + round * 50_000;
            let data = random(bytes);
            let address = alloc(bytes);
            upload(address, &data);
            assert!(download(address, bytes) == data);
            ok!(cuMemFree_v2(address));
        }
        return;
    }
    let host = Host::serve(vec![device(), null("0000:00:06.0", |_| ())]);
    let guests: Vec<_> = (0..8).map(|_| host.guest(NAME, &[]).spawn().unwrap()).collect();
    guests.into_iter().for_each(finish);
    host.assert_nothing_allocated();
}

#[test]
fn nothing_is_printed() {
    const NAME: &str = "life::nothing_is_printed";
    if is_guest(NAME) {
        begin();
        let address = alloc(100);
        assert_eq!(cu!(cuMemFree_v2(address + 1)), 1);
        assert_eq!(cu!(cuModuleLoadData(std::ptr::null_mut(), c"x".as_ptr().cast())), 1);
        assert_eq!(fails!(vgpu_abi::driver::CUmodule, cuModuleLoadData(c"x".as_ptr().cast())), 200);
        return;
    }
    let host = Host::serve(vec![device()]);
    let quiet = host.guest(NAME, &[]).output().unwrap();
    assert!(quiet.status.success());
    assert_eq!(String::from_utf8_lossy(&quiet.stderr), "");
    let loud = host.guest(NAME, &[("VGPU_LOG", "info")]).output().unwrap();
    let text = String::from_utf8_lossy(&loud.stderr);
    assert!(text.contains("found device 0000:00:05.0") && text.contains("refused"), "{text}");
}
