//! Destination of the library's log. There is one per process, since the library has one callback.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::api::{self, Api};
use crate::log::{Level, Log};

static LOG: Mutex<Log> = Mutex::new(Log::new(Level::Debug));

fn log() -> MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn receive(level: c_int, piece: *const c_char, _user: *mut c_void) {
    if let Some(piece) = api::text(piece) {
        log().append(level, &piece);
    }
}

/// Redirects the libraries' log to this process's sink, which prints messages of at least the level `least`.
pub(super) fn begin(api: &Api, least: Level) {
    *log() = Log::new(least);
    // SAFETY: the callback is a function that lives as long as the program.
    unsafe { (api.llama_log_set)(receive, std::ptr::null_mut()) };
}

/// Returns the number of the most recent model's layers on GPUs and of all its layers.
pub(super) fn offloaded() -> Option<(u32, u32)> {
    log().offloaded()
}
