//! Questions about the order of work in a stream.

use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::{Value, json};

use super::code::kernel_that_stores;
use crate::driver::{CallError, Driver, status};

/// Copies after each of which a word is written.
const ROUNDS: u32 = 1000;
/// Bytes of each copy.
const COPIED: usize = 1 << 20;

/// Copies device memory to registered memory and makes the stream store a word after the copy. Counts the
/// 64-bit words of the copy that were not there when the stored word was.
pub(super) fn word_order(driver: &Driver) -> Result<Value, CallError> {
    let (target, words) = (driver.shared(COPIED)?, driver.shared(4096)?);
    let (stream, source) = (driver.stream()?, driver.allocate(COPIED)?);
    let at = driver.device_pointer(words)?;
    let (mut late, mut waited) = (0, 0.0);
    for round in 1..=ROUNDS {
        driver.fill(source, round, COPIED / 4, stream)?;
        driver.download(target, source, stream)?;
        let written = driver.write_value(stream, at, u64::from(round));
        if written.is_err() {
            return Ok(json!({ "word_order": { "write": status(&written) } }));
        }
        let start = Instant::now();
        while words.word(0).load(Ordering::Acquire) != u64::from(round) {
            std::hint::spin_loop();
        }
        waited += start.elapsed().as_secs_f64();
        late += target.words_other_than(u64::from(round) << 32 | u64::from(round));
    }
    Ok(json!({ "word_order": {
        "write": 0,
        "copies": ROUNDS,
        "words_that_came_late": late,
        "microseconds_until_the_word_is_seen": waited / f64::from(ROUNDS) * 1e6,
    } }))
}

/// Captures two launches of which the second may start before the first has ended, then a plain one.
pub(super) fn programmatic_edges(driver: &Driver) -> Result<Value, CallError> {
    let kernel = kernel_that_stores(driver, 1)?;
    let (stream, memory) = (driver.stream()?, driver.allocate(4096)?);
    driver.begin_capture(stream)?;
    driver.launch(kernel, memory, stream, false)?;
    let programmatic = driver.launch(kernel, memory, stream, true);
    let info = driver.capture_info(stream);
    let edges = driver.capture_edges(stream);
    let plain = driver.launch(kernel, memory, stream, false);
    let end = driver.end_capture(stream);
    Ok(json!({ "programmatic_edges": {
        "programmatic_launch": status(&programmatic),
        "capture_info_v2_behind_it": status(&info),
        "capture_info_v3_behind_it": status(&edges),
        "edges_of_what_follows": edges.unwrap_or_default(),
        "plain_launch_behind_it": status(&plain),
        "end_capture": status(&end),
    } }))
}
