//! The record: one line of JSON for each call, in the order in which the calls took effect.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};
use vgpu_abi::CUresult;

use crate::rule::CallRefusal;

/// A line of the record, which describes one call.
#[derive(Debug, Serialize)]
pub struct RecordLine {
    /// Name of the function.
    call: &'static str,
    /// Number of the calling thread, in the order of the threads' first calls.
    thread: u32,
    /// Arguments by name. Handles and addresses are written as kind and number, so that records of several
    /// runs can be compared.
    args: Map<String, Value>,
    /// Results that the call stored through pointers.
    #[serde(skip_serializing_if = "Map::is_empty")]
    out: Map<String, Value>,
    /// Notes: `pageable` (a copy from or to host memory that is not pinned), `waited` (the call waited for
    /// the device), `compiled` (the call took the time of a compilation), `injected` (the options demand the
    /// status).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<&'static str>,
    status: u32,
    /// Name of the rule that the program broke.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'static str>,
    /// Sentence of the rule that the program broke.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}

impl RecordLine {
    pub fn new(call: &'static str, thread: u32) -> Self {
        Self {
            call,
            thread,
            args: Map::new(),
            out: Map::new(),
            notes: Vec::new(),
            status: 0,
            refused: None,
            why: None,
        }
    }

    pub fn arg(&mut self, name: &str, value: Value) {
        self.args.insert(name.to_owned(), value);
    }

    pub fn out(&mut self, name: &str, value: Value) {
        self.out.insert(name.to_owned(), value);
    }

    /// Adds a note, unless the line has it already.
    pub fn note(&mut self, note: &'static str) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Sets the outcome and returns the status.
    pub fn end(&mut self, outcome: Result<(), CallRefusal>) -> CUresult {
        let status = match outcome {
            Ok(()) => CUresult::SUCCESS,
            Err(refusal) => {
                if let CallRefusal::Broken(rule) = refusal {
                    self.refused = Some(rule.name());
                    self.why = Some(rule.sentence());
                }
                refusal.status()
            }
        };
        self.status = status.0;
        status
    }
}

/// The file of the record, if there is one.
#[derive(Debug, Default)]
pub struct CallRecord(Option<File>);

impl CallRecord {
    /// Opens a record for appending. Several processes may share the file.
    pub fn open(path: Option<&Path>) -> Result<Self, String> {
        let Some(path) = path else { return Ok(Self(None)) };
        let file = File::options().append(true).create(true).open(path);
        file.map(|file| Self(Some(file))).map_err(|error| format!("record to {}: {error}", path.display()))
    }

    /// Writes a whole line at once, so that a killed process loses nothing.
    pub fn write(&mut self, line: &RecordLine) {
        let Some(file) = &mut self.0 else { return };
        let mut text = match serde_json::to_vec(line) {
            Ok(text) => text,
            Err(error) => return eprintln!("recording libcuda: {}: {error}", line.call),
        };
        text.push(b'\n');
        if let Err(error) = file.write_all(&text) {
            eprintln!("recording libcuda: write the record: {error}");
            self.0 = None;
        }
    }
}
