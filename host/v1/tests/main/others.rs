//! Tests that no machine blocks another: not by work that never ends, not by what it leaves when it hangs up,
//! and not by idle connections.

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use vgpu_device::Executor;
use vgpu_device_v1::{Client, Mediator, MediatorSettings, Properties, Server, USER_CLIENTS_MAX, Verdict};
use vgpu_host_testing::guest::{PATIENCE, until};
use vgpu_host_testing::parking::{ParkAt, Parking};
use vgpu_wire::Body;
use vgpu_wire::v1::call::{OWNERS_MAX, Op};
use vgpu_wire::v1::frame::{CUDA_CALL, Call, Header, MAGIC, Outcome};
use vgpu_wire::v1::owner;
use vgpu_wire::v1::registers as reg;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::driver::{Guest, bare, null, pattern, soft, wide, with};
use crate::frames::{folder, listen};

/// Makes a machine whose device reaches the mediator by its socket.
fn machine(path: &Path, vm_id: u32) -> Guest {
    let guest = bare(Properties { vm_id, ..Properties::default() });
    guest.device.attach(Box::new(Client::connect(path, guest.device.inlet())));
    guest
}

/// Makes a mediator whose executor parks every fill, so that its call does not end.
fn parked(executor: Arc<dyn Executor>, settings: MediatorSettings) -> (Arc<Parking>, Arc<Mediator>) {
    let parking = Arc::<Parking>::default();
    let executor = parking.around(executor, ParkAt::Message, |body| matches!(body, Body::Fill(_)));
    (parking, Mediator::with_settings(executor, settings).unwrap())
}

fn with_grace(grace: Duration) -> Arc<Mediator> {
    Mediator::with_settings(null(), MediatorSettings { grace, ..MediatorSettings::default() }).unwrap()
}

/// Does everything that a process does: attaches, works, checks every byte of its results, and cleans up.
fn works(guest: &mut Guest) {
    guest.call(Op::PrimaryCtxRetain, &[0, 0], &[]).one();
    let address = guest.alloc(1 << 20);
    let data = pattern(guest.token, 1 << 20);
    guest.put(address, &data).nothing();
    assert!(guest.get(address, 1 << 20) == data);
    let token = guest.token;
    guest.call(Op::ProcessCleanup, &[token], &[]).nothing();
}

/// Starts work that is parked, and waits until `count` calls are.
fn park(guest: &mut Guest, parking: &Parking, count: usize) {
    guest.call(Op::PrimaryCtxRetain, &[0, 0], &[]).one();
    let address = guest.alloc(4096);
    guest.submit(Op::MemsetD8 as u32, &wide(&[address, 7, 4096]), 0);
    parking.wait_for(count);
}

#[test]
fn work_that_never_ends_delays_no_other_machine() {
    let (parking, mediator) = parked(soft(), MediatorSettings::default());
    let mut stuck = with(&mediator, Properties { vm_id: 1, ..Properties::default() });
    park(&mut stuck, &parking, 1);
    let mut other = with(&mediator, Properties { vm_id: 2, ..Properties::default() });
    for _ in 0..3 {
        works(&mut other);
    }
    // A status request does not wait, and neither do the machine's own register accesses.
    let owners: Vec<(u32, u64)> =
        mediator.owners().iter().map(|owner| (owner.channel, owner.allocated)).collect();
    assert_eq!(owners, [(1, 4096)]);
    assert_eq!((stuck.read(reg::STATUS), stuck.read(reg::CUDA_OP)), (reg::BUSY, Op::MemsetD8 as u32));
    parking.open();
    stuck.wait().nothing();
    works(&mut stuck);
    assert_eq!(mediator.memory().1, 0);
}

/// Checks the case of a process that is killed in a call that never ends. The next process cleans up its
/// owner and works, although nothing can stop that call.
fn the_next_process_works(mut dead: Guest, parking: &Parking, mediator: &Mediator) {
    park(&mut dead, parking, 1);
    let mut next = dead.process(2);
    let token = dead.token;
    // The register is busy, and the owner of the call shows which process is dead.
    assert_eq!((next.read(reg::STATUS), next.read(reg::SCRATCH)), (reg::BUSY, token));
    dead.call(Op::ProcessCleanup, &[token], &[]).nothing();
    for _ in 0..3 {
        works(&mut next);
    }
    assert!(mediator.owners().is_empty());
    assert!(mediator.memory().1 > 0, "what is parked has its memory");
    parking.open();
    until("all is given back", || mediator.memory().1 == 0 && mediator.charged_bytes() == 0);
    // The answer to the abandoned call was not delivered to another call.
    works(&mut next);
    works(&mut dead);
}

/// A process is killed during a call that the executor holds. The other process of its machine is served at
/// once, without waiting for that call.
#[test]
fn a_dead_process_s_call_delays_no_other_process_of_its_machine() {
    let (parking, mediator) = parked(soft(), MediatorSettings::default());
    let dead = with(&mediator, Properties { vm_id: 1, ..Properties::default() });
    the_next_process_works(dead, &parking, &mediator);
}

#[test]
fn nor_over_a_mediator_s_socket() {
    let (parking, mediator) = parked(soft(), MediatorSettings::default());
    let (_dir, path, server) = listen(&mediator);
    the_next_process_works(machine(&path, 1), &parking, &mediator);
    drop(server);
}

/// A call whose cleanup arrives together with it is abandoned like any other.
#[test]
fn a_call_whose_end_came_with_it_is_left_behind() {
    let (parking, mediator) = parked(soft(), MediatorSettings::default());
    let (_dir, path, server) = listen(&mediator);
    let stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let owner = owner(1, 5);
    let frame = |request: u32, op: Op, args: &[u32]| {
        let mut call = Call::new_zeroed();
        (call.magic, call.op, call.owner) = (MAGIC.into(), (op as u32).into(), owner.into());
        call.num_args = (args.len() as u32).into();
        for (to, from) in call.args.iter_mut().zip(args) {
            *to = (*from).into();
        }
        let header = Header::new(CUDA_CALL, 1, request, size_of::<Call>() as u32);
        [header.as_bytes(), call.as_bytes()].concat()
    };
    let answer = || {
        let mut bytes = [0; size_of::<Header>() + size_of::<Outcome>()];
        (&stream).read_exact(&mut bytes).unwrap();
        let (header, outcome) = Header::read_from_prefix(&bytes).unwrap();
        (header.request_id.get(), Outcome::read_from_bytes(outcome).unwrap())
    };
    let send = |bytes: &[u8]| (&stream).write_all(bytes).unwrap();
    send(&frame(1, Op::PrimaryCtxRetain, &[0, 0]));
    assert_eq!(answer().0, 1);
    send(&frame(2, Op::MemAlloc, &[4096, 0, 0, 0]));
    let address = answer().1.results[0].get();
    let endless = frame(3, Op::MemsetD8, &wide(&[address, 7, 4096]));
    send(&[endless, frame(4, Op::ProcessCleanup, &[5]), frame(5, Op::Init, &[])].concat());
    assert_eq!((answer().0, answer().0), (4, 5), "nobody wants that of the call");
    parking.open();
    drop(server);
}

#[test]
fn a_machine_that_is_gone_in_the_midst_of_work_may_come_back() {
    let (parking, mediator) =
        parked(soft(), MediatorSettings { grace: Duration::ZERO, ..MediatorSettings::default() });
    let (_dir, path, server) = listen(&mediator);
    let mut stuck = machine(&path, 1);
    park(&mut stuck, &parking, 1);
    drop(stuck);
    until("its owner is given up though work of its goes on", || mediator.owners().is_empty());
    assert!(mediator.memory().1 > 0, "which it does");
    // The machine is started again, with a process of the same number.
    works(&mut machine(&path, 1));
    let mut again = machine(&path, 1);
    park(&mut again, &parking, 2);
    // The mediator must end although calls are in progress.
    drop(server);
    assert!(!path.exists());
    parking.open();
    until("all is given back", || mediator.memory().1 == 0 && mediator.charged_bytes() == 0);
}

/// Time limit that [`MANY`] calls exceed if each of them waits for parked work.
const IN_TIME: Duration = Duration::from_secs(20);

/// Runs `what`, which must return within [`IN_TIME`].
fn in_time(what: impl FnOnce() + Send + 'static) {
    let (done, waiting) = mpsc::channel();
    std::thread::spawn(move || {
        what();
        let _ = done.send(());
    });
    waiting.recv_timeout(IN_TIME).expect("the end of many takes no longer than that of one");
}

/// Number of calls, such that half a second for each would exceed the test's time limit.
const MANY: u32 = 50;

#[test]
fn the_end_of_many_devices_takes_no_longer_than_that_of_one() {
    let (parking, mediator) = parked(null(), MediatorSettings::default());
    let mut stuck = Vec::new();
    for vm_id in 1..=MANY {
        let mut guest = with(&mediator, Properties { vm_id, ..Properties::default() });
        park(&mut guest, &parking, vm_id as usize);
        stuck.push(guest);
    }
    in_time(move || {
        mediator.stop();
        drop(stuck);
    });
    parking.open();
}

#[test]
fn the_end_of_many_sockets_takes_no_longer_than_that_of_one() {
    let dir = folder();
    let path = |number: u32| dir.path().join(number.to_string());
    let (parking, mediator) = parked(null(), MediatorSettings::default());
    let (mut servers, mut stuck) = (Vec::new(), Vec::new());
    for vm_id in 1..=MANY {
        servers.push(Server::start(&path(vm_id), &mediator).unwrap());
        let mut guest = machine(&path(vm_id), vm_id);
        park(&mut guest, &parking, vm_id as usize);
        stuck.push(guest);
    }
    in_time(move || Server::end_all(servers));
    assert!((1..=MANY).all(|number| !path(number).exists()));
    parking.open();
}

#[test]
fn who_fills_all_owners_and_hangs_up_blocks_nobody() {
    let mediator = with_grace(Duration::ZERO);
    let (_dir, path, _server) = listen(&mediator);
    let hostile = machine(&path, 1);
    for token in 1..=OWNERS_MAX as u32 {
        hostile.process(token).call(Op::Init, &[], &[]).one();
    }
    assert_eq!(hostile.process(1000).call(Op::Init, &[], &[]).failed(), 2);
    works(&mut machine(&path, 2));
    drop(hostile);
    until("its owners end", || mediator.owners().iter().all(|owner| owner.channel != 1));
    // The machine can have new owners as soon as the old ones have ended.
    let anew = machine(&path, 1).process(1000);
    until("there is room", || anew.process(1000).call(Op::Init, &[], &[]).status == reg::DONE);
}

#[test]
fn a_machine_that_comes_back_in_time_has_what_it_had() {
    let settings = MediatorSettings { grace: Duration::MAX, ..MediatorSettings::default() };
    let mediator = Mediator::with_settings(soft(), settings).unwrap();
    let (_dir, path, _server) = listen(&mediator);
    let mut guest = machine(&path, 1);
    let address = guest.alloc(4096);
    guest.put(address, &pattern(1, 4096)).nothing();
    drop(guest);
    let mut guest = machine(&path, 1);
    assert_eq!(guest.get(address, 4096), pattern(1, 4096));
}

#[test]
fn connections_that_do_nothing_lock_nobody_out() {
    let mediator = with_grace(Duration::MAX);
    let (_dir, path, _server) = listen(&mediator);
    let mut first = machine(&path, 1);
    first.alloc(4096);
    let idle: Vec<UnixStream> =
        (0..2 * USER_CLIENTS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
    works(&mut machine(&path, 2));
    // A client with objects is not disconnected to make room.
    first.alloc(4096);
    assert_eq!(mediator.owners().iter().map(|owner| owner.allocations).collect::<Vec<_>>(), [2]);
    drop(idle);
}

#[test]
fn the_socket_is_for_its_user_and_a_group_that_is_named() {
    let dir = folder();
    let path = dir.path().join("m.sock");
    let mediator = with_grace(Duration::ZERO);
    let about = |path: &Path| {
        let metadata = std::fs::metadata(path).unwrap();
        (metadata.permissions().mode() & 0o777, metadata.gid())
    };
    let server = Server::start(&path, &mediator).unwrap();
    let own = about(&path).1;
    assert_eq!(about(&path).0, 0o600);
    drop(server);
    let mediator = with_grace(Duration::ZERO);
    let _server = Server::start_for(&path, &mediator, Some(own)).unwrap();
    assert_eq!(about(&path), (0o660, own));
    machine(&path, 1).call(Op::Init, &[], &[]).one();
}

#[test]
fn a_connection_speaks_for_one_machine() {
    let mediator = with_grace(Duration::ZERO);
    let connection = mediator.connect();
    let call = |vm: u32| {
        let header = Header::new(0x10, vm, 1, 88);
        let mut call = Call::new_zeroed();
        call.magic = MAGIC.into();
        call.op = (Op::Init as u32).into();
        call.owner = 7.into();
        connection.call(&header, &call, &[])
    };
    assert!(matches!(call(3), Verdict::Answer(_)));
    let hung_up = call(4);
    assert!(matches!(hung_up, Verdict::HangUp(_)), "{hung_up:?}");
}
