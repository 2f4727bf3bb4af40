//! The library's log: it is passed on to stderr, and read for the number of offloaded layers, which llama.cpp
//! reports nowhere else.

use std::io::Write;

/// `enum ggml_log_level` of ggml.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Debugging details.
    Debug = 1,
    /// Progress of loading and computing.
    Info = 2,
    /// Conditions that may be mistakes.
    Warn = 3,
    /// Failures.
    Error = 4,
}

/// `GGML_LOG_LEVEL_CONT`, which continues the last piece at its level.
const CONTINUE: i32 = 5;

/// Assembles lines from the pieces that the libraries log.
#[derive(Debug)]
pub struct Log {
    /// Lowest level of the lines that are passed on.
    least: Level,
    level: Level,
    line: String,
    offloaded: Option<(u32, u32)>,
}

impl Log {
    /// Creates a log that passes on lines of the level `least` or above.
    pub const fn new(least: Level) -> Self {
        Self { least, level: Level::Info, line: String::new(), offloaded: None }
    }

    /// Appends a piece, which may be part of a line, a line, or several.
    pub fn append(&mut self, level: i32, text: &str) {
        self.level = match level {
            1 => Level::Debug,
            3 => Level::Warn,
            4 => Level::Error,
            CONTINUE => self.level,
            _ => Level::Info,
        };
        if self.level >= self.least {
            // Failures of writing to stderr are ignored.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
        self.line.push_str(text);
        if let Some(end) = self.line.rfind('\n') {
            let rest = self.line.split_off(end + 1);
            for line in self.line.lines() {
                self.offloaded = offloaded(line).or(self.offloaded);
            }
            self.line = rest;
        }
    }

    /// Returns the number of layers on GPUs and of all layers, once that was logged.
    pub const fn offloaded(&self) -> Option<(u32, u32)> {
        self.offloaded
    }
}

/// Parses a line such as `load_tensors: offloaded 31/31 layers to GPU`.
fn offloaded(line: &str) -> Option<(u32, u32)> {
    let counts = line.split_once("offloaded ")?.1.split_once(" layers")?.0;
    let (some, all) = counts.split_once('/')?;
    Some((some.parse().ok()?, all.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloaded_layers_are_found_in_pieces() {
        let mut log = Log::new(Level::Error);
        log.append(2, "load_tensors: offloading output layer to GPU\nload_tensors: off");
        assert_eq!(log.offloaded(), None);
        log.append(CONTINUE, "loaded 31/31 layers to GPU\nmore");
        assert_eq!(log.offloaded(), Some((31, 31)));
    }

    #[test]
    fn other_lines_say_nothing() {
        for line in ["offloaded layers", "offloaded 3/x layers", "offloading 3/4 layers", ""] {
            assert_eq!(offloaded(line), None, "{line}");
        }
    }
}
