//! Starts threads that report their panics. The process does not work without any of them.
//!
//! A thread that panics leaves its task undone: a socket that nobody serves, or a channel that is never
//! freed. The process lives on and looks healthy. So a panic that the work itself does not contain is
//! reported by [`on_panic`] to the process, which ends with an error. Its service manager then restarts it.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use crate::priority;
use crate::sync::lock;

/// Panic of a thread that [`spawn`] started. Rust's own message on stderr names the place in the code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread `{thread}` panicked: {message}")]
pub struct ThreadPanic {
    /// Name of the thread.
    pub thread: String,
    /// Message of the panic.
    pub message: String,
}

/// Function by which a process reacts to the panic of a thread, such as to end.
type Act = dyn Fn(ThreadPanic) + Send + Sync;

static ACT: Mutex<Option<Arc<Act>>> = Mutex::new(None);

/// Sets the function that is called in a thread of [`spawn`] that has panicked. It replaces an earlier `act`.
/// Without one, a panic only ends its thread.
pub fn on_panic(act: impl Fn(ThreadPanic) + Send + Sync + 'static) {
    *lock(&ACT) = Some(Arc::new(act));
}

/// Starts a thread whose panic is reported.
///
/// # Errors
/// The system has no room for another thread.
pub fn spawn(name: impl Into<String>, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let name = name.into();
    let thread = name.clone();
    Builder::new().name(name).spawn(move || {
        priority::disinherit();
        // Unwinding dropped everything that `work` held. All other state that it changed is shared with
        // threads that end with the process.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
            let message = panic_message(&*payload).to_owned();
            let act = lock(&ACT).clone();
            if let Some(act) = act {
                act(ThreadPanic { thread, message });
            }
        }
    })
}

/// Returns the text of a panic that was caught.
#[must_use]
pub fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_panic_is_reported_and_one_that_is_contained_is_not() {
        let (to, reported) = mpsc::channel();
        on_panic(move |panic| drop(to.send(panic)));
        let contained = || drop(catch_unwind(|| panic!("of the work's own")));
        spawn("contained", contained).unwrap().join().unwrap();
        spawn("quiet", || {}).unwrap().join().unwrap();
        spawn("literal", || panic!("a literal")).unwrap().join().unwrap();
        let number = 7;
        spawn("formatted", move || panic!("number {number}")).unwrap().join().unwrap();
        let expected = [("literal", "a literal"), ("formatted", "number 7")];
        let expected = expected
            .map(|(thread, message)| ThreadPanic { thread: thread.to_owned(), message: message.to_owned() });
        assert_eq!(reported.try_iter().collect::<Vec<_>>(), expected);
    }
}
