//! Expected sequences of calls: data against which a record is compared.
//!
//! A sequence is a file of lines of JSON, each of which one call has to match: the call has every key of the
//! expected line with the same value. Of `args`, `out` and `notes`, the members are compared one by one.
//! Whatever an expected line does not state may have any value.
//!
//! The lines of one thread are compared in order: the thread of the first line, whichever number it has. A
//! line with `"elsewhere": true` is a call of another thread. These must occur in their order, among any
//! other calls. Calls of [`QUIET`] functions are left out on both sides, because their number does not
//! matter.

use std::fmt::Write;

use serde_json::{Value, json};

/// Names of functions that only query, and change nothing.
pub const QUIET: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGetAttribute",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuFuncGetAttribute",
    "cuFuncGetParamInfo",
    "cuMemGetAllocationGranularity",
    "cuMemGetInfo_v2",
    "cuMemHostGetDevicePointer_v2",
    "cuStreamGetCaptureInfo_v2",
    "cuStreamGetCaptureInfo_v3",
    "cuStreamQuery",
];

/// Returns whether a call matches an expected line.
fn matches(expected: &Value, call: &Value) -> bool {
    let Value::Object(members) = expected else { return expected == call };
    members.iter().filter(|(key, _)| *key != "elsewhere").all(|(key, value)| match value {
        Value::Object(_) => matches(value, &call[key]),
        value => *value == call[key],
    })
}

/// Returns the calls that are compared, without those of [`QUIET`] functions.
fn loud(calls: &[Value]) -> Vec<&Value> {
    let loud = |call: &&Value| !QUIET.iter().any(|quiet| call["call"] == *quiet);
    calls.iter().filter(loud).collect()
}

/// Returns a call as a line of a sequence, without the number of its thread and without empty members.
fn line(call: &Value, elsewhere: bool) -> Value {
    let mut line = json!({ "call": call["call"], "args": call["args"] });
    for key in ["out", "notes", "refused"] {
        if !call[key].is_null() {
            line[key] = call[key].clone();
        }
    }
    if call["status"] != 0 {
        line["status"] = call["status"].clone();
    }
    if elsewhere {
        line["elsewhere"] = true.into();
    }
    line
}

/// Returns the calls as lines of a sequence, from the first call of `start` on, as a draft of a new file.
#[must_use]
pub fn written(start: &str, calls: &[Value]) -> String {
    let calls: Vec<&Value> = loud(calls).into_iter().skip_while(|call| call["call"] != start).collect();
    let Some(&first) = calls.first() else { return String::new() };
    calls.into_iter().fold(String::new(), |mut text, call| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", line(call, call["thread"] != first["thread"]));
        text
    })
}

/// Compares a record with a sequence, from the first call on that matches the sequence's first line.
///
/// # Errors
/// Returns the first difference, with the record's line at that position.
pub fn compare(sequence: &str, calls: &[Value]) -> Result<(), String> {
    let lines = sequence.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("//"));
    let expected: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{line}: {error}")))
        .collect::<Result<_, _>>()?;
    let Some(first) = expected.first() else { return Err("the sequence has no lines".to_owned()) };
    let calls: Vec<&Value> = loud(calls).into_iter().skip_while(|call| !matches(first, call)).collect();
    let Some(thread) = calls.first().map(|call| call["thread"].clone()) else {
        return Err(format!("nothing in the record matches {first}"));
    };
    let (own, others): (Vec<&Value>, Vec<&Value>) = calls.iter().partition(|call| call["thread"] == thread);
    let (elsewhere, here): (Vec<&Value>, Vec<&Value>) =
        expected.iter().partition(|line| line["elsewhere"] == true);
    let difference = (0..own.len().max(here.len())).find(|&at| match (here.get(at), own.get(at)) {
        (Some(expected), Some(call)) => !matches(expected, call),
        _ => true,
    });
    if let Some(at) = difference {
        let mut text = format!("line {} of the thread:\n", at + 1);
        let expected = here.get(at).map_or("nothing".to_owned(), ToString::to_string);
        let found = own.get(at).map_or("nothing".to_owned(), |call| line(call, false).to_string());
        let _ = writeln!(text, "expected {expected}\nfound    {found}\nthe record:");
        for call in own {
            let _ = writeln!(text, "{}", line(call, false));
        }
        return Err(text);
    }
    let mut rest = others.iter();
    for expected in elsewhere {
        if !rest.any(|call| matches(expected, call)) {
            return Err(format!("no other thread calls, in its order, {expected}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(call: &str, thread: u32, stream: &str) -> Value {
        json!({ "call": call, "thread": thread, "args": { "stream": stream, "bytes": 1 }, "status": 0 })
    }

    #[test]
    fn a_sequence_says_as_much_as_it_wants() {
        let calls = [
            call("cuInit", 0, ""),
            call("cuCtxCreate_v2", 3, ""),
            call("cuEventQuery", 3, ""),
            call("cuMemUnmap", 1, ""),
            call("cuMemcpyHtoDAsync_v2", 3, "stream#1"),
        ];
        let right = r#"{"call":"cuCtxCreate_v2"}
            {"call":"cuMemcpyHtoDAsync_v2","args":{"stream":"stream#1"}}
            {"call":"cuMemUnmap","elsewhere":true}"#;
        assert_eq!(compare(right, &calls), Ok(()));
        for wrong in [
            "",
            r#"{"call":"cuMemFree_v2"}"#,
            r#"{"call":"cuCtxCreate_v2"}"#,
            &right.replace("stream#1", "stream#2"),
            &right.replace("cuMemUnmap", "cuMemMap"),
            &right.replace(r#","elsewhere":true"#, ""),
        ] {
            assert!(compare(wrong, &calls).is_err(), "{wrong}");
        }
        assert_eq!(compare(&written("cuCtxCreate_v2", &calls), &calls), Ok(()));
    }
}
