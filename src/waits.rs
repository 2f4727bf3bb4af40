//! Names of the operations that this process is waiting for: a program, an answer, or a file whose file
//! system may never answer. `check` prints them while it waits and when its time has run out.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of the last guard, and the names of the pending operations with their guards' numbers, outermost
/// first.
static NAMES: Mutex<(u64, Vec<(u64, String)>)> = Mutex::new((0, Vec::new()));

fn names() -> MutexGuard<'static, (u64, Vec<(u64, String)>)> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guard of a pending operation. Dropping it removes the operation's name.
#[derive(Debug)]
#[must_use]
pub struct Waiting(u64);

/// Records that this process waits for `name`, until the guard is dropped.
pub fn on(name: impl Into<String>) -> Waiting {
    let mut names = names();
    names.0 += 1;
    let number = names.0;
    names.1.push((number, name.into()));
    Waiting(number)
}

impl Drop for Waiting {
    fn drop(&mut self) {
        names().1.retain(|(number, _)| *number != self.0);
    }
}

/// Returns the name of the innermost pending operation.
pub fn now() -> Option<String> {
    names().1.last().map(|(_, name)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_is_named_until_it_is_over() {
        let named = |name: &str| names().1.iter().any(|(_, known)| known == name);
        let outer = on("waiting-test-outer");
        {
            let _inner = on("waiting-test-inner");
            assert!(named("waiting-test-outer") && named("waiting-test-inner"));
        }
        assert!(named("waiting-test-outer") && !named("waiting-test-inner"));
        drop(outer);
        assert!(!named("waiting-test-outer"));
    }
}
