//! A mediator that records the calls of a device and their answers, and passes them to the real one.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use vgpu_device::Executor;
use vgpu_device_v1::{Answer, Connection, Mediator, MediatorRules, Verdict};
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::frame::{CUDA_RESULT, Call, Header};
use zerocopy::{FromBytes, IntoBytes};

/// A recorded call and its answer.
#[derive(Clone, Debug)]
pub struct Got {
    pub op: u32,
    /// Owner in the call's header.
    pub owner: u32,
    pub args: Vec<u32>,
    pub data: Vec<u8>,
    /// Results in the answer.
    pub results: Vec<u64>,
}

/// The recording mediator, which listens at `path`.
#[derive(Debug)]
pub struct Recorder {
    pub path: PathBuf,
    got: Arc<Mutex<Vec<Got>>>,
    /// Number of the [`Op`] at which the mediator hangs up without an answer. Initially 0, which no `Op` has.
    hangs_up: Arc<AtomicU32>,
    /// Whether the mediator answers like one whose context died: a retain succeeds but returns no context
    /// (Q31).
    context_died: Arc<AtomicBool>,
}

impl Recorder {
    /// Starts the mediator on a socket in `folder`.
    pub fn start(folder: &Path, executor: Arc<dyn Executor>) -> Self {
        let path = folder.join("mediator.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mediator = Mediator::new(executor, MediatorRules::default()).unwrap();
        let recorder =
            Self { path, got: Arc::default(), hangs_up: Arc::default(), context_died: Arc::default() };
        let (got, hangs_up) = (Arc::clone(&recorder.got), Arc::clone(&recorder.hangs_up));
        let context_died = Arc::clone(&recorder.context_died);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let (connection, got, hangs_up) =
                    (mediator.connect(), Arc::clone(&got), Arc::clone(&hangs_up));
                let context_died = Arc::clone(&context_died);
                // The thread ends with the device.
                std::thread::spawn(move || serve(stream, &connection, &got, &hangs_up, &context_died));
            }
        });
        recorder
    }

    /// Returns all calls recorded so far.
    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// Returns the calls with this number recorded so far.
    pub fn of(&self, op: u32) -> Vec<Got> {
        self.got().into_iter().filter(|got| got.op == op).collect()
    }

    /// Hangs up at the next call with this number.
    pub fn hang_up_at(&self, op: u32) {
        self.hangs_up.store(op, Ordering::SeqCst);
    }

    /// Answers from now on like a mediator whose context died.
    pub fn context_dies(&self) {
        self.context_died.store(true, Ordering::SeqCst);
    }
}

fn serve(
    mut stream: UnixStream,
    connection: &Connection,
    got: &Mutex<Vec<Got>>,
    hangs_up: &AtomicU32,
    context_died: &AtomicBool,
) {
    let mut head = [0; size_of::<Header>()];
    while stream.read_exact(&mut head).is_ok() {
        let header = Header::read_from_bytes(&head).unwrap();
        let mut payload = vec![0; header.bytes.get() as usize];
        if stream.read_exact(&mut payload).is_err() {
            return;
        }
        let (call, data) = Call::read_from_prefix(&payload).unwrap();
        let args: Vec<u32> = call.args.iter().map(|arg| arg.get()).collect();
        let (args, beyond) = args.split_at(call.num_args.get() as usize);
        assert!(beyond.iter().all(|&arg| arg == 0), "arguments that are not stated are not sent");
        let mut record = Got {
            op: call.op.get(),
            owner: call.owner.get(),
            args: args.to_vec(),
            data: data.to_vec(),
            results: Vec::new(),
        };
        if hangs_up.load(Ordering::SeqCst) == record.op {
            got.lock().unwrap().push(record);
            return;
        }
        let Verdict::Answer(answer) = connection.call(&header, &call, data) else {
            panic!("a call that is none: {call:?}");
        };
        let Answer { mut outcome, data } = *answer;
        if record.op == Op::PrimaryCtxRetain as u32 && context_died.load(Ordering::SeqCst) {
            outcome.results[0] = 0.into();
        }
        let results = outcome.results.iter().map(|result| result.get());
        record.results = results.take(outcome.num_results.get() as usize).collect();
        got.lock().unwrap().push(record);
        let bytes = (size_of_val(&outcome) + data.len()) as u32;
        let head = Header { kind: CUDA_RESULT.into(), bytes: bytes.into(), ..header };
        let answer = [head.as_bytes(), outcome.as_bytes(), &data].concat();
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}
