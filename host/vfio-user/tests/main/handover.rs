//! A connection changes from one server to another, between two requests or after a death, and the VMM does
//! not notice.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use vgpu_device::GuestMemory as _;
use vgpu_vfio_user::{Answering, Recorder, Region, RestoreError, SocketError, UnsentReply};

use crate::served::{Done, Served, Stopped};
use crate::vmm::{Vmm, access, command, map, words};

const CONFIG: u32 = 7;
const EIO: u32 = 5;
/// Id of the first request after the negotiation.
const NEXT: Option<u16> = Some(2);

/// Returns a VMM, and what a server left of it that died or was stopped.
fn left(in_doubt: Option<u16>) -> (Vmm, Stopped) {
    let served = Served::start();
    let vmm = Vmm::start(&served.path);
    let mut stopped = served.stop();
    stopped.connection.as_mut().unwrap().in_doubt = in_doubt;
    (vmm, stopped)
}

fn region() -> Region {
    Region { file: Arc::new(tempfile::tempfile().unwrap()), offset: 0, bytes: 0x1000, writable: true }
}

#[test]
fn a_vmm_keeps_its_connection_while_servers_change() {
    let mut served = Served::start();
    let mut vmm = Vmm::start(&served.path);
    let memory = tempfile::tempfile().unwrap();
    memory.set_len(0x1000).unwrap();
    vmm.ask_with(command::DMA_MAP, &map(0, 0x8000, 0x1000), &[memory.as_fd()]);
    vmm.ask(command::WRITE, &[access(CONFIG, 0x10, 4), vec![0, 0, 0, 0xfe]].concat());
    // A VMM that does not stop to ask.
    let asks = std::thread::spawn(move || {
        for at in 0..500u64 {
            let read = vmm.ask(command::READ, &access(0, at % 64 * 4, 4));
            assert_eq!(read.payload[16..], [0x5a; 4]);
        }
        vmm
    });
    let mut reads = 0;
    let mut handovers = 0;
    while !asks.is_finished() || handovers < 3 {
        let stopped = served.stop();
        let saved = stopped.connection.as_ref().unwrap();
        assert!(saved.reply.is_none() && saved.regions.len() == 1);
        reads += stopped.function.take().len();
        served = stopped.restore().unwrap();
        handovers += 1;
    }
    let mut vmm = asks.join().unwrap();
    reads += served.function.take().len();
    assert_eq!(reads, 500, "each was carried out once, and none was a reset");
    let mut bytes = [1; 4];
    assert!(served.ram.read(0x8000, &mut bytes) && bytes == [0; 4]);
    assert_eq!(vmm.ask(command::READ, &access(CONFIG, 0x10, 4)).payload[16..], [0, 0, 0, 0xfe]);
    // The listener is the same, too.
    drop(vmm);
    assert_eq!(Vmm::start(&served.path).ask(command::RESET, &[]).flags, 1);
}

#[test]
fn a_stop_waits_for_nobody() {
    // For no VMM, for one that says nothing, and for one in the middle of a request.
    for case in 0..3 {
        let served = Served::start();
        let vmm = (case > 0).then(|| Vmm::start(&served.path));
        if let (2, Some(vmm)) = (case, &vmm) {
            vmm.send(&[7; 3], &[]);
        }
        assert_eq!(served.stop().connection.is_some(), case > 0);
    }
}

/// A VMM that does not read its replies neither keeps a stop waiting nor loses one of them.
#[test]
fn a_reply_without_room_is_handed_over() {
    const READS: usize = 400;
    let served = Served::start();
    let mut vmm = Vmm::start(&served.path);
    let stream = vmm.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        let mut sends = Vmm::new(stream);
        for _ in 0..READS {
            sends.post(command::READ, 0, &access(2, 0, 4096), &[]);
        }
    });
    // The replies do not fit the socket's buffer, so the server gets no further.
    let mut before = 0;
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let reads = served.function.done.lock().unwrap().len();
        if reads > 0 && reads == before {
            break;
        }
        before = reads;
    }
    assert!(before < READS, "there was room");
    let stopped = served.stop();
    let reply = stopped.connection.as_ref().unwrap().reply.as_ref().unwrap();
    assert_eq!((reply.bytes.len(), reply.request), (32 + 4096, 32));
    let _served = stopped.restore().unwrap();
    for at in 0..READS {
        let reply = vmm.reply();
        assert_eq!((usize::from(reply.id), reply.payload.len()), (at + 1, 16 + 4096));
    }
    sender.join().unwrap();
}

#[test]
fn a_request_that_was_not_answered_is_answered_by_the_next_process() {
    let (mut vmm, stopped) = left(None);
    let read = vmm.post(command::READ, 0, &access(0, 4, 4), &[]);
    let memory = tempfile::tempfile().unwrap();
    let mapped = vmm.post(command::DMA_MAP, 0, &map(0, 0, 0x1000), &[memory.as_fd()]);
    let served = stopped.restore().unwrap();
    let replies = [vmm.reply(), vmm.reply()];
    assert_eq!(replies.map(|reply| (reply.id, reply.flags)), [(read, 1), (mapped, 1)]);
    assert!(served.ram.is_shared());
    assert_eq!(served.function.take(), [Done::Read(0, 4, 4)]);
}

/// Each reply to a request in doubt is a header, which a VMM that has its answer can discard.
#[test]
fn a_request_in_doubt_gets_no_payload() {
    let write = [access(0, 0, 4), vec![1; 4]].concat();
    let unmap = [words(&[24, 2]), vec![0; 16]].concat();
    for (number, payload, errno, done) in [
        (command::READ, access(0, 4, 4), EIO, vec![]),
        (command::READ, access(CONFIG, 4, 4), EIO, vec![]),
        (command::WRITE, write, 0, vec![]),
        (command::DMA_UNMAP, unmap, 0, vec![]),
        (command::RESET, vec![], 0, vec![Done::Reset]),
        (command::GET_INFO, words(&[16, 0, 0, 0]), EIO, vec![]),
        (command::SET_IRQS, words(&[20, 0x21, 0, 0, 0]), 0, vec![]),
    ] {
        let (mut vmm, stopped) = left(NEXT);
        vmm.post(number, 0, &payload, &[]);
        let served = stopped.restore().unwrap();
        let reply = vmm.reply();
        assert_eq!((reply.error, reply.payload.len()), (errno, 0), "{number}");
        assert_eq!(served.function.take(), done, "{number}");
        // Only the first is in doubt.
        assert_eq!(vmm.ask(command::READ, &access(0, 4, 4)).payload[16..], [0x5a; 4]);
    }
    // Memory that the process before has recorded is not mapped twice.
    let (mut vmm, mut stopped) = left(NEXT);
    stopped.connection.as_mut().unwrap().regions.push((0x8000, region()));
    let memory = tempfile::tempfile().unwrap();
    vmm.post(command::DMA_MAP, 0, &map(0, 0x8000, 0x1000), &[memory.as_fd()]);
    let _served = stopped.restore().unwrap();
    assert_eq!(vmm.reply().error, 0);
}

/// Passes on how far a reply is, and how much has arrived at the VMM's end.
struct Told(mpsc::Sender<(Answering, u64)>, UnixStream);

impl Recorder for Told {
    fn answering(&self, answering: Answering) {
        self.0.send((answering, rustix::io::ioctl_fionread(&self.1).unwrap())).unwrap();
    }
}

/// The record says of each moment whether the request in the socket may have been answered.
#[test]
fn an_answer_is_recorded_while_it_is_sent() {
    let (mut vmm, stopped) = left(None);
    let (told, changes) = mpsc::channel();
    let end = vmm.stream.try_clone().unwrap();
    let served = stopped.restore_recorded(Arc::new(Told(told, end))).unwrap();
    let id = vmm.post(command::READ, 0, &access(0, 0, 4), &[]);
    // Before the answer nothing has arrived; after it, it is there.
    assert_eq!(changes.recv().unwrap(), (Answering::Reply(id), 0));
    assert_eq!(changes.recv().unwrap(), (Answering::Nothing, 16 + 16 + 4));
    // Nothing is recorded of what is not answered.
    vmm.post(command::WRITE, crate::vmm::NO_REPLY, &[access(0, 0, 4), vec![0; 4]].concat(), &[]);
    drop(served.stop());
    assert!(changes.recv().is_err());
}

#[test]
fn what_was_saved_is_checked() {
    let refused = |stopped: Stopped| match stopped.restore() {
        Err(SocketError::Restore { source, .. }) => source,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it is served"),
    };
    let (_vmm, mut stopped) = left(None);
    stopped.connection.as_mut().unwrap().config[2] ^= 1;
    assert!(matches!(refused(stopped), RestoreError::Config));

    let (_vmm, mut stopped) = left(None);
    stopped.connection.as_mut().unwrap().regions = vec![(0, region()), (0x800, region())];
    assert!(matches!(refused(stopped), RestoreError::Memory { address: 0x800, .. }));

    for (bytes, sent, bar, request) in
        [(15, 0, None, 16), (5000, 0, None, 16), (16, 17, None, 16), (16, 0, Some(0), 16), (16, 0, None, 0)]
    {
        let (_vmm, mut stopped) = left(None);
        let reply = UnsentReply { bytes: vec![0; bytes], sent, bar, request };
        stopped.connection.as_mut().unwrap().reply = Some(reply);
        assert!(matches!(refused(stopped), RestoreError::Reply), "{bytes} {sent} {bar:?} {request}");
    }

    // A descriptor that is no socket cannot be served.
    let (_vmm, mut stopped) = left(None);
    stopped.connection.as_mut().unwrap().socket = OwnedFd::from(tempfile::tempfile().unwrap());
    assert!(matches!(refused(stopped), RestoreError::Socket(_)));
}
