//! Reads the trace file of a process, which `libvgpu-trace.so` wrote. The content is untrusted, and the file
//! may end anywhere because the process may have died at any time.

use std::collections::BTreeMap;

use vgpu_trace_format::{EARLIER_WORK, Header, MAGIC, NOT_FOLLOWED, Record, RecordKind, Returns, VERSION};
use zerocopy::FromBytes;

use super::event::{Awaited, TraceEvent, TracedRefusal, What};
use super::flight::Flight;
use super::status;

/// Calls and events of one traced process.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TracedProcess {
    /// Process id.
    pub pid: u32,
    /// Id of the parent process.
    pub parent: u32,
    /// Command line, separated by blanks.
    pub command: String,
    /// Time of the first call, in nanoseconds since boot.
    pub opened: u64,
    /// Number of records that did not fit into the file.
    pub dropped: u64,
    /// Calls, ordered by their start.
    pub calls: Vec<TracedCall>,
    /// Number of calls by function, for functions whose calls are counted without being recorded.
    pub counted: BTreeMap<String, u64>,
    /// Names of threads by id.
    pub threads: BTreeMap<u32, String>,
    /// Paths of the traced libraries, by library number.
    pub libraries: BTreeMap<u32, String>,
    /// Messages to the host, waits for the host, and refusals by the host.
    pub events: Vec<TraceEvent>,
    names: BTreeMap<u32, TracedFunction>,
    /// Index in `events` of each thread's latest refusal.
    refusals: BTreeMap<u32, usize>,
    flight: Flight,
}

/// A function whose calls are traced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TracedFunction {
    name: String,
    library: u16,
    status: bool,
}

/// A call of a traced function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedCall {
    /// Name of the function.
    pub name: String,
    /// Number of the library that exports the function, if the file names the function.
    pub library: Option<u16>,
    /// Linux thread id.
    pub thread: u32,
    /// Number of traced calls around this one.
    pub depth: u16,
    /// Start of the call in nanoseconds since boot.
    pub begin: u64,
    /// Outcome of the call.
    pub end: CallEnd,
    /// Contents of the first six integer argument registers.
    pub arguments: [u64; 6],
}

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The process ended before the call returned.
    Unfinished,
    /// The call was nested too deeply to be followed.
    Unknown,
    /// The call returned.
    Returned {
        /// End of the call in nanoseconds since boot.
        at: u64,
        /// Content of the result register when the call returned.
        result: u64,
        /// Name of the status that it returned, if the function returns one.
        status: Option<&'static str>,
        /// Whether the function returned a status other than success.
        failed: bool,
    },
}

impl TracedCall {
    /// Returns the duration of the call in nanoseconds, or `None` if it is not known.
    pub fn took(&self) -> Option<u64> {
        match self.end {
            CallEnd::Returned { at, .. } => Some(at.saturating_sub(self.begin)),
            _ => None,
        }
    }

    /// Returns whether the function returned a status other than success.
    pub fn failed(&self) -> bool {
        matches!(self.end, CallEnd::Returned { failed: true, .. })
    }
}

/// Reason why a file cannot be read as a trace.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The file is shorter than a header.
    #[error("it is too short")]
    Short,
    /// The file does not have a trace's magic number.
    #[error("it is no trace")]
    NoTrace,
    /// The file was written by another build.
    #[error("it has version {0}, this vgpu-run reads {VERSION}")]
    Version(u32),
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the name of a kind of message, or its number if the kind is unknown.
fn message(kind: u32) -> String {
    let known = u16::try_from(kind).ok().and_then(|kind| vgpu_wire::Kind::try_from(kind).ok());
    known.map_or_else(|| format!("message {kind}"), |kind| format!("{kind:?}"))
}

/// Parses a trace file.
pub fn read(bytes: &[u8]) -> Result<TracedProcess, Unreadable> {
    let (header, rest) = Header::read_from_prefix(bytes).map_err(|_| Unreadable::Short)?;
    if header.magic != MAGIC {
        return Err(Unreadable::NoTrace);
    }
    if header.version != VERSION || header.record_bytes as usize != size_of::<Record>() {
        return Err(Unreadable::Version(header.version));
    }
    let command = header.command.get(..header.command_bytes as usize).unwrap_or(&header.command);
    let words: Vec<_> = command.split(|byte| *byte == 0).filter(|word| !word.is_empty()).map(text).collect();
    let mut process = TracedProcess {
        pid: header.process,
        parent: header.parent,
        command: words.join(" "),
        opened: header.opened,
        dropped: header.dropped,
        ..TracedProcess::default()
    };
    for record in rest.chunks_exact(size_of::<Record>()) {
        if let Ok(record) = Record::read_from_bytes(record) {
            process.apply_record(&record);
        }
    }
    // Calls of a full file that were in flight when it ended.
    for current in header.current.iter().filter(|current| current.call.kind == RecordKind::Call as u32) {
        process.apply_record(&current.name);
        process.apply_record(&current.call);
    }
    Ok(process)
}

impl TracedProcess {
    fn apply_record(&mut self, record: &Record) {
        match RecordKind::from_number(record.kind) {
            None | Some(RecordKind::Empty) => {}
            Some(RecordKind::Name) => {
                let name = text(record.text());
                let status = record.flags == Returns::Status as u16;
                self.names.insert(record.index, TracedFunction { name, library: record.depth, status });
            }
            Some(RecordKind::Library) => {
                let part = text(record.text());
                let file = self.libraries.entry(record.index).or_default();
                // Written once for each function: the first part begins anew.
                if record.depth == 0 {
                    *file = part;
                } else {
                    file.push_str(&part);
                }
            }
            Some(RecordKind::Thread) => drop(self.threads.insert(record.thread, text(record.text()))),
            Some(RecordKind::Count) => {
                let count = self.counted.entry(self.name(record.index)).or_default();
                *count = count.saturating_add(record.result);
            }
            Some(RecordKind::Call) => self.calls.push(TracedCall {
                name: self.name(record.index),
                library: self.names.get(&record.index).map(|function| function.library),
                thread: record.thread,
                depth: record.depth,
                begin: record.begin,
                end: self.end(record),
                arguments: record.arguments,
            }),
            Some(RecordKind::Message) => {
                let kind = message(record.index);
                let (bytes, number) = (record.result, record.arguments[0]);
                self.event(record, What::Message { kind, bytes, number });
            }
            Some(RecordKind::Wait) => {
                let awaited = Awaited::from_index(record.index);
                self.event(record, What::Wait { awaited, slept: record.arguments[0] != 0 });
            }
            Some(RecordKind::Refusal) => {
                let kind = match record.index {
                    EARLIER_WORK => "earlier work".to_owned(),
                    kind => message(kind),
                };
                let code = record.result as u32;
                self.refusals.insert(record.thread, self.events.len());
                self.event(record, What::Refusal(TracedRefusal { kind, code, reason: Vec::new() }));
            }
            Some(RecordKind::Reason) => self.reason(record),
            Some(RecordKind::Launch | RecordKind::Kernel | RecordKind::Stall) => self.flight.record(record),
        }
    }

    /// Describes the launch that the threads of the process were waiting for when the process ended.
    pub fn in_flight(&self) -> Option<String> {
        let unfinished = self.calls.iter().filter(|call| call.end == CallEnd::Unfinished);
        self.flight
            .launch(|thread, time| unfinished.clone().any(|call| call.thread == thread && call.begin <= time))
    }

    /// Appends a record's text to the reason of the latest refusal on the same thread.
    fn reason(&mut self, record: &Record) {
        let latest = self.refusals.get(&record.thread).and_then(|latest| self.events.get_mut(*latest));
        if let Some(TraceEvent { what: What::Refusal(refusal), .. }) = latest {
            refusal.reason.extend_from_slice(record.text());
        }
    }

    fn event(&mut self, record: &Record, what: What) {
        let Record { thread, begin, end, .. } = *record;
        self.events.push(TraceEvent { what, thread, begin, end });
    }

    fn name(&self, index: u32) -> String {
        self.names.get(&index).map_or_else(|| format!("function {index}"), |function| function.name.clone())
    }

    fn end(&self, record: &Record) -> CallEnd {
        if record.end == 0 {
            return if record.flags & NOT_FOLLOWED != 0 { CallEnd::Unknown } else { CallEnd::Unfinished };
        }
        let function = self.names.get(&record.index).filter(|function| function.status);
        let code = record.result as u32;
        CallEnd::Returned {
            at: record.end,
            result: record.result,
            status: function.and_then(|function| status::name(function.library, code)),
            failed: function.is_some() && code != 0,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use proptest::prelude::*;
    use vgpu_trace_format::{COMMAND_MOST, Current, WAIT_ANSWER, WAIT_ROOM};
    use zerocopy::IntoBytes;

    use super::*;

    /// Builds a trace file of process `pid` with these records.
    pub fn file(pid: u32, records: &[Record]) -> Vec<u8> {
        let mut command = [0; COMMAND_MOST];
        command[..14].copy_from_slice(b"ollama\0runner\0");
        let header = Header {
            magic: MAGIC,
            version: VERSION,
            record_bytes: size_of::<Record>() as u32,
            process: pid,
            parent: 1,
            opened: 1000,
            begun: records.len() as u64,
            dropped: 0,
            command_bytes: 14,
            taken: 0,
            current: Default::default(),
            command,
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(records.as_bytes());
        bytes
    }

    /// Builds a record that names a traced function.
    pub fn name(index: u32, library: u16, name: &str) -> Record {
        let mut record = Record { kind: RecordKind::Name as u32, index, depth: library, ..Record::default() };
        record.as_mut_bytes()[16..16 + name.len()].copy_from_slice(name.as_bytes());
        record
    }

    /// Builds a record of a call by thread 7.
    pub fn call(index: u32, begin: u64, end: u64, result: u64) -> Record {
        Record { kind: RecordKind::Call as u32, index, thread: 7, begin, end, result, ..Record::default() }
    }

    #[test]
    fn calls_have_names_and_ends() {
        let records = [
            name(3, 1, "cudaMalloc"),
            call(3, 10, 20, 2),
            call(3, 30, 0, 0),
            call(4, 1, 2, 5),
            Record::default(),
        ];
        let process = read(&file(9, &records)).unwrap();
        assert_eq!((process.pid, process.command.as_str()), (9, "ollama runner"));
        assert!(process.calls[0].failed() && process.calls[0].took() == Some(10));
        assert!(matches!(
            process.calls[0].end,
            CallEnd::Returned { status: Some("cudaErrorMemoryAllocation"), .. }
        ));
        assert_eq!(process.calls[1].end, CallEnd::Unfinished);
        assert_eq!(process.calls[2].name, "function 4");
        assert!(!process.calls[2].failed());
    }

    #[test]
    fn a_full_file_still_has_the_calls_in_flight() {
        let mut bytes = file(9, &[call(3, 10, 20, 2)]);
        let (mut header, _) = Header::read_from_prefix(&bytes).unwrap();
        header.dropped = 5;
        header.current[2] = Current { name: name(8, 2, "cudaMemcpy"), call: call(8, 70, 0, 0) };
        // This one has returned.
        header.current[3].name = name(9, 0, "cuInit");
        bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        let process = read(&bytes).unwrap();
        assert_eq!((process.calls.len(), process.dropped), (2, 5));
        assert_eq!(
            (process.calls[1].name.as_str(), &process.calls[1].end),
            ("cudaMemcpy", &CallEnd::Unfinished)
        );
        assert_eq!(process.calls[1].library, Some(2));
    }

    #[test]
    fn messages_and_waits_say_what_they_are() {
        let message =
            Record { kind: RecordKind::Message as u32, index: 0xffff, result: 64, ..call(0, 5, 5, 64) };
        let wait = |index| Record { kind: RecordKind::Wait as u32, index, ..call(0, 5, 9, 0) };
        let process = read(&file(9, &[message, wait(WAIT_ANSWER), wait(WAIT_ROOM), wait(3)])).unwrap();
        let said: Vec<_> = process
            .events
            .iter()
            .map(|event| match &event.what {
                What::Message { kind, bytes, .. } => format!("{kind}, {bytes} bytes"),
                What::Wait { awaited, .. } => awaited.to_string(),
                What::Refusal(refusal) => refusal.to_string(),
            })
            .collect();
        assert_eq!(said, ["message 65535, 64 bytes", "an answer", "room in the ring", "word 3"]);
    }

    /// Builds a refusal of message kind 0xffff by thread 7, followed by records with the parts of its reason.
    pub fn refusal(code: u64, at: u64, parts: &[&str]) -> Vec<Record> {
        let refusal = Record { kind: RecordKind::Refusal as u32, index: 0xffff, ..call(0, at, at, code) };
        let reasons = parts.iter().enumerate().map(|(part, text)| {
            let mut record = name(0, part as u16, text);
            (record.kind, record.thread) = (RecordKind::Reason as u32, 7);
            record
        });
        [refusal].into_iter().chain(reasons).collect()
    }

    /// The host's explanation of a refusal is assembled from the parts that its own thread recorded, in their
    /// order.
    #[test]
    fn a_refusal_has_the_hosts_words() {
        let mut records = refusal(218, 5, &["kernel wrong: no frob", "nicate\n"]);
        let mut other = refusal(2, 6, &["another"]);
        for record in &mut other {
            record.thread = 8;
        }
        records.splice(2..2, other);
        // Part of a refusal for which the file had no room.
        records.push(Record { thread: 9, ..records[1] });
        let process = read(&file(9, &records)).unwrap();
        let said: Vec<_> = process
            .events
            .iter()
            .map(|event| match &event.what {
                What::Refusal(refusal) => refusal.to_string(),
                other => panic!("{other:?}"),
            })
            .collect();
        let first =
            "the host refused message 65535 with 218 CUDA_ERROR_INVALID_PTX: kernel wrong: no frobnicate ";
        let second = "the host refused message 65535 with 2 CUDA_ERROR_OUT_OF_MEMORY: another";
        assert_eq!(said, [first, second]);
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(read(b"short"), Err(Unreadable::Short));
        assert_eq!(read(&[0; 5000]), Err(Unreadable::NoTrace));
        let mut later = file(1, &[]);
        later[8] = 77;
        assert_eq!(read(&later), Err(Unreadable::Version(77)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..3000), whole in any::<bool>()) {
            let mut file = if whole { file(1, &[]) } else { Vec::new() };
            file.extend_from_slice(&bytes);
            let _ = read(&file);
        }

        #[test]
        fn any_records_make_reports(words in prop::collection::vec(any::<[u8; 96]>(), 0..20), kinds in prop::collection::vec(0..11u32, 20)) {
            let records: Vec<_> = words.iter().zip(kinds).map(|(bytes, kind)| {
                Record { kind, index: u32::from(bytes[0] % 4), ..Record::read_from_bytes(bytes).unwrap() }
            }).collect();
            let process = read(&file(1, &records)).unwrap();
            let mut out = Vec::new();
            super::super::timeline::write(&mut out, &[process]).unwrap();
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok());
        }
    }
}
