//! Waits: a thread spins for a bounded time that adapts to the usual duration of this wait, then sleeps.
//!
//! A spinning wait ends 0.1 µs after the event, a sleeping one some 30 µs after it, at times 300 µs. So a
//! wait that is usually short spins for twice its usual duration; one that is usually long naps until shortly
//! before the predicted end and spins through it ([`vgpu_pace`]), as the kernel's hybrid polling of block
//! devices does. Words that a GPU stores wake nobody, so this is what ends a wait for one in time. Where
//! guest and host share one processor no thread spins, because the other side needs it. Nor does a thread
//! whose spins were unsuccessful, or one of more threads than there are processors. A thread that loses its
//! processor while it spins stops spinning.
//!
//! A wait that is not over by then sleeps. A sleeping thread is woken by futex where guest and host share
//! pages in one kernel, but late if a GPU has stored the word. Elsewhere only time can wake it. So it sleeps
//! in steps ([`crate::poll_schedule`]) and is never late by more than an eighth. Where a futex wakes it, it
//! does so only for waits that are usually long, and until twice the usual time has passed. Timer slack, a
//! setting of the host program's thread, is left unchanged. In both cases the thread examines its device
//! twice a second, and searches for dead processes once a second.

use core::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use vgpu_pace::{LONG, PREEMPTED, WaitEstimate, WaitPlan};

use crate::counters::Live;
use crate::link::Link;
use crate::poll_schedule::PollSchedule;
use crate::session_error::SessionError;
use crate::sleep::{sleep_for, sleep_on};
use crate::tracer::Awaited;

/// Number of polls between two readings of the clock.
const POLLS: u32 = 24;
/// The longest sleep, after which the device is checked.
const SLICE: Duration = Duration::from_millis(450);

/// Waits until `ready`, which only loads from shared memory, returns true. `stop` adds reasons, beside a lost
/// session, to end the wait.
///
/// # Errors
/// Fails if the session is lost, or with an error of `ready` or `stop`.
#[inline]
pub(crate) fn wait_until(
    link: &Link,
    awaited: Awaited,
    usual: &WaitEstimate,
    mut ready: impl FnMut() -> Result<bool, SessionError>,
    stop: impl Fn(&Link) -> Result<(), SessionError>,
) -> Result<(), SessionError> {
    if ready()? { Ok(()) } else { wait_longer(link, awaited, usual, &mut ready, &stop) }
}

fn wait_longer(
    link: &Link,
    awaited: Awaited,
    usual: &WaitEstimate,
    ready: &mut impl FnMut() -> Result<bool, SessionError>,
    stop: &impl Fn(&Link) -> Result<(), SessionError>,
) -> Result<(), SessionError> {
    Live::add(&link.counters.waits, 1);
    let begin = link.tracer.begin();
    let mut slept = false;
    let waited = spin_then_sleep(link, awaited, usual, ready, stop, &mut slept);
    link.tracer.wait(awaited, begin, slept);
    waited
}

fn spin_then_sleep(
    link: &Link,
    awaited: Awaited,
    usual: &WaitEstimate,
    ready: &mut impl FnMut() -> Result<bool, SessionError>,
    stop: &impl Fn(&Link) -> Result<(), SessionError>,
    slept: &mut bool,
) -> Result<(), SessionError> {
    let start = Instant::now();
    let WaitPlan { nap, spin_until } = link.pace.plan(usual);
    if !nap.is_zero() {
        Live::add(&link.counters.sleeps, 1);
        *slept = true;
        if sleep_before_end(link, awaited, start, usual, nap, ready, stop)? {
            return Ok(());
        }
    }
    let mut spun = start.elapsed();
    if !spin_until.is_zero()
        && let Some(_spinning) = link.pace.spinning()
    {
        loop {
            for _ in 0..POLLS {
                core::hint::spin_loop();
                if ready()? {
                    let took = start.elapsed();
                    usual.spun(took, took.saturating_sub(spun));
                    return Ok(());
                }
            }
            link.enter()?;
            stop(link)?;
            let now = start.elapsed();
            let preempted = now.saturating_sub(spun) >= PREEMPTED;
            spun = now;
            if preempted || spun >= spin_until {
                break;
            }
        }
        usual.tried(false);
    } else {
        spun = Duration::ZERO;
    }
    if !*slept {
        Live::add(&link.counters.sleeps, 1);
        *slept = true;
    }
    let schedule = if nap.is_zero() {
        PollSchedule::new(usual.get(), start.elapsed(), SLICE)
    } else {
        PollSchedule::expected_from(nap)
    };
    if sleep_in_steps(link, awaited, start, usual, &schedule, ready, stop)? {
        return Ok(());
    }
    sleep_until_woken(link, awaited, start, None, ready, stop)?;
    usual.outlasted(spun, start.elapsed());
    Ok(())
}

/// Sleeps until `until` from the wait's start, which is before the predicted end, and learns if that was too
/// long. Returns whether the event has occurred.
fn sleep_before_end(
    link: &Link,
    awaited: Awaited,
    start: Instant,
    usual: &WaitEstimate,
    until: Duration,
    ready: &mut impl FnMut() -> Result<bool, SessionError>,
    stop: &impl Fn(&Link) -> Result<(), SessionError>,
) -> Result<bool, SessionError> {
    if !sleep_until(link, awaited, start, until, ready, stop)? {
        return Ok(false);
    }
    let took = start.elapsed();
    // A thread that was woken knows when the end came.
    let learn = if took < until { WaitEstimate::learn } else { WaitEstimate::overslept };
    learn(usual, took);
    Ok(true)
}

/// Sleeps until `until` from the wait's start, or until the host wakes the thread and the event has occurred.
/// Returns whether it has occurred.
fn sleep_until(
    link: &Link,
    awaited: Awaited,
    start: Instant,
    until: Duration,
    ready: &mut impl FnMut() -> Result<bool, SessionError>,
    stop: &impl Fn(&Link) -> Result<(), SessionError>,
) -> Result<bool, SessionError> {
    if link.pace.futex {
        return sleep_until_woken(link, awaited, start, Some(until), ready, stop);
    }
    // A signal ends a sleep early.
    while let Some(left) = until.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        sleep_for(left.min(SLICE));
        link.enter()?;
        stop(link)?;
        link.ping_waiting()?;
        if left > SLICE {
            ring_again(link)?;
        }
    }
    ready()
}

/// Sleeps until the host wakes the thread and the event has occurred, or until `until` from the wait's start.
/// Returns whether it has occurred.
fn sleep_until_woken(
    link: &Link,
    awaited: Awaited,
    start: Instant,
    until: Option<Duration>,
    ready: &mut impl FnMut() -> Result<bool, SessionError>,
    stop: &impl Fn(&Link) -> Result<(), SessionError>,
) -> Result<bool, SessionError> {
    let _asleep = link.pace.asleep(&link.channel);
    loop {
        // The host stores, fences, checks for sleepers, adds to the word and wakes. So this side is counted,
        // fences, reads the word, and polls once more, in this order.
        fence(Ordering::SeqCst);
        let word = link.channel.futex().load(Ordering::Acquire);
        if ready()? {
            return Ok(true);
        }
        link.enter()?;
        stop(link)?;
        let left = until.map_or(SLICE, |until| until.saturating_sub(start.elapsed()).min(SLICE));
        if left.is_zero() {
            return Ok(false);
        }
        let woken = sleep_on(link.channel.futex(), word, left);
        if ready()? {
            return Ok(true);
        }
        link.ping_waiting()?;
        if !woken && left == SLICE {
            link.tracer.stall(awaited, || link.channel.done());
            ring_again(link)?;
        }
    }
}

/// Sleeps in the steps of a schedule until the event has occurred. Returns false if it has not after twice
/// the usual time, and the host wakes the thread.
fn sleep_in_steps(
    link: &Link,
    awaited: Awaited,
    start: Instant,
    usual: &WaitEstimate,
    schedule: &PollSchedule,
    ready: &mut impl FnMut() -> Result<bool, SessionError>,
    stop: &impl Fn(&Link) -> Result<(), SessionError>,
) -> Result<bool, SessionError> {
    let overdue = match usual.get() {
        _ if !link.pace.futex => Duration::MAX,
        usual if usual > LONG => 2 * usual,
        _ => Duration::ZERO,
    };
    let mut waited = start.elapsed();
    let mut patience = waited + SLICE;
    if let Some(first) = schedule.first(waited)
        && sleep_before_end(link, awaited, start, usual, waited + first, ready, stop)?
    {
        return Ok(true);
    }
    loop {
        waited = start.elapsed();
        if waited >= overdue {
            return Ok(false);
        }
        if waited > patience {
            patience = waited + SLICE;
            link.tracer.stall(awaited, || link.channel.done());
            ring_again(link)?;
        }
        if sleep_until(link, awaited, start, waited + schedule.step(waited), ready, stop)? {
            usual.learn(start.elapsed());
            return Ok(true);
        }
    }
}

/// Rings the doorbell if the host says that it sleeps, whatever was rung before: the thread that published
/// the work may have been stopped before it rang.
#[cold]
fn ring_again(link: &Link) -> Result<(), SessionError> {
    fence(Ordering::SeqCst);
    if link.channel.host_sleeps() {
        link.ring_doorbell(&|| link.channel.host_sleeps())?;
    }
    Ok(())
}
