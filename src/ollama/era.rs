//! Recognises how an Ollama looks for GPUs, from texts in its binary that only that method prints.
//!
//! | era | releases | who looks | text |
//! |---|---|---|---|
//! | A | to 0.12.3 | `ollama serve` itself, which opens the driver's library by its path | `looking for compatible GPUs` |
//! | B | 0.12.4 to 0.24 | a child, `ollama runner` | `discovering available GPUs` |
//! | C | from 0.30 | children, `llama-server` and `ollama gpu-discover` | the same, and `llama-server --list-devices` |
//!
//! Checked against Ollama's sources of 0.3.14 to 0.31.2 and the built binaries of one release of each era.

use crate::program::elf::{self, ElfError, ReadAt};
use crate::program::texts::search;

/// Name of a section that Go puts into every binary.
const GO: &str = ".go.buildinfo";
/// Part of the log line of era A.
const LOOKING: &[u8] = b"looking for compatible GPUs";
/// Part of the log line of eras B and C.
const DISCOVERING: &[u8] = b"discovering available GPUs";
/// Part of the error messages of era C.
const LISTING: &[u8] = b"llama-server --list-devices";

/// Method by which a release of Ollama looks for GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Era {
    /// The server's own process loads the driver's library by its path.
    A,
    /// A child process of the server's own binary loads the backends.
    B,
    /// A `llama-server` process lists the devices.
    C,
}

impl Era {
    /// Returns whether the server loads the driver's library by its path, which is its only method.
    pub fn by_path(self) -> bool {
        self == Self::A
    }
}

/// Recognises the era of the Ollama in `file`. Returns `None` if the file is not an Ollama.
pub fn recognise(file: &impl ReadAt) -> Result<Option<Era>, ElfError> {
    let (ranges, go) = elf::constants(file, GO)?;
    if !go {
        return Ok(None);
    }
    let [looking, discovering, listing] = search(file, &ranges, [LOOKING, DISCOVERING, LISTING])?;
    Ok(match (discovering, listing, looking) {
        (true, true, _) => Some(Era::C),
        (true, false, _) => Some(Era::B),
        (false, _, true) => Some(Era::A),
        (false, _, false) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_made_by_go_is_no_ollama() {
        // These tests hold the texts, and are not Go.
        let own = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(recognise(&own).unwrap(), None);
    }

    #[test]
    fn only_the_oldest_looks_by_path() {
        assert!(Era::A.by_path());
        assert!(!Era::B.by_path() && !Era::C.by_path());
    }
}
