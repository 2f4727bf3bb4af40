//! Why code was refused last on this thread, in words: for the logs that programs ask the compiler for.

use std::cell::RefCell;

thread_local! {
    static WHY: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps a reason; several follow each other on lines of their own.
pub fn keep(why: &str) {
    // While the thread ends nobody asks any more.
    let _ = WHY.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if !kept.is_empty() {
            kept.push('\n');
        }
        kept.push_str(why);
    });
}

/// Takes what was kept since the last time.
pub fn take() -> String {
    WHY.try_with(|kept| std::mem::take(&mut *kept.borrow_mut())).unwrap_or_default()
}
