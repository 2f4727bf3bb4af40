//! Why code was last refused on this thread, as text for the compiler logs that programs ask for.

use std::cell::RefCell;
use std::fmt::Arguments;

use vgpu_abi::log;

thread_local! {
    static WHY: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Stores a reason for this thread. Several reasons are kept on separate lines.
pub fn record(why: &str) {
    // While the thread ends, no call of it takes the reasons any more.
    let _ = WHY.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if !kept.is_empty() {
            kept.push('\n');
        }
        kept.push_str(why);
    });
}

/// Takes the reasons kept since the last call.
pub fn take_last() -> String {
    WHY.try_with(|kept| std::mem::take(&mut *kept.borrow_mut())).unwrap_or_default()
}

/// Reports why code is refused: in the log, and in the compiler's log if the program asked for one.
pub fn report(why: Arguments<'_>) {
    log::error(why);
    record(&why.to_string());
}
