//! "Event Management". An event's completion is a mark that the host stores behind the work before it, so queries and
//! times are read here. An event without timing shares its stream's word; one with timing has a word of its own while its newest
//! record is under way, since the time that the host stores with a word is that of the newest mark.

use std::ffi::c_uint;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use vgpu_abi::driver::{CUevent, CUstream, EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS};
use vgpu_abi::{CUresult, export};
use vgpu_transport::Word;
use vgpu_wire::body::stream::{EventCreate, EventDestroy, EventRecord, StreamWait};

use crate::arg::Out;
use crate::gpu::{Gpu, Minted};
use crate::lane::Goal;
use crate::slab::Slab;
use crate::stream::{DefaultStream, Stream, find};
use crate::sync::Mutex;
use crate::{Result, capture, context};

/// An event.
#[derive(Default)]
pub struct Event {
    gpu: AtomicPtr<Gpu>,
    context: AtomicUsize,
    number: AtomicU32,
    flags: AtomicU32,
    record: Mutex<Record>,
}

/// The newest record.
#[derive(Default)]
struct Record {
    /// Its mark; `None`: never recorded.
    goal: Option<Goal>,
    /// The stream it was recorded in, by its id.
    stream: u64,
    /// With timing: the word, until `time` is known.
    word: Option<Word>,
    /// With timing: nanoseconds on the executor's clock when the mark was stored.
    time: Option<u64>,
    /// [`Gpu::claims`] when it was recorded.
    claims: u64,
    /// The newest record is part of a capture.
    captured: Option<capture::Place>,
}

static EVENTS: Slab<Event> = Slab::new(3);

impl Event {
    fn gpu(&self) -> &'static Gpu {
        // SAFETY: `create` stored the address of a leaked value before the handle meant anything.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    fn timed(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & EVENT_DISABLE_TIMING == 0
    }

    fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }
}

impl Record {
    /// Whether the record's work is done, for a program that asks: what an earlier synchronize may have claimed to be done is
    /// waited for.
    fn answer(&mut self, gpu: &Gpu) -> Result<bool> {
        if !self.done(gpu)? {
            if self.claims == gpu.claims() || gpu.holds() {
                return Ok(false);
            }
            if let Some((word, value)) = self.goal {
                gpu.wait(word, value)?;
                self.harvest(gpu);
            }
        }
        gpu.learned();
        Ok(true)
    }

    /// Whether the record's work is done; keeps the time and gives the word back if so.
    fn done(&mut self, gpu: &Gpu) -> Result<bool> {
        let Some((word, value)) = self.goal else { return Ok(true) };
        if self.time.is_some() {
            return Ok(true);
        }
        let done = gpu.reached(word, value)?;
        if done {
            self.harvest(gpu);
        }
        Ok(done)
    }

    fn harvest(&mut self, gpu: &Gpu) {
        if let Some(word) = self.word.take() {
            self.time = Some(gpu.session.word_time(word.index()));
            gpu.retire(word);
        }
    }
}

fn get(event: CUevent) -> Result<&'static Event> {
    context::current()?;
    EVENTS.get(event.0).ok_or(CUresult::INVALID_HANDLE)
}

fn record(event: CUevent, stream: CUstream, flags: c_uint, default: DefaultStream) -> Result {
    let event = get(event)?;
    let stream = find(stream, default)?;
    if flags != 0 {
        // An external record is a node of its own in a graph; the contract has none.
        return Err(if flags == 1 { CUresult::NOT_SUPPORTED } else { CUresult::INVALID_VALUE });
    }
    let gpu = event.gpu();
    if !ptr::eq(gpu, stream.gpu()) {
        return Err(CUresult::INVALID_HANDLE);
    }
    if capture::any() && capture::intercept(stream)? {
        let place = capture::place(stream)?;
        event.record.lock().captured = Some(place);
        return Ok(());
    }
    gpu.late()?;
    let mut record = event.record.lock();
    let send =
        |mark| gpu.send(&EventRecord { event: event.number(), stream: stream.lane.number(), mark }, &[]);
    if event.timed() {
        // A word whose mark is still under way is not marked from another stream: its values could come in the wrong order.
        let word = match record.word.take() {
            Some(word) if record.stream == stream.id() => word,
            Some(word) => {
                gpu.retire(word);
                take_word(gpu, event)?
            }
            None => take_word(gpu, event)?,
        };
        let mark = word.mark();
        send(mark)?;
        stream.lane.given(gpu);
        record.word = Some(word);
        record.time = None;
        record.goal = Some((mark.word, mark.value));
    } else {
        record.goal = Some(stream.lane.mark(gpu, send)?);
    }
    record.stream = stream.id();
    record.claims = gpu.claims();
    record.captured = None;
    Ok(())
}

/// A word for a timed event; those of other events whose work is done are given back first if there is none.
fn take_word(gpu: &Gpu, mine: &Event) -> Result<Word> {
    if let Ok(word) = gpu.take_word() {
        return Ok(word);
    }
    for (_, event) in EVENTS.iter() {
        if !ptr::eq(event, mine) && ptr::eq(event.gpu(), gpu) {
            event.record.lock().done(gpu)?;
        }
    }
    gpu.take_word()
}

/// `cuStreamWaitEvent`
pub fn wait(stream: &'static Stream, event: CUevent, flags: c_uint) -> Result {
    let event = get(event)?;
    if flags != 0 {
        return Err(if flags == 1 { CUresult::NOT_SUPPORTED } else { CUresult::INVALID_VALUE });
    }
    let gpu = event.gpu();
    let mut record = event.record.lock();
    if capture::any() || record.captured.is_some() {
        match (&record.captured, capture::intercept(stream)?) {
            (Some(place), _) => return capture::join(stream, place),
            (None, true) => {
                if record.goal.is_none() {
                    return Ok(());
                }
                return capture::fail(stream, CUresult::STREAM_CAPTURE_ISOLATION);
            }
            (None, false) => {}
        }
    }
    gpu.late()?;
    if record.stream == stream.id() || record.done(gpu)? {
        return Ok(());
    }
    if ptr::eq(gpu, stream.gpu()) {
        return stream.send(&StreamWait { stream: stream.lane.number(), event: event.number() }, &[]);
    }
    // The hosts of two devices do not know each other's events: the guest waits.
    let goal = record.goal;
    drop(record);
    match goal {
        Some((word, value)) => gpu.wait(word, value),
        None => Ok(()),
    }
}

fn query(event: CUevent) -> Result<bool> {
    let event = get(event)?;
    let gpu = event.gpu();
    gpu.late()?;
    let mut record = event.record.lock();
    if let Some(place) = &record.captured {
        return Err(capture::fail_place(place, CUresult::CAPTURED_EVENT));
    }
    capture::forbid_unsafe()?;
    let done = record.answer(gpu)?;
    drop(record);
    gpu.late()?;
    Ok(done)
}

fn synchronize(event: CUevent) -> Result {
    let event = get(event)?;
    let gpu = event.gpu();
    let mut record = event.record.lock();
    if let Some(place) = &record.captured {
        return Err(capture::fail_place(place, CUresult::CAPTURED_EVENT));
    }
    capture::forbid_unsafe()?;
    if record.done(gpu)? {
        drop(record);
        gpu.learned();
        return gpu.late();
    }
    let goal = record.goal;
    drop(record);
    if let Some((word, value)) = goal {
        gpu.wait(word, value)?;
    }
    gpu.late()
}

/// Nanoseconds at which a timed event's newest record was done.
fn time(event: CUevent) -> Result<u64> {
    let event = get(event)?;
    if !event.timed() {
        return Err(CUresult::INVALID_HANDLE);
    }
    let gpu = event.gpu();
    let mut record = event.record.lock();
    if let Some(place) = &record.captured {
        return Err(capture::fail_place(place, CUresult::CAPTURED_EVENT));
    }
    if record.goal.is_none() {
        return Err(CUresult::INVALID_HANDLE);
    }
    if !record.answer(gpu)? {
        return Err(CUresult::NOT_READY);
    }
    record.time.ok_or(CUresult::UNKNOWN)
}

fn elapsed(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> Result {
    let out = milliseconds.check()?;
    if !ptr::eq(get(start)?.gpu(), get(end)?.gpu()) {
        return Err(CUresult::INVALID_HANDLE);
    }
    let (from, to) = (time(start)?, time(end)?);
    // Of a signed difference, as CUDA answers for events in the other order.
    let nanoseconds = to.wrapping_sub(from).cast_signed();
    #[allow(clippy::cast_precision_loss, reason = "CUDA's unit and type")]
    out.set((nanoseconds as f64 / 1e6) as f32)
}

fn destroy(event: CUevent) -> Result {
    get(event)?;
    EVENTS.remove(event.0, end).ok_or(CUresult::INVALID_HANDLE)?
}

fn end(event: &Event) -> Result {
    let gpu = event.gpu();
    let record = std::mem::take(&mut *event.record.lock());
    if let Some(word) = record.word {
        gpu.retire(word);
    }
    gpu.send(&EventDestroy { event: event.number(), reserved: 0 }, &[]).map(drop)
}

/// Ends the events of a context.
pub fn end_context(context: usize) {
    for (handle, event) in EVENTS.iter() {
        if event.context.load(Ordering::Relaxed) == context {
            // The context ends whatever the host says to it.
            let _ = EVENTS.remove(handle, end);
        }
    }
}

export! {
    /// `cuEventCreate`
    pub fn cuEventCreate(event: Out<CUevent>, flags: c_uint) -> CUresult {
        let context = context::current()?;
        let out = event.check()?;
        let gpu = context.gpu();
        if flags & !(EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING | EVENT_INTERPROCESS) != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        if flags & EVENT_INTERPROCESS != 0 {
            // CUDA wants such an event without timing; other processes cannot have it here.
            let timed = flags & EVENT_DISABLE_TIMING == 0;
            return Err(if timed { CUresult::INVALID_VALUE } else { CUresult::NOT_SUPPORTED });
        }
        gpu.late()?;
        let number = gpu.mint(Minted::Event);
        gpu.send(&EventCreate { event: number, flags }, &[])?;
        let (handle, _) = EVENTS
            .insert(|_, event| {
                event.gpu.store(ptr::from_ref(gpu).cast_mut(), Ordering::Relaxed);
                event.context.store(context.handle(), Ordering::Relaxed);
                event.number.store(number, Ordering::Relaxed);
                event.flags.store(flags, Ordering::Relaxed);
                *event.record.lock() = Record::default();
            })
            .ok_or(CUresult::OUT_OF_MEMORY)?;
        out.set(CUevent(handle))
    }

    /// `cuEventDestroy_v2`
    pub fn cuEventDestroy_v2(event: CUevent) -> CUresult { destroy(event) }

    /// `cuEventDestroy`
    pub fn cuEventDestroy(event: CUevent) -> CUresult { destroy(event) }

    /// `cuEventQuery`
    pub fn cuEventQuery(event: CUevent) -> CUresult {
        if query(event)? { Ok(()) } else { Err(CUresult::NOT_READY) }
    }

    /// `cuEventSynchronize`
    pub fn cuEventSynchronize(event: CUevent) -> CUresult { synchronize(event) }

    /// `cuEventElapsedTime`
    pub fn cuEventElapsedTime(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> CUresult {
        elapsed(milliseconds, start, end)
    }

    /// `cuEventElapsedTime_v2`
    pub fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> CUresult {
        elapsed(milliseconds, start, end)
    }
}

export_both! {
    /// `cuEventRecord`
    pub fn cuEventRecord, cuEventRecord_ptsz(event: CUevent, stream: CUstream) |default| {
        record(event, stream, 0, default)
    }

    /// `cuEventRecordWithFlags`
    pub fn cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz(
        event: CUevent, stream: CUstream, flags: c_uint
    ) |default| {
        record(event, stream, flags, default)
    }
}
