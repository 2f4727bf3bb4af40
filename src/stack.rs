//! Provides a stack that is large enough, independent of the stack limit of this process.

use std::panic::resume_unwind;
use std::thread;

use nix::sys::resource::{Resource, getrlimit};

/// Required stack size in bytes, the default of a Rust thread.
const ENOUGH: usize = 2 << 20;

/// Runs `work` on a sufficiently large stack: that of a new thread if the limit of the main thread is lower.
pub fn enough<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let mut work = Some(work);
    let mut done = None;
    if getrlimit(Resource::RLIMIT_STACK).is_ok_and(|(soft, _)| soft < ENOUGH as u64) {
        let (work, done) = (&mut work, &mut done);
        let ended = thread::scope(|scope| {
            let work = move || *done = work.take().map(|work| work());
            // Where there can be no thread it is tried as it is.
            Some(thread::Builder::new().stack_size(ENOUGH).spawn_scoped(scope, work).ok()?.join())
        });
        if let Some(Err(panic)) = ended {
            resume_unwind(panic);
        }
    }
    done.or_else(|| work.map(|work| work())).expect("either the thread or this has done it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_once() {
        let mut times = 0;
        assert_eq!(
            enough(|| {
                times += 1;
                times
            }),
            1
        );
        assert_eq!(times, 1);
    }
}
