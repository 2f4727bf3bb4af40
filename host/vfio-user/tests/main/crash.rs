//! A server dies at each moment of an answer, and the next one continues from the record and from the
//! descriptors that somebody has kept.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use vgpu_device::GuestMemory as _;
use vgpu_vfio_user::record::{ConnectionImage, FileId, Record, RegionImage};
use vgpu_vfio_user::{
    Answering, CONFIG_BYTES, FunctionSocket, Limits, Recorder, Region, SavedConnection, SharedRam,
};

use crate::served::{Done, Remembers};
use crate::vmm::{Reply, Vmm, access, command, map, words};

const CONFIG: u32 = 7;
const EIO: u32 = 5;
/// Guest-physical addresses of two regions of a page. The first is mapped before the death.
const FIRST: u64 = 0x8000;
const SECOND: u64 = 0x1_0000;

/// Moment of a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The request has been carried out, and nothing says so.
    BeforeTheRecord,
    /// The reply is announced, and neither is the change recorded nor the reply sent.
    BeforeTheChange,
    /// The change is recorded, and the reply is not sent.
    BeforeTheReply,
    /// The reply is sent and its request is taken, and the record still says that it is on its way.
    AfterTheReply,
}

use Moment::{AfterTheReply, BeforeTheChange, BeforeTheRecord, BeforeTheReply};

/// Records as a process does, with what is kept beyond its death, and dies at a moment: its thread never goes
/// on.
struct Dying {
    record: Record,
    socket: Mutex<Option<OwnedFd>>,
    files: Mutex<BTreeMap<FileId, Arc<File>>>,
    /// Id of the request that is answered.
    request: AtomicU16,
    /// Moment of the death, in the answer to the request of an id.
    dies: Mutex<Option<(Moment, u16, mpsc::Sender<()>)>>,
}

impl Dying {
    /// Dies at a moment of the answer to the request of an id. The receiver hears it.
    fn new(at: Moment, request: u16) -> (Arc<Self>, mpsc::Receiver<()>) {
        let (die, death) = mpsc::channel();
        let dying = Self {
            record: Record::new().unwrap(),
            socket: Mutex::default(),
            files: Mutex::default(),
            request: AtomicU16::new(0),
            dies: Mutex::new(Some((at, request, die))),
        };
        (Arc::new(dying), death)
    }

    fn reach(&self, moment: Moment) {
        let dies = self.dies.lock().unwrap();
        let request = self.request.load(Ordering::Relaxed);
        let Some((_, _, die)) = dies.as_ref().filter(|dies| (dies.0, dies.1) == (moment, request)) else {
            return;
        };
        die.send(()).unwrap();
        drop(dies);
        loop {
            thread::park();
        }
    }

    fn change(&self, change: impl FnOnce(&mut ConnectionImage)) {
        self.record.change(|image| change(image.connection.as_mut().unwrap()));
        self.reach(BeforeTheReply);
    }
}

impl Recorder for Dying {
    fn answering(&self, answering: Answering) {
        if let Answering::Reply(id) = answering {
            self.request.store(id, Ordering::Relaxed);
        }
        self.reach(if answering == Answering::Nothing { AfterTheReply } else { BeforeTheRecord });
        self.record.answering(answering);
        if answering != Answering::Nothing {
            self.reach(BeforeTheChange);
        }
    }

    fn connected(&self, socket: BorrowedFd<'_>, config: &[u8; CONFIG_BYTES]) {
        *self.socket.lock().unwrap() = Some(socket.try_clone_to_owned().unwrap());
        let connection = ConnectionImage { limits: None, config: *config, regions: Vec::new() };
        self.record.change(|image| image.connection = Some(connection));
    }

    fn negotiated(&self, limits: Limits) {
        self.change(|connection| connection.limits = Some(limits));
    }

    fn configured(&self, bytes: &[u8; CONFIG_BYTES]) {
        self.change(|connection| connection.config = *bytes);
    }

    fn mapped(&self, regions: &[(u64, Region)]) {
        let image = |(address, region): &(u64, Region)| {
            let image = RegionImage::of(*address, region).unwrap();
            self.files.lock().unwrap().insert(image.file, Arc::clone(&region.file));
            image
        };
        let images = regions.iter().map(image).collect();
        self.change(|connection| connection.regions = images);
    }
}

/// Serves in a thread that may never end.
fn serve(mut socket: FunctionSocket, recorder: Arc<dyn Recorder>) {
    socket.record(recorder);
    thread::spawn(move || socket.serve().unwrap());
}

/// A VMM whose server has died, and what that has left.
struct Left {
    vmm: Vmm,
    dying: Arc<Dying>,
    folder: tempfile::TempDir,
}

/// Has a server die at a moment of its answer to a request.
fn dies(at: Moment, number: u16, payload: &[u8], files: &[BorrowedFd<'_>]) -> Left {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let socket = FunctionSocket::bind(&path, None, Remembers::new(true), SharedRam::default()).unwrap();
    let (dying, death) = Dying::new(at, 3);
    serve(socket, Arc::clone(&dying) as _);
    let mut vmm = Vmm::start(&path);
    vmm.ask_with(command::DMA_MAP, &map(0, FIRST, 0x1000), &[page(1).as_fd()]);
    // The third request, after the negotiation and the map.
    vmm.post(number, 0, payload, files);
    death.recv().unwrap();
    Left { vmm, dying, folder }
}

/// Returns a file of a page with these bytes.
fn page(byte: u8) -> File {
    let file = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[byte; 0x1000], 0).unwrap();
    file
}

/// The next server, whose function is a new one.
struct Next {
    function: Arc<Remembers>,
    ram: SharedRam,
}

fn next(dying: &Dying, folder: &Path) -> Next {
    let record = dying.record.file().try_clone_to_owned().unwrap();
    let (_, recorded) = Record::open(record).unwrap();
    let connection = recorded.image.connection.unwrap();
    let socket = dying.socket.lock().unwrap().take().unwrap();
    let files = dying.files.lock().unwrap().clone();
    let saved = SavedConnection::of_record(&connection, recorded.answering, socket, &files).unwrap();
    let (function, ram) = (Remembers::new(true), SharedRam::default());
    let (path, shown) = (folder.join("next"), Arc::clone(&function) as _);
    let listener = UnixListener::bind(&path).unwrap().into();
    serve(FunctionSocket::restore(&path, listener, Some(saved), shown, ram.clone()).unwrap(), Arc::new(()));
    Next { function, ram }
}

/// Returns the first byte of each region that is mapped.
fn mapped(ram: &SharedRam) -> [Option<u8>; 2] {
    [FIRST, SECOND].map(|address| {
        let mut byte = [0];
        ram.read(address, &mut byte).then_some(byte[0])
    })
}

/// Checks the reply to the request during which the server died: wholly answered by one of the two, or without
/// payload where the next one does not know whether it was answered.
fn check(reply: &Reply, at: Moment, number: u16, payload: usize, what: &str) {
    let is_read = number == command::READ;
    let (bytes, error) = match at {
        BeforeTheRecord | AfterTheReply => (payload, 0),
        BeforeTheChange | BeforeTheReply => (0, if is_read { EIO } else { 0 }),
    };
    assert_eq!((reply.payload.len(), reply.error), (bytes, error), "{what}");
}

#[test]
fn a_vmm_goes_on_after_a_death_at_each_moment() {
    let second = page(2);
    let write = [access(CONFIG, 0x10, 4), vec![0, 0, 0, 0xfe]].concat();
    let doorbell = [access(0, 0x40, 4), vec![7; 4]].concat();
    let unmap = [&words(&[24, 0])[..], &FIRST.to_le_bytes(), &0x1000_u64.to_le_bytes()].concat();
    // Number and payload of each request, whether the record changes, and the size of its whole reply.
    let requests: [(u16, &[u8], bool, usize); 6] = [
        (command::READ, &access(0, 4, 4), false, 20),
        (command::WRITE, &doorbell, false, 16),
        (command::WRITE, &write, true, 16),
        (command::DMA_MAP, &map(0, SECOND, 0x1000), true, 0),
        (command::DMA_UNMAP, &unmap, true, 24),
        (command::RESET, &[], false, 0),
    ];
    for (number, payload, changes, size) in requests {
        for at in [BeforeTheRecord, BeforeTheChange, BeforeTheReply, AfterTheReply] {
            if at == BeforeTheReply && !changes {
                // It is the moment before the change.
                continue;
            }
            let what = format!("{number} {changes} {at:?}");
            let files = if number == command::DMA_MAP { vec![second.as_fd()] } else { Vec::new() };
            let Left { mut vmm, dying, folder } = dies(at, number, payload, &files);
            let next = next(&dying, folder.path());
            let reply = vmm.reply();
            check(&reply, at, number, size, &what);

            // It is answered once, and the connection is in order.
            assert_eq!(vmm.ask(command::READ, &access(0, 8, 4)).payload[16..], [0x5a; 4], "{what}");
            let is_config = number == command::WRITE && changes;
            let bar = vmm.ask(command::READ, &access(CONFIG, 0x10, 4)).payload[16..].to_vec();
            assert_eq!(bar, if is_config { [0, 0, 0, 0xfe] } else { [0; 4] }, "{what}");
            let expected = match number {
                command::DMA_MAP => [Some(1), Some(2)],
                command::DMA_UNMAP => [None, None],
                _ => [Some(1), None],
            };
            assert_eq!(mapped(&next.ram), expected, "{what}");
            // A write of the guest reaches one of the two devices, or none that lives on.
            let done = next.function.take();
            let writes = done.iter().filter(|done| matches!(done, Done::Write(..))).count();
            assert_eq!(writes, usize::from(payload == doorbell && at == BeforeTheRecord), "{what} {done:?}");
        }
    }
}

#[test]
fn a_death_before_the_negotiation_is_recorded_leaves_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let socket = FunctionSocket::bind(&path, None, Remembers::new(true), SharedRam::default()).unwrap();
    let (dying, death) = Dying::new(BeforeTheRecord, 1);
    serve(socket, Arc::clone(&dying) as _);
    let mut vmm = Vmm::connect(&path);
    let asks = thread::spawn(move || {
        vmm.negotiate();
        vmm
    });
    death.recv().unwrap();
    let _next = next(&dying, folder.path());
    let mut vmm = asks.join().unwrap();
    assert_eq!(vmm.ask(command::READ, &access(0, 8, 4)).payload[16..], [0x5a; 4]);
}

#[test]
fn what_is_missing_is_told() {
    let Left { vmm: _vmm, dying, .. } =
        dies(BeforeTheReply, command::DMA_MAP, &map(0, SECOND, 0x1000), &[page(2).as_fd()]);
    let (_, recorded) = Record::open(dying.record.file().try_clone_to_owned().unwrap()).unwrap();
    let connection = recorded.image.connection.unwrap();
    assert_eq!(connection.regions.len(), 2);
    let saved = |answering, files: &BTreeMap<_, _>| {
        let socket = dying.socket.lock().unwrap().as_ref().unwrap().try_clone().unwrap();
        SavedConnection::of_record(&connection, answering, socket, files).map(drop)
    };
    let files = dying.files.lock().unwrap().clone();
    saved(recorded.answering, &files).unwrap();
    let refused = saved(recorded.answering, &BTreeMap::new()).unwrap_err();
    assert_eq!(refused.to_string(), "the file of the guest's memory at 0x8000 is missing");
    assert!(saved(Answering::Rest, &files).unwrap_err().to_string().contains("a part of a reply"));
}
