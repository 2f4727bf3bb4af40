//! Parses a server's log as it arrives and recognises when the server has reported its compute devices.

use std::time::{Duration, Instant};

use crate::ollama::log::FOUND;

/// Time after the last device line at which the list counts as complete. The lines arrive together, and no
/// other line may follow for long.
const PAUSE: Duration = Duration::from_millis(150);
/// Number of bytes at the log's end that are searched.
const KEPT: usize = 64 << 10;

/// State of parsing a server's log.
#[derive(Debug, Default)]
pub struct Watch {
    lines: Vec<String>,
    /// Time at which the last device line arrived.
    last: Option<Instant>,
    /// Whether another line has followed the device lines.
    over: bool,
    /// Bytes of a line that is not complete yet.
    rest: Vec<u8>,
    tail: Vec<u8>,
    seen: u64,
}

impl Watch {
    /// Adds bytes of the log that arrived at the time `now`.
    pub fn feed(&mut self, bytes: &[u8], now: Instant) {
        self.seen += bytes.len() as u64;
        self.tail.extend_from_slice(bytes);
        self.tail.drain(..self.tail.len().saturating_sub(KEPT));
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if line.contains(FOUND) {
                self.lines.push(line);
                self.last = Some(now);
            } else {
                self.over |= self.last.is_some();
            }
        }
        // A line without an end is none of those that are waited for.
        if self.rest.len() > KEPT {
            self.rest.clear();
        }
    }

    /// Returns the lines in which the server reported its compute devices.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Returns whether all device lines have arrived.
    pub fn complete(&self, now: Instant) -> bool {
        self.over || self.last.is_some_and(|last| now.duration_since(last) >= PAUSE)
    }

    /// Returns the number of bytes read so far.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns whether the end of the log, up to `KEPT` bytes, contains `text`.
    pub fn saw(&self, text: &str) -> bool {
        memchr::memmem::find(&self.tail, text.as_bytes()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"msg=\"inference compute\" library=CUDA id=";

    #[test]
    fn all_devices_are_waited_for() {
        let (mut watch, now) = (Watch::default(), Instant::now());
        watch.feed(b"msg=\"looking\"\n", now);
        assert!(!watch.complete(now + PAUSE));
        watch.feed(&[LINE, b"0\n", LINE].concat(), now);
        assert_eq!(watch.lines().len(), 1);
        watch.feed(b"1\n", now);
        assert_eq!(watch.lines().len(), 2);
        assert!(!watch.complete(now) && watch.complete(now + PAUSE), "a silence ends them");
        watch.feed(b"msg=\"vram-based default context\"\n", now);
        assert!(watch.complete(now), "and so does another line");
    }

    #[test]
    fn lines_that_come_in_pieces_and_without_an_end() {
        let (mut watch, now) = (Watch::default(), Instant::now());
        for piece in [LINE, b"0", b" total=1\n"] {
            watch.feed(piece, now);
        }
        assert!(watch.lines()[0].ends_with("id=0 total=1"));
        watch.feed(&vec![b'x'; 3 * KEPT], now);
        assert!(watch.rest.is_empty() && watch.tail.len() == KEPT);
        watch.feed(b"\nbind: address already in use\n", now);
        assert!(watch.saw("already in use") && !watch.saw("inference"));
        assert_eq!(watch.seen() as usize, LINE.len() + 10 + 3 * KEPT + 29 + 1);
    }
}
