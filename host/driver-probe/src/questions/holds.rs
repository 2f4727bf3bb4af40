//! Questions about a stream that is held: which calls wait for it, and how much work it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use vgpu_abi::driver::{CUevent, CUfunction, CUmodule, CUstream};

use super::code::{kernel_that_stores, ptx};
use crate::driver::{CallError, Driver, status};
use crate::mapping::{LARGE_PAGE, Mapping};

/// `CUDA_ERROR_NOT_READY`, which a query returns.
const NOT_READY: u64 = 600;
/// Key of both questions' answers in a report.
const KEY: &str = "while_a_stream_waits_for_the_host";
/// A call that takes longer than this is said to block. On a busy machine a call may take long before it
/// starts.
const BLOCKS: Duration = Duration::from_millis(600);
/// A call that takes longer than this after the stream was released is said to hang.
const HANGS: Duration = Duration::from_secs(5);
/// Number of launches that are given to a held stream at most. Eight channels of 1,024 entries take fewer.
const LAUNCHES: u64 = 10_000;

/// A stream that waits for a word of the host.
struct Hold {
    stream: CUstream,
    word: &'static AtomicU32,
    address: u64,
    value: u32,
}

impl Hold {
    fn new(driver: &Driver) -> Result<Self, CallError> {
        let mapping = driver.shared(4096)?;
        let (stream, address) = (driver.stream()?, driver.device_pointer(mapping)?);
        Ok(Self { stream, word: mapping.half_word(0), address, value: 0 })
    }

    fn start(&mut self, driver: &Driver) -> Result<(), CallError> {
        self.value += 1;
        driver.wait_value(self.stream, self.address, self.value)
    }

    fn release(&self) {
        self.word.store(self.value, Ordering::Release);
    }
}

type Call = Box<dyn FnOnce(&Driver) -> Result<(), CallError> + Send>;

/// Makes a call in a thread of its own. The receiver gets its status.
fn start(driver: &Arc<Driver>, call: Call) -> Receiver<Value> {
    let (sender, result) = mpsc::channel();
    let driver = Arc::clone(driver);
    std::thread::spawn(move || {
        let outcome = driver.enter().and_then(|()| call(&driver));
        // The receiver is gone if the call took longer than anybody waited for it.
        let _ = sender.send(status(&outcome));
    });
    result
}

/// Returns the report's words for a call that was waited for.
fn described(result: &Result<Value, RecvTimeoutError>) -> Value {
    match result {
        Ok(Value::Number(code)) if matches!(code.as_u64(), Some(0 | NOT_READY)) => "returns".into(),
        Ok(Value::Number(code)) => format!("returns {code}").into(),
        Ok(other) => other.clone(),
        Err(_) => "blocks".into(),
    }
}

/// Objects that calls use and do not change.
#[derive(Clone, Copy)]
struct Objects {
    kernel: CUfunction,
    module: CUmodule,
    memory: u64,
    page: Mapping,
    word: u64,
    stream: CUstream,
    event: CUevent,
}

impl Objects {
    fn new(driver: &Driver) -> Result<Self, CallError> {
        let page = driver.shared(4096)?;
        Ok(Self {
            kernel: kernel_that_stores(driver, 1)?,
            module: driver.module(&ptx(2))?,
            memory: driver.allocate(4096)?,
            page,
            word: driver.device_pointer(page)?,
            stream: driver.stream()?,
            event: driver.event()?,
        })
    }

    /// Returns the calls that other threads make beside a call that blocks.
    fn calls_beside(self) -> [(&'static str, Call); 7] {
        let Self { kernel, module, memory, page, word, stream, event } = self;
        [
            ("launch", Box::new(move |driver| driver.launch(kernel, memory, stream, false))),
            ("record", Box::new(move |driver| driver.record(event, stream))),
            ("query", Box::new(move |driver| driver.query_event(event))),
            ("write", Box::new(move |driver| driver.write_value(stream, word, 1))),
            ("copy", Box::new(move |driver| driver.upload(memory, page, stream))),
            ("getfunction", Box::new(move |driver| driver.kernel(module, c"store").map(drop))),
            ("createstream", Box::new(|driver| driver.stream().map(drop))),
        ]
    }

    /// Returns the calls that are made while the stream `held` is held, with objects of their own where a
    /// call consumes one.
    fn calls(self, driver: &Driver, held: CUstream) -> Result<Vec<(&'static str, Call)>, CallError> {
        let Self { kernel, module, memory, page, word, stream, event } = self;
        let (unlaunched, unneeded) = (kernel_that_stores(driver, 3)?, driver.module(&ptx(4))?);
        let (unneeded_stream, captured, legacy) = (driver.stream()?, driver.stream()?, CUstream::NULL);
        let (freed, pinned) = (driver.allocate(1 << 20)?, driver.pinned(1 << 20)?);
        let (registered, new) = (driver.shared(4 << 20)?, Mapping::memfd(4 << 20, false)?);
        let unpinned = Mapping::memfd(4096, false)?;
        let range = driver.reserve(2 * LARGE_PAGE, 0)?;
        let next = range + LARGE_PAGE as u64;
        driver.map(range, LARGE_PAGE, driver.create(LARGE_PAGE)?)?;
        Ok(vec![
            (
                "launch on another stream",
                Box::new(move |driver| driver.launch(kernel, memory, stream, false)),
            ),
            (
                "first launch of a loaded kernel",
                Box::new(move |driver| driver.launch(unlaunched, memory, stream, false)),
            ),
            ("cuModuleLoadData", Box::new(|driver| driver.module(&ptx(5)).map(drop))),
            ("cuModuleGetFunction", Box::new(move |driver| driver.kernel(module, c"store").map(drop))),
            ("cuFuncGetAttribute", Box::new(move |driver| driver.kernel_attribute(kernel, 0).map(drop))),
            ("cuModuleUnload", Box::new(move |driver| driver.unload(unneeded))),
            ("cuStreamCreate", Box::new(|driver| driver.stream().map(drop))),
            ("cuStreamDestroy of another", Box::new(move |driver| driver.destroy_stream(unneeded_stream))),
            ("cuStreamQuery held", Box::new(move |driver| driver.query(held))),
            ("cuEventCreate", Box::new(|driver| driver.event().map(drop))),
            ("cuEventRecord on another stream", Box::new(move |driver| driver.record(event, stream))),
            ("cuEventQuery", Box::new(move |driver| driver.query_event(event))),
            (
                "cuStreamWriteValue on another stream",
                Box::new(move |driver| driver.write_value(stream, word, 1)),
            ),
            ("cuMemHostAlloc", Box::new(|driver| driver.pinned(1 << 20).map(drop))),
            ("cuMemFreeHost", Box::new(move |driver| driver.free_pinned(pinned))),
            ("cuMemHostRegister", Box::new(move |driver| driver.register(new))),
            ("cuMemHostUnregister", Box::new(move |driver| driver.unregister(registered))),
            ("cuMemAlloc", Box::new(|driver| driver.allocate(1 << 20).map(drop))),
            ("cuMemFree", Box::new(move |driver| driver.free(freed))),
            (
                "cuMemCreate+Map+SetAccess",
                Box::new(move |driver| driver.map(next, LARGE_PAGE, driver.create(LARGE_PAGE)?)),
            ),
            ("cuMemUnmap", Box::new(move |driver| driver.unmap(range, LARGE_PAGE))),
            ("copy of pinned memory (legacy)", Box::new(move |driver| driver.upload(memory, page, legacy))),
            (
                "copy of pageable memory (legacy)",
                Box::new(move |driver| driver.upload(memory, unpinned, legacy)),
            ),
            (
                "capture and instantiate",
                Box::new(move |driver| {
                    driver.begin_capture(captured)?;
                    driver.launch(kernel, memory, captured, false)?;
                    driver.instantiate(driver.end_capture(captured)?)
                }),
            ),
        ])
    }
}

/// Makes each call in a thread of its own while a stream is held, and others beside each call that blocks.
pub(super) fn calls_behind_a_hold(driver: Driver) -> Result<Value, CallError> {
    let driver = Arc::new(driver);
    let (mut hold, objects) = (Hold::new(&driver)?, Objects::new(&driver)?);
    let (mut calls, mut beside) = (Map::new(), Map::new());
    for (name, call) in objects.calls(&driver, hold.stream)? {
        hold.start(&driver)?;
        let result = start(&driver, call);
        let early = result.recv_timeout(BLOCKS);
        let others = early.is_err().then(|| {
            let started = objects.calls_beside().map(|(name, call)| (name, start(&driver, call)));
            std::thread::sleep(BLOCKS);
            started.map(|(name, result)| (name, described(&result.recv_timeout(Duration::ZERO)), result))
        });
        hold.release();
        calls.insert(name.to_owned(), described(&early));
        let mut waits = early.is_err().then_some(&result).into_iter().collect::<Vec<_>>();
        if let Some(others) = &others {
            let words = others.iter().map(|(name, words, _)| ((*name).to_owned(), words.clone()));
            beside.insert(name.to_owned(), Value::Object(words.collect()));
            let blocked = others.iter().filter(|(_, words, _)| words == "blocks");
            waits.extend(blocked.map(|(.., result)| result));
        }
        if waits.into_iter().any(|result| result.recv_timeout(HANGS).is_err()) {
            calls.insert(name.to_owned(), "hangs".into());
            break;
        }
        driver.synchronize_stream(hold.stream)?;
    }
    Ok(json!({ KEY: { "calls": calls, "beside_a_call_that_blocks": beside } }))
}

/// Launches on a held stream until a launch blocks, and then on another one.
pub(super) fn queue_depth(driver: Driver) -> Result<Value, CallError> {
    let driver = Arc::new(driver);
    let kernel = kernel_that_stores(&driver, 1)?;
    let memory = driver.allocate(4096)?;
    let (mut hold, other) = (Hold::new(&driver)?, driver.stream()?);
    hold.start(&driver)?;
    let count = Arc::new(AtomicU64::new(0));
    let enough = Arc::new(AtomicBool::new(false));
    let (launched, stream, stop) = (Arc::clone(&count), hold.stream, Arc::clone(&enough));
    let filling = start(
        &driver,
        Box::new(move |driver| {
            for _ in 0..LAUNCHES {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                driver.launch(kernel, memory, stream, false)?;
                launched.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }),
    );
    let mut queued = 0;
    let early = loop {
        let early = filling.recv_timeout(BLOCKS);
        let before = std::mem::replace(&mut queued, count.load(Ordering::Relaxed));
        if early.is_ok() || queued != 0 && queued == before {
            break early;
        }
    };
    let another = start(&driver, Box::new(move |driver| driver.launch(kernel, memory, other, false)));
    let another = described(&another.recv_timeout(BLOCKS));
    enough.store(true, Ordering::Relaxed);
    hold.release();
    let blocked = early.is_err();
    let launches = if early.is_ok() { early } else { filling.recv_timeout(HANGS) };
    let full = blocked && launches == Ok(0.into());
    Ok(json!({ KEY: {
        "launches_queued_before_one_blocks": full.then_some(queued),
        "launches_on_the_held_stream": described(&launches),
        "calls": { "other stream while full": another },
    } }))
}
