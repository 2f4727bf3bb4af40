//! Perfetto's rules for a timeline in Chrome's trace event format: each kind of event has its required
//! fields, and the events of a thread are nested. Perfetto silently omits an event that breaks a rule.

use std::collections::BTreeMap;

use serde_json::Value;

/// Start, end, and the event, with times in nanoseconds.
type Slice<'a> = (u64, u64, &'a Value);

/// Converts a time from Perfetto's microseconds to nanoseconds.
fn nanoseconds(value: &Value) -> u64 {
    let time = value.as_f64().unwrap_or_else(|| panic!("no time: {value}"));
    assert!(time.is_finite() && time >= 0.0, "{time}");
    (time * 1000.0) as u64
}

/// Panics if the timeline violates a rule of Perfetto's format.
pub fn check(timeline: &Value) {
    assert!(["ms", "ns"].contains(&timeline["displayTimeUnit"].as_str().unwrap()));
    let mut threads: BTreeMap<(u64, u64), Vec<Slice<'_>>> = BTreeMap::new();
    for event in timeline["traceEvents"].as_array().expect("an array of events") {
        let pid = event["pid"].as_u64().unwrap_or_else(|| panic!("no process: {event}"));
        assert!(event["name"].as_str().is_some_and(|name| !name.is_empty()), "{event}");
        let thread = || event["tid"].as_u64().unwrap_or_else(|| panic!("no thread: {event}"));
        match event["ph"].as_str().unwrap_or_else(|| panic!("no phase: {event}")) {
            "M" => {
                let name = event["name"].as_str().unwrap();
                assert!(name == "process_name" || (name == "thread_name" && thread() > 0), "{event}");
                assert!(event["args"]["name"].is_string(), "{event}");
            }
            "X" => {
                let begin = nanoseconds(&event["ts"]);
                let end = begin + nanoseconds(&event["dur"]);
                threads.entry((pid, thread())).or_default().push((begin, end, event));
            }
            // Begun and never ended: to the end of the timeline.
            "B" => {
                threads.entry((pid, thread())).or_default().push((
                    nanoseconds(&event["ts"]),
                    u64::MAX,
                    event,
                ));
            }
            "i" => {
                nanoseconds(&event["ts"]);
                thread();
                assert!(["g", "p", "t"].contains(&event["s"].as_str().unwrap()), "{event}");
            }
            other => panic!("phase {other}: {event}"),
        }
    }
    for slices in threads.values_mut() {
        // As Perfetto: in the order of their beginnings, those that begin at once in the file's order.
        slices.sort_by_key(|(begin, ..)| *begin);
        let mut open: Vec<(u64, &Value)> = Vec::new();
        for &(begin, end, event) in slices.iter() {
            while open.last().is_some_and(|(end, _)| *end <= begin) {
                open.pop();
            }
            if let Some((outer, around)) = open.last() {
                assert!(end <= *outer, "{event} ends after {around}");
            }
            open.push((end, event));
        }
    }
}
