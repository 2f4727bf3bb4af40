//! Other processes of a test: this test program, started again in one role.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vgpu_device::{DeviceConfig, SimBus};
use vgpu_transport::{Device, Session, SessionError};
use vgpu_transport_bed::{
    allocate, attach_in, echo, functions, heard, listen_to_notices, null, pattern, say, signal, soft, stay,
};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::session::Echo;
use zerocopy::FromZeros;

/// Entry point of the other processes, which is not a test itself.
#[test]
fn part() {
    let (Ok(part), Some(dir)) = (std::env::var("VGPU_TEST_PART"), std::env::var_os("VGPU_TEST_DIR")) else {
        return;
    };
    let dir = PathBuf::from(dir);
    match part.as_str() {
        "device-soft" | "device-null" => device(&dir, &part),
        "idle" => {
            let _session = attach_in(&dir);
            say("ready");
            stay();
        }
        "exit" => {
            let session = attach_in(&dir);
            echo(&session, 1);
            // The end of the process, not of the value, is what ends the session.
            std::mem::forget(session);
            say("ready");
            stay();
        }
        "memory" => {
            let session = attach_in(&dir);
            allocate(&session, 64 << 20);
            let _pinned = session.window_alloc(32 << 20).unwrap().unwrap();
            say("ready");
            stay();
        }
        "exit-busy" => exit_busy(&dir, false),
        "exit-closing" => exit_busy(&dir, true),
        "sending" => sending(&dir),
        "copying" => copying(&dir),
        "waiting" => waiting(&dir),
        "closing" => closing(&dir),
        "daemon" => daemon(&dir),
        "parent" => parent(&dir),
        "one-processor" => one_processor(&dir),
        other => panic!("there is no part {other}"),
    }
}

fn device(dir: &Path, part: &str) {
    let executor = if part == "device-soft" { soft("another process") } else { null() };
    let config = DeviceConfig::new("0000:00:05.0".parse().unwrap(), executor);
    let _bus = SimBus::serve(dir, vec![config]).unwrap();
    say("ready");
    stay();
}

/// Sends messages as fast as possible.
fn sending(dir: &Path) {
    let session = attach_in(dir);
    let mut launch = Launch::new_zeroed();
    (launch.function, launch.grid, launch.block, launch.param_bytes) = (1, [1; 3], [1; 3], 100);
    for count in 0u64.. {
        session.send(&launch, &[&[0; 100]]).unwrap();
        if count == 10_000 {
            say("ready");
        }
    }
}

/// Uploads and downloads in a loop.
fn copying(dir: &Path) {
    let session = attach_in(dir);
    let address = allocate(&session, 16 << 20);
    let source = pattern(3, 16 << 20);
    let mut target = vec![0; 16 << 20];
    for count in 0u64.. {
        // SAFETY: the vector has that many bytes.
        unsafe { session.copy_in(0, address, source.as_ptr(), source.len()) }.unwrap();
        // SAFETY: the vector has that many bytes and is used by nobody else.
        unsafe { session.copy_out(0, address, target.as_mut_ptr(), target.len()) }.unwrap();
        if count == 2 {
            say("ready");
        }
    }
}

/// Exits while other threads use the session. With `closing`, closes the session first, as an exit handler
/// would.
fn exit_busy(dir: &Path, closing: bool) {
    let session: &Session = Box::leak(Box::new(attach_in(dir)));
    let address = allocate(session, 1 << 20);
    std::thread::spawn(|| {
        let word = session.word().unwrap();
        while session.send(&signal(word.mark()), &[]).is_ok() {}
    });
    std::thread::spawn(|| {
        let word = session.word().unwrap();
        let _ = session.wait(word.index(), 1);
    });
    std::thread::spawn(|| {
        let mut reply = [0; 8];
        while session.call(Echo { reply: 0, reserved: 0, cookie: 1 }, &[], &mut reply).is_ok() {}
    });
    std::thread::spawn(move || {
        let mut bytes = vec![1u8; 1 << 20];
        // SAFETY: the vector has that many bytes.
        while unsafe { session.copy_in(0, address, bytes.as_ptr(), bytes.len()) }.is_ok() {
            // SAFETY: the vector has that many bytes and is used by nobody else.
            let _ = unsafe { session.copy_out(0, address, bytes.as_mut_ptr(), bytes.len()) };
        }
    });
    say("ready");
    std::thread::sleep(Duration::from_millis(50));
    if closing {
        session.close();
    }
    std::process::exit(7);
}

/// Waits in several threads for values that are never reached.
fn waiting(dir: &Path) {
    let session = attach_in(dir);
    let asleep = session.counters().sleeps;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let word = session.word().unwrap();
                let _ = session.wait(word.index(), 1);
            });
        }
        while session.counters().sleeps < asleep + 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        say("ready");
    });
}

/// Closes every descriptor except the standard ones, as some programs do, and continues.
fn closing(dir: &Path) {
    listen_to_notices();
    let session = attach_in(dir);
    let word = session.word().unwrap();
    echo(&session, 1);
    // SAFETY: the program's own descriptors above the standard ones are the transport's alone.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    // Waits until the next examination of the device.
    let opened = || heard("0000:00:05.0: the program closed a descriptor of the device, opened it again");
    let end = Instant::now() + Duration::from_mins(1);
    let mut cookie = 0;
    while !opened() && Instant::now() < end {
        cookie += 1;
        echo(&session, cookie);
        let mark = word.mark();
        session.send(&signal(mark), &[]).unwrap();
        session.wait(mark.word, mark.value).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(opened());
    say("ready");
    stay();
    echo(&session, 7);
    say("fine");
    // A second session of the same process finds the file open again.
    assert_ne!(session.channel(), attach_in(dir).channel());
    session.close();
    let lost = session.send(&signal(word.mark()), &[]);
    assert_eq!(lost, Err(SessionError::Closed));
}

/// Closes every descriptor except the standard ones, as daemons do, and calls nothing any more.
fn daemon(dir: &Path) {
    let session = attach_in(dir);
    echo(&session, 1);
    // SAFETY: the program's own descriptors above the standard ones are the transport's alone.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    say("ready");
    stay();
}

/// Has a child that outlives it, and reports the child's number.
fn parent(dir: &Path) {
    let session = attach_in(dir);
    echo(&session, 1);
    // SAFETY: the child makes system calls only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // The test would wait for the end of the child's output.
        // SAFETY: the standard descriptors are this process's own.
        unsafe { libc::syscall(libc::SYS_close_range, 0, 2, 0) };
        loop {
            // SAFETY: waits for the signal that ends the process.
            unsafe { libc::pause() };
        }
    }
    say("ready");
    say(&child.to_string());
    stay();
}

/// Uses a session on one processor, where no thread may spin.
fn one_processor(dir: &Path) {
    // SAFETY: a bit set, for which zeros are a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: processor 0 is within the set.
    unsafe { libc::CPU_SET(0, &mut set) };
    // SAFETY: the kernel reads the set.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) }, 0);
    let session = Session::attach(Device::open(&functions(dir)[0], None).unwrap()).unwrap();
    for cookie in 0..500 {
        echo(&session, cookie);
    }
    let counters = session.counters();
    assert_eq!(counters.waits, counters.sleeps, "no wait spins");
    say("ready");
}
