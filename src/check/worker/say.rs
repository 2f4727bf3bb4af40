//! Reports the steps of a worker, and ends the worker if a step takes too long; the report then shows that
//! the step has not ended.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use vgpu_findings::busy;
use vgpu_probe_steps::{Line, Message};
use vgpu_transport::Progress;

use crate::check::messages::StepFailure;
use crate::device::alive::{Patience, TICK};

/// Exit code of a worker whose step took too long.
const TOO_LONG: i32 = 124;

/// Remaining time of the current step.
static STEP: Mutex<Option<Patience>> = Mutex::new(None);
/// Progress counters of the device, once it has been opened.
static PROGRESS: Mutex<Option<Progress>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Announces the step `M`, which may take up to `limit`, or longer while the device makes progress on other
/// work.
pub fn begin<M: Message>(limit: Duration) {
    say(&Line::begin(M::STEP));
    *lock(&STEP) = Some(Patience::new(limit));
}

/// Reports that a step succeeded.
pub fn done<M: Message>(message: &M) {
    end(M::STEP, true, message);
}

/// Reports that the step `M` failed.
pub fn failed<M: Message>(failure: &StepFailure) {
    end(M::STEP, false, failure);
}

/// Reports the outcome of a step whose message describes a failure itself.
pub fn outcome<M: Message>(ok: bool, message: &M) {
    end(M::STEP, ok, message);
}

/// Extends the time of steps while this device makes progress.
pub fn follow_progress(progress: Option<Progress>) {
    *lock(&PROGRESS) = progress;
}

/// Starts a thread that ends the process when a step takes too long.
pub fn watch() {
    // Without it the parent's time limit is the only one.
    let _ = std::thread::Builder::new().spawn(|| {
        loop {
            std::thread::sleep(TICK);
            let share = busy::share();
            let progress = lock(&PROGRESS).as_ref().map_or(0, Progress::count);
            if lock(&STEP).as_mut().is_some_and(|patience| !patience.tick(progress, share)) {
                std::process::exit(TOO_LONG);
            }
        }
    });
}

fn end(step: &str, ok: bool, body: &impl Serialize) {
    *lock(&STEP) = None;
    say(&Line::end(step, ok, body));
}

fn say(line: &impl Serialize) {
    let text = serde_json::to_string(line).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // The reader may have ended, and errors are then of no interest.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
