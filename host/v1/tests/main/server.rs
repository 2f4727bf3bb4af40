//! Tests of the mediator's end of its socket, against recorded bytes and against devices.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use vgpu_device_v1::{Client, Mediator, MediatorRules, Properties, Server, USER_CLIENTS_MAX};
use vgpu_host_testing::guest::PATIENCE;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::registers as reg;

use crate::driver::{bare, null, pattern, soft, wide};
use crate::frames::{Recorded, device, folder, frame, head, listen, result};

#[test]
fn the_mediator_answers_as_the_examples_say() {
    let mediator = Mediator::new(soft(), MediatorRules::default()).unwrap();
    let (_dir, path, _server) = listen(&mediator);
    let mut device = Recorded(UnixStream::connect(&path).unwrap());
    device.0.set_read_timeout(Some(PATIENCE)).unwrap();

    device.says(&frame(1, 0x30, 7, &[4096, 0, 0, 0], &[]));
    let mut answer = [0; 112];
    device.0.read_exact(&mut answer).unwrap();
    let address = u64::from_le_bytes(answer[48..56].try_into().unwrap());
    assert_eq!(answer[..], result(1, 7, 0, &[address], &[])[..]);
    let (low, high) = (address as u32, (address >> 32) as u32);

    // Frames that arrive in pieces, and two at once.
    let data = pattern(1, 16);
    let copy = frame(2, 0x32, 8, &[low, high, 16, 0], &data);
    for piece in copy.chunks(17) {
        device.says(piece);
    }
    device.expects(&result(2, 8, 0, &[], &[]));
    let back = frame(3, 0x33, 9, &[low, high, 16, 0], &[]);
    let unknown = frame(4, 0x19, 10, &[], &[]);
    device.says(&[back, unknown].concat());
    device.expects(&result(3, 9, 0, &[], &data));
    device.expects(&result(4, 10, 801, &[], &[]));
    let owner = &mediator.owners()[0];
    assert_eq!((owner.channel, owner.process, owner.allocated), (10, 1234, 4096));
}

/// Returns everything that the mediator sends on a connection with these first bytes, until it hangs up.
fn reaction(path: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The mediator may hang up before everything is sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer);
    assert!(end.is_ok() || end.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset, "it hangs up");
    answer
}

#[test]
fn the_mediator_hangs_up_on_what_is_no_call() {
    let mediator = Mediator::new(null(), MediatorRules::new(None, [66])).unwrap();
    let (_dir, path, _server) = listen(&mediator);
    let good = frame(1, 0x01, 1, &[], &[]);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    for (what, bytes) in [
        ("a frame's magic", with(0, 0)),
        ("a call's magic", with(24, 0)),
        ("17 arguments", with(24 + 16, 17)),
        ("more data than there is", with(24 + 20, 1)),
        ("less data than there is", [&head(0x10, 1, 89)[..], &good[24..], &[0]].concat()),
        ("a call shorter than its head", [&head(0x10, 1, 87)[..], &good[24..111]].concat()),
        ("more payload than any call (Q13)", head(0x10, 1, 88 + (8 << 20) + 1)),
        ("a result", with(4, 0x11)),
        ("data", with(4, 0x12)),
        ("a legacy request", with(4, 1)),
    ] {
        assert!(reaction(&path, &bytes).is_empty(), "{what}");
    }
    assert_eq!(reaction(&path, &head(3, 5, 0)), head(4, 5, 0), "a question is answered, then it hangs up");
    assert_eq!(reaction(&path, &[good.clone(), head(3, 5, 0)].concat()).len(), 112, "not after a call");
    assert_eq!(reaction(&path, &with(8, 66)), {
        let mut word = head(6, 1, 0);
        word[8] = 66;
        word
    });
    assert!(mediator.owners().iter().all(|owner| owner.channel != 66));
}

#[test]
fn machines_that_call_too_often_are_turned_away_and_others_not() {
    let mediator = Mediator::new(null(), MediatorRules::new(Some(1), [])).unwrap();
    let (_dir, path, _server) = listen(&mediator);
    let mut guest = device(&path);
    let start = Instant::now();
    let error = loop {
        let done = guest.call(Op::Init, &[], &[]);
        if done.status == reg::ERROR {
            break done.error;
        }
        assert!(start.elapsed() < PATIENCE, "it is never too often");
    };
    assert_eq!(error, 0x0a);
    let mut other = bare(Properties { vm_id: 11, ..Properties::default() });
    other.device.attach(Box::new(Client::connect(&path, other.device.inlet())));
    other.call(Op::Init, &[], &[]).one();
    // The rate admits the call again after a while.
    while guest.call(Op::Init, &[], &[]).status == reg::ERROR {
        assert!(start.elapsed() < PATIENCE, "it is turned away for good");
    }
}

#[test]
fn both_ends_together_and_a_mediator_that_restarts() {
    let dir = folder();
    let path = dir.path().join("m.sock");
    let mut guest = device(&path);
    let done = guest.call(Op::Init, &[], &[]);
    assert_eq!((done.status, done.error), (reg::ERROR, 3), "none yet");
    for _ in 0..2 {
        let mediator = Mediator::new(soft(), MediatorRules::default()).unwrap();
        let server = Server::start(&path, &mediator).unwrap();
        assert!(Server::start(&path, &mediator).is_err(), "one at a time");
        let address = guest.alloc(1 << 20);
        let data = pattern(1, 1 << 20);
        guest.put(address, &data).nothing();
        assert!(guest.get(address, 1 << 20) == data);
        assert_eq!(guest.get(address + 5, 700), data[5..705]);
        drop(server);
        let done = guest.call(Op::MemcpyDtoH, &wide(&[address, 16]), &[]);
        assert_eq!((done.status, done.error), (reg::ERROR, 3));
    }
}

#[test]
fn a_client_that_is_stuck_stops_nobody() {
    let mediator = Mediator::new(null(), MediatorRules::default()).unwrap();
    let (_dir, path, _server) = listen(&mediator);
    let mut stuck: Vec<UnixStream> = Vec::new();
    for bytes in [&frame(1, 0x30, 1, &[1, 0], &[])[..50], &head(0x10, 1, 88 + (8 << 20))[..], &[]] {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(bytes).unwrap();
        stuck.push(stream);
    }
    // A client that requests much and reads none of it.
    let mut greedy = UnixStream::connect(&path).unwrap();
    greedy.write_all(&frame(1, 0x30, 1, &[8 << 20, 0], &[])).unwrap();
    let mut answer = [0; 112];
    greedy.read_exact(&mut answer).unwrap();
    let address = u64::from_le_bytes(answer[48..56].try_into().unwrap());
    greedy.write_all(&frame(2, 0x33, 2, &wide(&[address, 8 << 20]), &[])).unwrap();
    let mut guest = device(&path);
    for _ in 0..100 {
        guest.call(Op::Init, &[], &[]).one();
    }
    drop(greedy);
    drop(stuck);
}

#[test]
fn there_are_so_many_clients_and_no_more() {
    let mediator: Arc<Mediator> = Mediator::new(null(), MediatorRules::default()).unwrap();
    let (_dir, path, _server) = listen(&mediator);
    let ask = |stream: &mut UnixStream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = [0; 112];
        stream.write_all(&frame(1, 0x01, 1, &[], &[])).and_then(|()| stream.read_exact(&mut answer)).is_ok()
    };
    let mut streams: Vec<UnixStream> =
        (0..USER_CLIENTS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
    assert!(streams.iter_mut().all(ask));
    assert!(!ask(&mut UnixStream::connect(&path).unwrap()), "turned away");
    drop(streams.pop());
    let start = Instant::now();
    while !ask(&mut UnixStream::connect(&path).unwrap()) {
        assert!(start.elapsed() < PATIENCE, "a place becomes free");
    }
}

#[test]
fn what_a_dead_mediator_left_is_removed_and_nothing_else() {
    let dir = folder();
    let path = dir.path().join("m.sock");
    let mediator = Mediator::new(null(), MediatorRules::default()).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = Server::start(&path, &mediator).unwrap();
    device(&path).call(Op::Init, &[], &[]).one();
    drop(server);
    assert!(!path.exists());
    std::fs::write(&path, "somebody's").unwrap();
    assert!(Server::start(&path, &mediator).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's");
}
