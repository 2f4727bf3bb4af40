//! Both ends of the mediator's socket, each against recorded bytes, and against each other.
//!
//! The recorded frames were written by hand from the worked examples of the protocol's description.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use vgpu_device::v1::{Client, Mediator, Properties, Rules, Server, USER_CLIENTS_MAX};
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::registers as reg;

use crate::driver::{Guest, PATIENCE, bare, null, pattern, soft, wide};

/// Head of a frame: magic, kind, machine 10, request, pool A, priority 1, length.
fn head(kind: u8, request: u8, bytes: u32) -> Vec<u8> {
    let mut head = vec![0x55, 0x50, 0x47, 0x56, kind, 0, 0, 0, 10, 0, 0, 0, request, 0, 0, 0, b'A', 1, 0, 0];
    head.extend(bytes.to_le_bytes());
    head
}

/// Head of a call of process 1234 of machine 10.
fn call(op: u8, seq: u8, args: &[u32], bytes: u32) -> Vec<u8> {
    let mut call = vec![0x55, 0x50, 0x47, 0x56, op, 0, 0, 0, seq, 0, 0, 0, 0xd2, 0x04, 0, 0x0a];
    call.extend((args.len() as u32).to_le_bytes());
    call.extend(bytes.to_le_bytes());
    call.extend(args.iter().flat_map(|arg| arg.to_le_bytes()));
    call.resize(88, 0);
    call
}

/// A call's whole frame.
fn frame(request: u8, op: u8, seq: u8, args: &[u32], data: &[u8]) -> Vec<u8> {
    let bytes = data.len() as u32;
    [&head(0x10, request, 88 + bytes)[..], &call(op, seq, args, bytes), data].concat()
}

/// A result's whole frame.
fn result(request: u8, seq: u8, status: u32, results: &[u64], data: &[u8]) -> Vec<u8> {
    let mut bytes = head(0x11, request, 88 + data.len() as u32);
    bytes.extend([0x55, 0x50, 0x47, 0x56, seq, 0, 0, 0]);
    bytes.extend(status.to_le_bytes());
    bytes.extend((results.len() as u32).to_le_bytes());
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(results.iter().flat_map(|result| result.to_le_bytes()));
    bytes.resize(24 + 88, 0);
    bytes.extend(data);
    bytes
}

fn folder() -> TempDir {
    TempDir::with_prefix_in("vgpu-v1-socket-", "/dev/shm").unwrap()
}

/// A device whose mediator listens at `path`.
fn device(path: &Path) -> Guest {
    let guest = bare(Properties { vm_id: 10, ..Properties::default() });
    guest.device.attach(Box::new(Client::connect(path, guest.device.inlet())));
    guest
}

/// A mediator that is the test.
struct Recorded(UnixStream);

impl Recorded {
    fn accept(listener: &UnixListener) -> Self {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// The device sends these bytes.
    #[track_caller]
    fn expects(&mut self, bytes: &[u8]) {
        let mut found = vec![0; bytes.len()];
        self.0.read_exact(&mut found).unwrap();
        assert!(
            found == bytes,
            "{:02x?}\n{:02x?}",
            &found[..found.len().min(130)],
            &bytes[..bytes.len().min(130)]
        );
    }

    fn says(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }
}

#[test]
fn the_device_sends_what_the_examples_say() {
    let dir = folder();
    let path = dir.path().join("m.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut guest = device(&path);
    let mut mediator = Recorded::accept(&listener);
    let address = 0x7f12_3456_7000_u64;
    let (low, high) = (0x3456_7000, 0x7f12);

    // cuMemAlloc(4096)
    guest.stage(0x30, &[4096, 0, 0, 0], 0);
    guest.ring();
    mediator.expects(&frame(1, 0x30, 1, &[4096, 0, 0, 0], &[]));
    mediator.says(&result(1, 1, 0, &[address], &[]));
    assert_eq!(guest.wait().one(), address);

    // 16 bytes to the device
    let data = pattern(1, 16);
    guest.put_inline(&data);
    guest.stage(0x32, &[low, high, 16, 0], 16);
    guest.ring();
    mediator.expects(&frame(2, 0x32, 2, &[low, high, 16, 0], &data));
    mediator.says(&result(2, 2, 0, &[], &[]));
    guest.wait().nothing();

    // 1 MiB through a window of 4 MiB
    let data = pattern(2, 1 << 20);
    assert_eq!(guest.register(0x10_0000, 4 << 20), reg::DONE);
    guest.put_ram(0x10_0000, &data);
    guest.stage(0x32, &[low, high, 0x10_0000, 0], 0x10_0000);
    guest.ring();
    mediator.expects(&frame(3, 0x32, 3, &[low, high, 0x10_0000, 0], &data));
    mediator.says(&result(3, 3, 0, &[], &[]));
    guest.wait().nothing();

    // 64 KiB back through the same window, in three pieces
    let data = pattern(3, 64 << 10);
    guest.stage(0x33, &[low, high, 0x1_0000, 0], 0);
    guest.ring();
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
        guest.stage(0x40, &args, piece.len());
        guest.ring();
        mediator.expects(&frame(request, 0x40, seq, &args, piece));
        let results: &[u64] = if chunk == 2 { &[0x5555_0000_0010] } else { &[] };
        mediator.says(&result(request, seq, 0, results, &[]));
        assert_eq!(guest.wait().ok(), results);
    }

    // An unknown call; the sequence is not looked at where the request is right
    guest.stage(0x19, &[], 0);
    guest.ring();
    mediator.expects(&frame(8, 0x19, 8, &[], &[]));
    mediator.says(&result(8, 8, 801, &[], &[]));
    assert_eq!(guest.wait().failed(), 801);

    // The mediator goes, and none comes
    drop((mediator, listener));
    std::fs::remove_file(&path).unwrap();
    guest.stage(0x30, &[4096, 0, 0, 0], 0);
    guest.ring();
    let done = guest.collect();
    assert_eq!((done.status, done.error), (reg::ERROR, 3), "at once");
}

#[test]
fn what_a_mediator_may_send_is_taken_and_what_not_is_dropped() {
    let dir = folder();
    let path = dir.path().join("m.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut guest = device(&path);
    let mut mediator = Recorded::accept(&listener);
    guest.stage(0x3b, &[], 0);
    guest.ring();
    mediator.expects(&frame(1, 0x3b, 1, &[], &[]));
    // A question is answered; what is unknown is passed over; several frames at once.
    let ping = head(3, 9, 0);
    let unknown = [&head(0x12, 1, 4)[..], &[1, 2, 3, 4]].concat();
    mediator.says(&[&unknown[..], &ping, &result(7, 1, 0, &[1, 1], &[]), &ping].concat());
    mediator.expects(&head(4, 9, 0));
    mediator.expects(&head(4, 9, 0));
    assert_eq!(guest.read(reg::STATUS), reg::BUSY);
    // Garbage takes everything with it that came along.
    mediator.says(&[&[0xff; 40][..], &result(1, 1, 0, &[1, 1], &[])].concat());
    // So does what the device reads at the same time: it is asked until it has read on.
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
    let dir = folder();
    let path = dir.path().join("m.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut guest = device(&path);
    for (kind, error) in [(5, 0x0a), (6, 0x0b)] {
        let mut mediator = Recorded::accept(&listener);
        guest.stage(1, &[], 0);
        guest.ring();
        mediator.0.read_exact(&mut [0; 112]).unwrap();
        mediator.says(&head(kind, 0, 0));
        drop(mediator);
        let done = guest.wait();
        assert_eq!((done.status, done.error, done.code), (reg::ERROR, error, 0));
        // The next doorbell finds the connection dead and makes a new one, as soon as its end has come through.
        guest.ring();
    }
    // A mediator that hangs up in the middle of a call.
    let mediator = Recorded::accept(&listener);
    assert_eq!(guest.read(reg::STATUS), reg::BUSY);
    drop(mediator);
    let done = guest.wait();
    assert_eq!((done.status, done.error), (reg::ERROR, 3));
}

#[test]
fn a_mediator_that_takes_nothing_is_given_up() {
    let dir = folder();
    let path = dir.path().join("m.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut guest = bare(Properties { vm_id: 10, ..Properties::default() });
    let limit = Duration::from_millis(300);
    guest.device.attach(Box::new(Client::with_limit(&path, guest.device.inlet(), limit)));
    let _mediator = Recorded::accept(&listener);
    guest.put_bar1(0, &pattern(1, 8 << 20));
    guest.stage(0x32, &[], 8 << 20);
    guest.ring();
    let done = guest.wait();
    assert_eq!((done.status, done.error), (reg::ERROR, 3));
    assert_eq!(guest.bar1(0xff_fffc, 4), [1, 0, 0, 0], "Q5");
}

/// "No register access ever waits for work": a doorbell is one, and waits for no mediator to take its call.
/// Calls that follow it, of processes that did not wait for theirs, are sent whole and in order, or refused
/// at once when too much waits.
#[test]
fn a_doorbell_does_not_wait_until_the_mediator_has_taken_the_call() {
    let dir = folder();
    let path = dir.path().join("m.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut guest = device(&path);
    let mut mediator = Recorded::accept(&listener);
    let data = pattern(1, 8 << 20);
    guest.put_bar1(0, &data);
    let args = [0, 0, 8 << 20, 0];
    // Nobody reads a byte of them: a doorbell that waited would have failed when it comes back.
    let mut taken = 0;
    loop {
        guest.stage(0x32, &args, 8 << 20);
        guest.ring();
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
    // Once they have been sent, the device takes calls again.
    let start = Instant::now();
    loop {
        guest.stage(0x3b, &[], 0);
        guest.ring();
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
fn the_mediator_answers_as_the_examples_say() {
    let dir = folder();
    let path = dir.path().join("m.sock");
    let mediator = Mediator::new(soft(), Rules::default()).unwrap();
    let _server = Server::start(&path, &mediator).unwrap();
    let mut device = Recorded(UnixStream::connect(&path).unwrap());
    device.0.set_read_timeout(Some(PATIENCE)).unwrap();

    device.says(&frame(1, 0x30, 7, &[4096, 0, 0, 0], &[]));
    let mut answer = [0; 112];
    device.0.read_exact(&mut answer).unwrap();
    let address = u64::from_le_bytes(answer[48..56].try_into().unwrap());
    assert_eq!(answer[..], result(1, 7, 0, &[address], &[])[..]);
    let (low, high) = (address as u32, (address >> 32) as u32);

    // In pieces, and two at once.
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

/// What the mediator does with a connection whose first bytes these are: everything that it sends until it hangs up.
fn reaction(path: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may hang up before all is sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer);
    assert!(end.is_ok() || end.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset, "it hangs up");
    answer
}

#[test]
fn the_mediator_hangs_up_on_what_is_no_call() {
    let dir = folder();
    let path = dir.path().join("m.sock");
    let mediator = Mediator::new(null(), Rules::new(None, [66])).unwrap();
    let _server = Server::start(&path, &mediator).unwrap();
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
    let dir = folder();
    let path = dir.path().join("m.sock");
    let mediator = Mediator::new(null(), Rules::new(Some(5), [])).unwrap();
    let _server = Server::start(&path, &mediator).unwrap();
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
    // Tried again, it is taken some time.
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
        let mediator = Mediator::new(soft(), Rules::default()).unwrap();
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
    let dir = folder();
    let path = dir.path().join("m.sock");
    let mediator = Mediator::new(null(), Rules::default()).unwrap();
    let _server = Server::start(&path, &mediator).unwrap();
    let mut stuck: Vec<UnixStream> = Vec::new();
    for bytes in [&frame(1, 0x30, 1, &[1, 0], &[])[..50], &head(0x10, 1, 88 + (8 << 20))[..], &[]] {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(bytes).unwrap();
        stuck.push(stream);
    }
    // One that asks for much and takes nothing of it.
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
    let dir = folder();
    let path = dir.path().join("m.sock");
    let mediator: Arc<Mediator> = Mediator::new(null(), Rules::default()).unwrap();
    let _server = Server::start(&path, &mediator).unwrap();
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
    let mediator = Mediator::new(null(), Rules::default()).unwrap();
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

#[test]
fn a_mediator_that_takes_no_connection_is_not_waited_for() {
    let dir = folder();
    let path = dir.path().join("m.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let mut guest = bare(Properties { vm_id: 10, ..Properties::default() });
    // Until there is no room for more that wait to be taken.
    let _waiting: Vec<_> = std::iter::from_fn(|| waits_to_be_taken(&path)).collect();
    guest.device.attach(Box::new(Client::connect(&path, guest.device.inlet())));
    guest.stage(1, &[], 0);
    guest.ring();
    let done = guest.collect();
    assert_eq!((done.status, done.error), (reg::ERROR, 3));
}

/// A connection that waits to be taken; none: there is no room.
fn waits_to_be_taken(path: &Path) -> Option<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).is_ok().then_some(socket)
}
