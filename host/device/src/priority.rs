//! The raised priority of the thread that replaces a device's program. A VM's accesses wait meanwhile, and on
//! a host whose processors are all busy a thread of the usual priority waits for its turn several times.
//!
//! Measured on two processors with sixteen busy programs, 20 reloads: 42 to 50 ms at the median and 105 ms at
//! most without it, 24 and 35 ms with it.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, getpriority_process, setpriority_process};

/// Nice value of a thread whose priority nobody has changed (setpriority(2)).
const USUAL: i32 = 0;
/// Nice value of the highest priority.
const RAISED: i32 = -20;

/// Whether a thread of this process has a raised priority, which threads that it starts would inherit.
static IS_RAISED: AtomicBool = AtomicBool::new(false);

/// The raised priority of the thread that has made this. It is the usual one again when this is dropped, in
/// the same thread. The program that the thread executes before inherits it.
#[derive(Debug)]
pub struct RaisedPriority(());

impl RaisedPriority {
    /// Raises the priority of the calling thread. Threads that [`crate::threads::spawn`] starts meanwhile
    /// have the usual one. Returns `None`, and changes nothing, if somebody has chosen a priority for this
    /// process, or if it has no right to raise one (`CAP_SYS_NICE`).
    #[must_use]
    pub fn raise() -> Option<Self> {
        if getpriority_process(None) != Ok(USUAL) || setpriority_process(None, RAISED).is_err() {
            return None;
        }
        Some(Self::inherited())
    }

    /// Returns the raised priority that the calling thread has from the program before this one.
    #[must_use]
    pub fn inherited() -> Self {
        IS_RAISED.store(true, Ordering::Relaxed);
        Self(())
    }

    /// Raises the priority of the first thread of a process, too, which keeps it.
    pub fn lend(&self, process: Pid) {
        // A process that has ended needs none.
        let _ = setpriority_process(Some(process), RAISED);
    }
}

impl Drop for RaisedPriority {
    fn drop(&mut self) {
        IS_RAISED.store(false, Ordering::Relaxed);
        reset();
    }
}

/// Gives a thread that has just started the usual priority, if it has inherited a raised one.
pub(crate) fn disinherit() {
    if IS_RAISED.load(Ordering::Relaxed) {
        reset();
    }
}

fn reset() {
    // Lowering one's own priority is always allowed.
    let _ = setpriority_process(None, USUAL);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_raised_priority_is_one_threads_and_ends_with_its_value() {
        let nice = || getpriority_process(None).unwrap();
        // A process that is not root's may not raise it, and one that was started with another has it chosen.
        let may = nice() == USUAL && rustix::process::geteuid().is_root();
        std::thread::spawn(move || {
            let raised = RaisedPriority::raise();
            assert_eq!((raised.is_some(), nice() == RAISED), (may, may));
            assert!(RaisedPriority::raise().is_none(), "it is not the usual one now");
            let (to, started) = mpsc::channel();
            crate::threads::spawn("usual", move || to.send(nice()).unwrap()).unwrap().join().unwrap();
            assert_eq!(started.recv() == Ok(USUAL), may || nice() == USUAL);
            drop(raised);
            assert_ne!(nice(), RAISED);
        })
        .join()
        .unwrap();
    }
}
