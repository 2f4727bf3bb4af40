//! Questions about kernels: their errors and the cost of a launch. The other questions take their kernels
//! from here.

use std::ffi::CString;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Map, Value, json};
use vgpu_abi::driver::CUfunction;

use crate::driver::{CallError, Driver, status};
use crate::mapping::Mapping;

/// Number of calls of each kind that are measured.
const SAMPLES: usize = 1000;
/// Number of calls without a synchronization at most. A stream takes about 1,020.
const BATCH: usize = 250;
/// An address at which no device memory lies.
const UNMAPPED: u64 = 8;

/// Returns the PTX of a kernel `store` that stores `value` at its parameter. Modules with different values
/// differ.
pub(super) fn ptx(value: u32) -> CString {
    let text = format!(
        ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry store(.param .u64 at)\n{{\n\
         .reg .b64 %at;\nld.param.u64 %at, [at];\nst.global.u32 [%at], {value};\nret;\n}}\n"
    );
    CString::new(text).unwrap_or_default()
}

/// Loads a kernel that stores `value` at the address that is its parameter.
pub(super) fn kernel_that_stores(driver: &Driver, value: u32) -> Result<CUfunction, CallError> {
    driver.kernel(driver.module(&ptx(value))?, c"store")
}

/// Makes a kernel access an unmapped address, and collects what calls of each kind return then.
pub(super) fn codes_after_a_fault(driver: &Driver) -> Result<Value, CallError> {
    let kernel = kernel_that_stores(driver, 1)?;
    let (stream, other, event) = (driver.stream()?, driver.stream()?, driver.event()?);
    let memory = driver.allocate(4096)?;
    let launch = driver.launch(kernel, UNMAPPED, stream, false);
    let record = driver.record(event, stream);
    let wait = driver.synchronize_stream(stream);
    Ok(json!({ "codes_after_a_fault": {
        "faulting_launch": status(&launch),
        "event_record_behind_it": status(&record),
        "stream_synchronize": status(&wait),
        "stream_query": status(&driver.query(stream)),
        "stream_query_of_another": status(&driver.query(other)),
        "event_query": status(&driver.query_event(event)),
        "event_record": status(&driver.record(event, other)),
        "context_synchronize": status(&driver.synchronize()),
        "launch": status(&driver.launch(kernel, memory, other, false)),
        "memory_info": status(&driver.free_memory()),
        "allocate": status(&driver.allocate(4096)),
        "free": status(&driver.free(memory)),
        "module_load": status(&driver.module(&ptx(2))),
        "stream_create": status(&driver.stream()),
        "destroy_context": status(&driver.destroy_context()),
    } }))
}

/// Work whose cost is measured.
type Work = Box<dyn Fn(&Driver) -> Result<(), CallError>>;

/// Returns the median and the 90th percentile of the microseconds that `work` takes. Before each measured
/// call, or before a batch of them, the context is idle.
fn cost(driver: &Driver, work: &Work, batch: usize) -> Result<[f64; 2], CallError> {
    let mut costs = Vec::with_capacity(SAMPLES);
    for sample in 0..SAMPLES {
        if sample.is_multiple_of(batch) {
            driver.synchronize()?;
        }
        let start = Instant::now();
        work(driver)?;
        costs.push(start.elapsed().as_secs_f64() * 1e6);
    }
    costs.sort_by(f64::total_cmp);
    Ok([costs[SAMPLES / 2], costs[SAMPLES * 9 / 10]].map(|cost| (cost * 100.0).round() / 100.0))
}

/// Returns the measured kinds of work, each with the number of calls between two synchronizations.
fn measured(driver: &Driver) -> Result<Vec<(&'static str, usize, Work)>, CallError> {
    let (kernel, memory) = (kernel_that_stores(driver, 1)?, driver.allocate(4096)?);
    let (stream, event) = (driver.stream()?, driver.event()?);
    // A device that reaches no host memory refuses the store to address 0.
    let word = driver.shared(4096).and_then(|page| driver.device_pointer(page)).unwrap_or(0);
    Ok(vec![
        ("launch, stream empty", 1, Box::new(move |driver| driver.launch(kernel, memory, stream, false))),
        ("launch, back to back", BATCH, Box::new(move |driver| driver.launch(kernel, memory, stream, false))),
        ("write value 64 to pinned", BATCH, Box::new(move |driver| driver.write_value(stream, word, 1))),
        ("event record", BATCH, Box::new(move |driver| driver.record(event, stream))),
        (
            "launch + sync",
            1,
            Box::new(move |driver| {
                driver.launch(kernel, memory, stream, false)?;
                driver.synchronize_stream(stream)
            }),
        ),
    ])
}

/// What a polling thread does again and again.
type Poll = Box<dyn Fn(&Driver) + Send>;

/// Measures work while another thread calls `poll` again and again.
fn costs_beside(driver: &Arc<Driver>, poll: Option<Poll>) -> Result<Value, CallError> {
    let stop = Arc::new(AtomicBool::new(false));
    let thread = poll.map(|poll| {
        let (driver, stop) = (Arc::clone(driver), Arc::clone(&stop));
        std::thread::spawn(move || {
            driver.enter()?;
            while !stop.load(Ordering::Relaxed) {
                poll(&driver);
            }
            Ok::<_, CallError>(())
        })
    });
    let rows = measured(driver)?.into_iter().map(|(name, batch, work)| {
        let answer = cost(driver, &work, batch).map_or_else(|error| error.to_string().into(), Value::from);
        (name.to_owned(), answer)
    });
    let rows: Map<String, Value> = rows.collect();
    stop.store(true, Ordering::Relaxed);
    if let Some(thread) = thread {
        thread.join().map_err(|_| std::io::Error::other("the polling thread panicked"))??;
    }
    Ok(rows.into())
}

/// Measures work alone, beside a thread that polls the driver, and beside one that polls memory.
pub(super) fn launch_cost(driver: Driver) -> Result<Value, CallError> {
    let driver = Arc::new(driver);
    let (event, stream, word) = (driver.event()?, driver.stream()?, Mapping::memfd(4096, false)?);
    driver.record(event, stream)?;
    let poll_event = Box::new(move |driver: &Driver| drop(black_box(driver.query_event(event))));
    let poll_stream = Box::new(move |driver: &Driver| drop(black_box(driver.query(stream))));
    let poll_memory = Box::new(move |_: &Driver| {
        black_box(word.word(0).load(Ordering::Acquire));
    });
    Ok(json!({ "microseconds_p50_p90": {
        "alone": costs_beside(&driver, None)?,
        "another thread asks for an event": costs_beside(&driver, Some(poll_event))?,
        "another thread asks for the stream": costs_beside(&driver, Some(poll_stream))?,
        "another thread reads memory": costs_beside(&driver, Some(poll_memory))?,
    } }))
}
