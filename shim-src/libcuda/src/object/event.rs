//! Events. An event's completion is a mark that the host stores after the work before it, so queries and
//! times are answered here. An event without timing shares its stream's word. One with timing has a word of
//! its own while its newest record is pending, since the time that the host stores with a word is that of the
//! newest mark.

use std::ffi::c_uint;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUevent, EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS};
use vgpu_transport::Word;
use vgpu_wire::body::stream::{EventCreate, EventDestroy, EventRecord, StreamWait};

use crate::Result;
use crate::object::context::Context;
use crate::object::gpu::Gpu;
use crate::object::stream::Stream;
use crate::object::{capture, current};
use crate::queue::pending::FencePoint;
use crate::queue::submission::{Minted, Queue};
use crate::slab::Slab;
use crate::sync::Mutex;

/// The record behind a `CUevent`.
#[derive(Default)]
pub struct Event {
    gpu: AtomicPtr<Gpu>,
    context: AtomicUsize,
    number: AtomicU32,
    flags: AtomicU32,
    record: Mutex<EventState>,
}

/// The newest record of an event.
#[derive(Default)]
struct EventState {
    /// Fence point of the record; `None` if the event was never recorded.
    fence: Option<FencePoint>,
    /// Id of the stream in which it was recorded.
    stream: u64,
    /// Number of the newest hold for which the record waits, or 0.
    hold: u32,
    /// Word of an event with timing, held until `time` is known.
    word: Option<Word>,
    /// Time of an event with timing: nanoseconds on the executor's clock when the mark was stored.
    time: Option<u64>,
    /// Value of [`Queue::join_epoch`] just before the event was recorded.
    join_epoch: u64,
    /// Value of [`Queue::observed_epoch`] just before the event was recorded.
    observed_epoch: u64,
    /// Whether the program has been told that the record's work is complete.
    told: bool,
    /// Position in the capture of which the newest record is part; `None` if it is part of none.
    captured: Option<capture::CapturePoint>,
}

/// Maximum time by which a host stores a mark later than the mark of work that is ordered after it. Hosts
/// whose GPU stores marks itself notice an event with timing up to a millisecond later.
const LATE_MOST: Duration = Duration::from_millis(100);

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

impl EventState {
    /// Returns whether the record's work is complete, for a program that asks and whose
    /// [`Queue::observed_epoch`] was `epoch`. Work that a synchronize may have covered by a join is waited
    /// for. If the program had learned of another completion since the record, that one may have been ordered
    /// after this work, and the host may merely not have stored this mark yet. So the mark is waited for, but
    /// no longer than the host may need.
    fn answer(&mut self, queue: &Queue, epoch: u64) -> Result<bool> {
        if self.done(queue)? {
            self.tell(queue);
            return Ok(true);
        }
        if queue.holds.any() {
            return Ok(false);
        }
        if self.join_epoch != queue.join_epoch()
            && let Some((word, value)) = self.fence
        {
            queue.wait(word, value)?;
            self.harvest(queue);
            self.told = true;
            return Ok(true);
        }
        if self.observed_epoch == epoch {
            return Ok(false);
        }
        let end = Instant::now() + LATE_MOST;
        while Instant::now() < end {
            std::thread::yield_now();
            if self.done(queue)? {
                self.tell(queue);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Counts an observed completion, when the program first learns that the record has completed.
    fn tell(&mut self, queue: &Queue) {
        if !std::mem::replace(&mut self.told, true) {
            queue.observe_completion();
        }
    }

    /// Returns whether the record's work has completed. If so, stores the time of an event with timing and
    /// frees its word.
    fn done(&mut self, queue: &Queue) -> Result<bool> {
        let Some((word, value)) = self.fence else { return Ok(true) };
        if self.time.is_some() {
            return Ok(true);
        }
        let done = queue.reached(word, value)?;
        if done {
            self.harvest(queue);
        }
        Ok(done)
    }

    fn harvest(&mut self, queue: &Queue) {
        if let Some(word) = self.word.take() {
            self.time = Some(queue.session.word_time(word.index()));
            queue.retire(word);
        }
    }
}

/// Returns the event of a handle. Fails if the calling thread has no context.
pub fn get(event: CUevent) -> Result<&'static Event> {
    current::context()?;
    EVENTS.get(event.0).ok_or(CUresult::INVALID_HANDLE)
}

/// Records an event in a stream. `flags` must be 0: an external record (1) is not supported.
pub fn record(event: &Event, stream: &Stream, flags: c_uint) -> Result {
    if flags != 0 {
        // An external record would be a node of its own in a graph, which the contract lacks.
        return Err(if flags == 1 { CUresult::NOT_SUPPORTED } else { CUresult::INVALID_VALUE });
    }
    let gpu = event.gpu();
    if !ptr::eq(gpu, stream.gpu()) {
        return Err(CUresult::INVALID_HANDLE);
    }
    if capture::intercept(stream)? {
        let place = capture::place(stream)?;
        event.record.lock().captured = Some(place);
        return Ok(());
    }
    gpu.queue.async_error()?;
    stream.timeline.wait_for_room(&gpu.queue);
    let mut record = event.record.lock();
    record.join_epoch = gpu.queue.join_epoch();
    record.observed_epoch = gpu.queue.observed_epoch();
    record.told = false;
    record.hold = stream.timeline.last_hold(&gpu.queue);
    let number = stream.timeline.number();
    let send = |mark| gpu.queue.send(&EventRecord { event: event.number(), stream: number, mark }, &[]);
    if event.timed() {
        // A word whose mark is under way is not marked from another stream, because its values could arrive
        // in the wrong order.
        let word = match record.word.take() {
            Some(word) if record.stream == stream.id() => word,
            Some(word) => {
                gpu.queue.retire(word);
                take_word(gpu, event)?
            }
            None => take_word(gpu, event)?,
        };
        let mark = word.mark();
        send(mark)?;
        stream.timeline.submitted(&gpu.queue);
        record.word = Some(word);
        record.time = None;
        record.fence = Some((mark.word, mark.value));
    } else {
        record.fence = Some(stream.timeline.mark(&gpu.queue, send)?);
    }
    record.stream = stream.id();
    record.captured = None;
    Ok(())
}

/// Takes a word for an event with timing. If there is none, first frees the words of other events that have
/// completed.
fn take_word(gpu: &Gpu, mine: &Event) -> Result<Word> {
    if let Ok(word) = gpu.queue.take_word() {
        return Ok(word);
    }
    for (_, event) in EVENTS.iter() {
        if !ptr::eq(event, mine) && ptr::eq(event.gpu(), gpu) {
            event.record.lock().done(&gpu.queue)?;
        }
    }
    gpu.queue.take_word()
}

/// Orders later work of a stream after an event's newest record. For an event of another device the calling
/// thread waits. `flags` must be 0: an external wait (1) is not supported.
pub fn wait(stream: &'static Stream, event: &Event, flags: c_uint) -> Result {
    if flags != 0 {
        return Err(if flags == 1 { CUresult::NOT_SUPPORTED } else { CUresult::INVALID_VALUE });
    }
    let gpu = event.gpu();
    // Before the lock, because a function that the stream waits for may ask about the event.
    stream.timeline.wait_for_room(&stream.gpu().queue);
    let mut record = event.record.lock();
    if capture::any() || record.captured.is_some() {
        match (&record.captured, capture::intercept(stream)?) {
            (Some(place), _) => return capture::join(stream, place),
            (None, true) => {
                if record.fence.is_none() {
                    return Ok(());
                }
                return capture::fail(stream, CUresult::STREAM_CAPTURE_ISOLATION);
            }
            (None, false) => {}
        }
    }
    gpu.queue.async_error()?;
    if record.stream == stream.id() || record.done(&gpu.queue)? {
        return Ok(());
    }
    if ptr::eq(gpu, stream.gpu()) {
        gpu.queue.send(&StreamWait { stream: stream.timeline.number(), event: event.number() }, &[])?;
        stream.timeline.wait_for_hold(record.hold);
        stream.timeline.submitted(&gpu.queue);
        return Ok(());
    }
    // The hosts of two devices do not know each other's events, so the guest waits.
    let fence = record.fence;
    drop(record);
    match fence {
        Some((word, value)) => gpu.queue.wait(word, value),
        None => Ok(()),
    }
}

/// Returns whether the event's newest record has completed.
pub fn query(event: &Event) -> Result<bool> {
    let gpu = event.gpu();
    gpu.queue.async_error()?;
    let mut record = event.record.lock();
    if let Some(place) = &record.captured {
        return Err(capture::fail_capture(place, CUresult::CAPTURED_EVENT));
    }
    capture::forbid_unsafe()?;
    let done = record.answer(&gpu.queue, gpu.queue.observed_epoch())?;
    drop(record);
    gpu.queue.async_error()?;
    Ok(done)
}

/// Waits until the event's newest record has completed.
pub fn synchronize(event: &Event) -> Result {
    let gpu = event.gpu();
    let mut record = event.record.lock();
    if let Some(place) = &record.captured {
        return Err(capture::fail_capture(place, CUresult::CAPTURED_EVENT));
    }
    capture::forbid_unsafe()?;
    if record.done(&gpu.queue)? {
        record.tell(&gpu.queue);
        drop(record);
        return gpu.queue.async_error();
    }
    let fence = record.fence;
    drop(record);
    if let Some((word, value)) = fence {
        gpu.queue.wait(word, value)?;
    }
    gpu.queue.async_error()
}

/// Returns the time at which an event's newest record completed, in nanoseconds on the executor's clock.
/// `epoch` is [`Queue::observed_epoch`] when the program asked.
fn time(event: &Event, epoch: u64) -> Result<u64> {
    if !event.timed() {
        return Err(CUresult::INVALID_HANDLE);
    }
    let gpu = event.gpu();
    let mut record = event.record.lock();
    if let Some(place) = &record.captured {
        return Err(capture::fail_capture(place, CUresult::CAPTURED_EVENT));
    }
    if record.fence.is_none() {
        return Err(CUresult::INVALID_HANDLE);
    }
    if !record.answer(&gpu.queue, epoch)? {
        return Err(CUresult::NOT_READY);
    }
    record.time.ok_or(CUresult::UNKNOWN)
}

/// Returns the milliseconds from `start` to `end`, negative if `end` completed first. Fails with not-ready
/// while either has not completed, and with invalid-handle if one is without timing or was never recorded.
pub fn elapsed(start: &Event, end: &Event) -> Result<f32> {
    if !ptr::eq(start.gpu(), end.gpu()) {
        return Err(CUresult::INVALID_HANDLE);
    }
    let epoch = start.gpu().queue.observed_epoch();
    let (from, to) = (time(start, epoch)?, time(end, epoch)?);
    // The difference is signed: CUDA answers a negative time for events in the other order.
    let nanoseconds = to.wrapping_sub(from).cast_signed();
    #[allow(clippy::cast_precision_loss, reason = "CUDA's unit and type")]
    Ok((nanoseconds as f64 / 1e6) as f32)
}

/// Creates an event in a context. Returns its handle.
pub fn create(context: &Context, flags: c_uint) -> Result<usize> {
    let gpu = context.gpu();
    if flags & !(EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING | EVENT_INTERPROCESS) != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    if flags & EVENT_INTERPROCESS != 0 {
        // CUDA requires such an event to be without timing; other processes cannot have it here.
        let timed = flags & EVENT_DISABLE_TIMING == 0;
        return Err(if timed { CUresult::INVALID_VALUE } else { CUresult::NOT_SUPPORTED });
    }
    gpu.queue.async_error()?;
    let number = gpu.queue.mint(Minted::Event);
    gpu.queue.send(&EventCreate { event: number, flags }, &[])?;
    let (handle, _) = EVENTS
        .insert(|_, event| {
            event.gpu.store(ptr::from_ref(gpu).cast_mut(), Ordering::Relaxed);
            event.context.store(context.handle(), Ordering::Relaxed);
            event.number.store(number, Ordering::Relaxed);
            event.flags.store(flags, Ordering::Relaxed);
            *event.record.lock() = EventState::default();
        })
        .ok_or(CUresult::OUT_OF_MEMORY)?;
    Ok(handle)
}

/// Destroys an event and frees its word.
pub fn destroy(event: CUevent) -> Result {
    get(event)?;
    EVENTS.remove(event.0, end).ok_or(CUresult::INVALID_HANDLE)?
}

fn end(event: &Event) -> Result {
    let gpu = event.gpu();
    let record = std::mem::take(&mut *event.record.lock());
    if let Some(word) = record.word {
        gpu.queue.retire(word);
    }
    gpu.queue.send(&EventDestroy { event: event.number(), reserved: 0 }, &[]).map(drop)
}

/// Ends the events of a context.
pub fn end_context(context: usize) {
    for (handle, event) in EVENTS.iter() {
        if event.context.load(Ordering::Relaxed) == context {
            // The context ends even if the host returns an error.
            let _ = EVENTS.remove(handle, end);
        }
    }
}
