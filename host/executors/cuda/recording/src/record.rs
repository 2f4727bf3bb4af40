//! The record: one line of JSON for each call, in the order in which the calls took effect.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};
use vgpu_abi::CUresult;

use crate::rule::Refusal;

/// A call while it is carried out.
#[derive(Debug, Serialize)]
pub struct Line {
    /// Name of the function.
    call: &'static str,
    /// The calling thread: threads are numbered in the order of their first calls.
    thread: u32,
    /// Arguments by name. Handles and addresses are named by their kind and number, so that records of
    /// several runs compare.
    args: Map<String, Value>,
    /// What the call gave back by pointers.
    #[serde(skip_serializing_if = "Map::is_empty")]
    out: Map<String, Value>,
    /// What was remarkable: `pageable` (a copy from or to host memory that is not pinned), `waited` (the call
    /// did not return before the device was done), `injected` (the status is one that the options want).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<&'static str>,
    /// `CUresult`, or `cublasStatus_t`.
    status: u32,
    /// The rule that the program broke.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'static str>,
    /// The rule as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}

impl Line {
    /// A line of a call that begins.
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

    /// Adds an argument.
    pub fn arg(&mut self, name: &str, value: Value) {
        self.args.insert(name.to_owned(), value);
    }

    /// Adds a result.
    pub fn out(&mut self, name: &str, value: Value) {
        self.out.insert(name.to_owned(), value);
    }

    /// Adds a note, once.
    pub fn note(&mut self, note: &'static str) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Says what came of the call.
    pub fn end(&mut self, outcome: Result<(), Refusal>) -> CUresult {
        let status = match outcome {
            Ok(()) => CUresult::SUCCESS,
            Err(refusal) => {
                if let Refusal::Broken(rule) = refusal {
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

/// Where lines go.
#[derive(Debug, Default)]
pub struct Record(Option<File>);

impl Record {
    /// A record that is appended to the file at `path`: several processes may share it.
    pub fn open(path: Option<&Path>) -> Result<Self, String> {
        let Some(path) = path else { return Ok(Self(None)) };
        let file = File::options().append(true).create(true).open(path);
        file.map(|file| Self(Some(file))).map_err(|error| format!("record to {}: {error}", path.display()))
    }

    /// Writes a line at once, whole: a process that is killed loses nothing.
    pub fn write(&mut self, line: &Line) {
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
