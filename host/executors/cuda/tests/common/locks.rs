//! Calls of the driver under a lock of the executor. A call ends the tests unless it is listed here, because
//! whoever waits for the lock waits for the driver.

use std::backtrace::Backtrace;
use std::collections::BTreeSet;
use std::io::{Write, stderr};
use std::process::abort;
use std::sync::Mutex;

use vgpu_executor_cuda::observe_calls_under_locks;

/// Calls that are made under a lock on purpose: the call, the type of the data that the lock protects, and why
/// nobody waits for it.
pub const ON_PURPOSE: [(&str, &str, &str); 1] = [(
    "cuEventElapsedTime",
    "vgpu_executor_cuda::gpu::clock::Clock",
    "Only the thread of the completions takes the lock. The driver subtracts two times that it has.",
)];

/// Calls of [`ON_PURPOSE`] that were made, with the types of the locks.
static MADE: Mutex<BTreeSet<(&str, &str)>> = Mutex::new(BTreeSet::new());

/// Watches all calls of this process from now on.
pub fn watch() {
    observe_calls_under_locks(judge);
}

fn judge(call: &'static str, lock: &'static str) {
    if ON_PURPOSE.iter().any(|listed| (listed.0, listed.1) == (call, lock)) {
        MADE.lock().expect("no test panics meanwhile").insert((call, lock));
        return;
    }
    // A panic in a thread of the executor would be logged and end no test.
    let place = Backtrace::force_capture();
    let _ =
        writeln!(stderr(), "{call} is called under the lock of {lock}, for which others may wait:\n{place}");
    abort();
}

/// Returns the listed calls that were not made so far.
#[allow(dead_code, reason = "only the tests that make all of them ask")]
pub fn not_made() -> Vec<(&'static str, &'static str)> {
    let made = MADE.lock().expect("no test panics meanwhile");
    ON_PURPOSE.iter().map(|listed| (listed.0, listed.1)).filter(|call| !made.contains(call)).collect()
}
