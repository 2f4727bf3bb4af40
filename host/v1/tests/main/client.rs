//! Tests of the device's end of the mediator's socket, against recorded bytes.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use vgpu_device_v1::{Client, Properties};
use vgpu_host_testing::guest::PATIENCE;
use vgpu_wire::v1::registers as reg;

use crate::driver::{bare, pattern};
use crate::frames::{Recorded, device, frame, head, result, socket};

#[test]
fn the_device_sends_what_the_examples_say() {
    let (_dir, path, listener) = socket();
    let mut guest = device(&path);
    let mut mediator = Recorded::accept(&listener);
    let address = 0x7f12_3456_7000_u64;
    let (low, high) = (0x3456_7000, 0x7f12);

    // cuMemAlloc(4096)
    guest.submit(0x30, &[4096, 0, 0, 0], 0);
    mediator.expects(&frame(1, 0x30, 1, &[4096, 0, 0, 0], &[]));
    mediator.says(&result(1, 1, 0, &[address], &[]));
    assert_eq!(guest.wait().one(), address);

    // 16 bytes to the device
    let data = pattern(1, 16);
    guest.put_inline(&data);
    guest.submit(0x32, &[low, high, 16, 0], 16);
    mediator.expects(&frame(2, 0x32, 2, &[low, high, 16, 0], &data));
    mediator.says(&result(2, 2, 0, &[], &[]));
    guest.wait().nothing();

    // 1 MiB through a window of 4 MiB
    let data = pattern(2, 1 << 20);
    assert_eq!(guest.register(0x10_0000, 4 << 20), reg::DONE);
    guest.put_ram(0x10_0000, &data);
    guest.submit(0x32, &[low, high, 0x10_0000, 0], 0x10_0000);
    mediator.expects(&frame(3, 0x32, 3, &[low, high, 0x10_0000, 0], &data));
    mediator.says(&result(3, 3, 0, &[], &[]));
    guest.wait().nothing();

    // 64 KiB back through the same window, in three pieces
    let data = pattern(3, 64 << 10);
    guest.submit(0x33, &[low, high, 0x1_0000, 0], 0);
    mediator.expects(&frame(4, 0x33, 4, &[low, high, 0x1_0000, 0], &[]));
    let answer = result(4, 4, 0, &[], &data);
    mediator.says(&answer[..10]);
    mediator.says(&answer[10..200]);
    assert_eq!(guest.read(reg::STATUS), reg::BUSY);
    mediator.says(&answer[200..]);
    let done = guest.wait();
    assert_eq!(done.data_len, 0x1_0000);
    done.ok();
    assert!(guest.get_ram(0x10_0000 + (2 << 20), 64 << 10) == data);

    // A module of 3000 bytes in the original guest's pieces
    let image = pattern(4, 3000);
    for (index, (piece, chunk)) in image.chunks(1024).zip([1, 4, 2]).enumerate() {
        let mut args = [0; 16];
        args[14] = chunk;
        let (request, seq) = (5 + index as u8, 5 + index as u8);
        guest.put_inline(piece);
        guest.submit(0x40, &args, piece.len());
        mediator.expects(&frame(request, 0x40, seq, &args, piece));
        let results: &[u64] = if chunk == 2 { &[0x5555_0000_0010] } else { &[] };
        mediator.says(&result(request, seq, 0, results, &[]));
        assert_eq!(guest.wait().ok(), results);
    }

    // An unknown call is sent, too. The sequence number is not checked if the request matches.
    guest.submit(0x19, &[], 0);
    mediator.expects(&frame(8, 0x19, 8, &[], &[]));
    mediator.says(&result(8, 8, 801, &[], &[]));
    assert_eq!(guest.wait().failed(), 801);

    // The mediator ends, and none takes its place.
    drop((mediator, listener));
    std::fs::remove_file(&path).unwrap();
    guest.submit(0x30, &[4096, 0, 0, 0], 0);
    let done = guest.collect();
    assert_eq!((done.status, done.error), (reg::ERROR, 3), "at once");
}

#[test]
fn what_a_mediator_may_send_is_taken_and_what_not_is_dropped() {
    let (_dir, path, listener) = socket();
    let mut guest = device(&path);
    let mut mediator = Recorded::accept(&listener);
    guest.submit(0x3b, &[], 0);
    mediator.expects(&frame(1, 0x3b, 1, &[], &[]));
    // A question is answered, an unknown frame is ignored, and several frames arrive at once.
    let ping = head(3, 9, 0);
    let unknown = [&head(0x12, 1, 4)[..], &[1, 2, 3, 4]].concat();
    mediator.says(&[&unknown[..], &ping, &result(7, 1, 0, &[1, 1], &[]), &ping].concat());
    mediator.expects(&head(4, 9, 0));
    mediator.expects(&head(4, 9, 0));
    assert_eq!(guest.read(reg::STATUS), reg::BUSY);
    // Invalid bytes discard everything that arrived with them.
    mediator.says(&[&[0xff; 40][..], &result(1, 1, 0, &[1, 1], &[])].concat());
    // They also discard what the device reads at the same time: the test waits until it has read on.
    mediator.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let start = Instant::now();
    let mut pong = [0; 24];
    loop {
        mediator.says(&ping);
        if mediator.0.read_exact(&mut pong).is_ok() {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "the device is deaf");
    }
    assert_eq!(pong[..], head(4, 9, 0));
    assert_eq!(guest.read(reg::STATUS), reg::BUSY);
    mediator.says(&result(1, 1, 0, &[3, 4], &[]));
    assert_eq!(guest.wait().ok(), [3, 4]);
}

#[test]
fn a_mediator_that_turns_calls_away_and_comes_back() {
    let (_dir, path, listener) = socket();
    let mut guest = device(&path);
    for (kind, error) in [(5, 0x0a), (6, 0x0b)] {
        let mut mediator = Recorded::accept(&listener);
        guest.submit(1, &[], 0);
        mediator.0.read_exact(&mut [0; 112]).unwrap();
        mediator.says(&head(kind, 0, 0));
        drop(mediator);
        let done = guest.wait();
        assert_eq!((done.status, done.error, done.code), (reg::ERROR, error, 0));
        // The next doorbell finds the connection closed and makes a new one, once its end has been noticed.
        guest.ring();
    }
    // The mediator hangs up within a call.
    let mediator = Recorded::accept(&listener);
    assert_eq!(guest.read(reg::STATUS), reg::BUSY);
    drop(mediator);
    let done = guest.wait();
    assert_eq!((done.status, done.error), (reg::ERROR, 3));
}

#[test]
fn a_mediator_that_takes_nothing_is_given_up() {
    let (_dir, path, listener) = socket();
    let mut guest = bare(Properties { vm_id: 10, ..Properties::default() });
    let limit = Duration::from_millis(300);
    guest.device.attach(Box::new(Client::with_limit(&path, guest.device.inlet(), limit)));
    let _mediator = Recorded::accept(&listener);
    guest.put_bar1(0, &pattern(1, 8 << 20));
    guest.submit(0x32, &[], 8 << 20);
    let done = guest.wait();
    assert_eq!((done.status, done.error), (reg::ERROR, 3));
    assert_eq!(guest.bar1(0xff_fffc, 4), [1, 0, 0, 0], "Q5");
}

/// A doorbell is a register access, and no register access waits for work: it returns before a mediator has
/// received the call. Later calls, of processes that did not wait for theirs, are sent whole and in order, or
/// are refused at once if too many bytes are queued.
#[test]
fn a_doorbell_does_not_wait_until_the_mediator_has_taken_the_call() {
    let (_dir, path, listener) = socket();
    let mut guest = device(&path);
    let mut mediator = Recorded::accept(&listener);
    let data = pattern(1, 8 << 20);
    guest.put_bar1(0, &data);
    let args = [0, 0, 8 << 20, 0];
    // Nothing reads the bytes, so a doorbell that waited for the mediator would fail by its time limit.
    let mut taken = 0;
    loop {
        guest.submit(0x32, &args, 8 << 20);
        if guest.read(reg::STATUS) != reg::BUSY {
            break;
        }
        taken += 1;
        assert!(taken < 100, "the device keeps whatever a guest rings");
    }
    assert!(taken >= 2, "{taken}");
    let done = guest.collect();
    assert_eq!((done.status, done.error), (reg::ERROR, 3), "turned away at once");
    for number in 1..=taken {
        mediator.expects(&frame(number, 0x32, number, &args, &data));
    }
    // Once the bytes have been sent, the device accepts calls again.
    let start = Instant::now();
    loop {
        guest.submit(0x3b, &[], 0);
        if guest.read(reg::STATUS) == reg::BUSY {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "no call is sent any more");
    }
    let mut call = [0; 24 + 88];
    mediator.0.read_exact(&mut call).unwrap();
    assert_eq!(call[28], 0x3b);
    mediator.says(&result(call[12], call[32], 0, &[3, 4], &[]));
    assert_eq!(guest.wait().ok(), [3, 4]);
}

#[test]
fn a_mediator_that_takes_no_connection_is_not_waited_for() {
    let (_dir, path, _listener) = socket();
    let mut guest = bare(Properties { vm_id: 10, ..Properties::default() });
    // Fills the listen queue, so that no further connection is possible.
    let _waiting: Vec<_> = std::iter::from_fn(|| waits_to_be_taken(&path)).collect();
    guest.device.attach(Box::new(Client::connect(&path, guest.device.inlet())));
    guest.submit(1, &[], 0);
    let done = guest.collect();
    assert_eq!((done.status, done.error), (reg::ERROR, 3));
}

/// Opens a connection that waits to be accepted. Returns `None` if the listen queue is full.
fn waits_to_be_taken(path: &Path) -> Option<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).is_ok().then_some(socket)
}
