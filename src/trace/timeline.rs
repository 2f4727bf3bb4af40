//! Writes a trace as a timeline in Chrome's trace event format, which Perfetto and chrome://tracing open.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::event::What;
use super::reader::{CallEnd, TracedCall, TracedProcess};

/// Writes all processes as one JSON object. Times are relative to the start of the first process.
pub fn write(out: &mut dyn Write, processes: &[TracedProcess]) -> io::Result<()> {
    let start = processes.iter().map(|process| process.opened).min().unwrap_or_default();
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut first = true;
    let mut put = |event: Value| {
        let comma: &[u8] = if std::mem::take(&mut first) { b"\n" } else { b",\n" };
        out.write_all(comma)?;
        serde_json::to_writer(&mut *out, &event).map_err(io::Error::from)
    };
    for process in processes {
        let pid = process.pid;
        put(json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": process.command}}))?;
        for (thread, name) in &process.threads {
            put(
                json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "args": {"name": name}}),
            )?;
        }
        for call in &process.calls {
            put(event(call, pid, start))?;
        }
        for event in &process.events {
            let (tid, ts) = (event.thread, microseconds(event.begin, start));
            put(match &event.what {
                What::Message { kind, bytes, number } => json!({
                    "ph": "i", "s": "t", "cat": "message", "name": kind, "pid": pid, "tid": tid, "ts": ts,
                    "args": {"bytes": bytes, "number": number},
                }),
                What::Wait { awaited, slept } => json!({
                    "ph": "X", "cat": "wait", "name": format!("wait for {awaited}"), "pid": pid, "tid": tid, "ts": ts,
                    "dur": microseconds(event.end, event.begin), "args": {"slept": slept},
                }),
                What::Refusal(refusal) => json!({
                    "ph": "i", "s": "t", "cat": "refusal", "name": format!("{} is refused", refusal.kind), "pid": pid,
                    "tid": tid, "ts": ts, "args": {"code": refusal.code, "reason": refusal.words()},
                }),
            })?;
        }
    }
    out.write_all(b"\n]}\n")
}

fn event(call: &TracedCall, pid: u32, start: u64) -> Value {
    let arguments = call.arguments.map(|argument| format!("{argument:#x}"));
    let (ts, tid, name) = (microseconds(call.begin, start), call.thread, &call.name);
    match &call.end {
        CallEnd::Returned { result, status, failed, .. } => {
            let dur = microseconds(call.took().unwrap_or_default(), 0);
            let result = status.map_or_else(|| format!("{result:#x}"), str::to_owned);
            let category = if *failed { "call,failed" } else { "call" };
            json!({
                "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
                "args": {"arguments": arguments, "result": result},
            })
        }
        // Never ended: to the end of the timeline.
        CallEnd::Unfinished => json!({
            "ph": "B", "cat": "call,unfinished", "name": name, "pid": pid, "tid": tid, "ts": ts,
            "args": {"arguments": arguments},
        }),
        CallEnd::Unknown => json!({
            "ph": "i", "s": "t", "cat": "call", "name": name, "pid": pid, "tid": tid, "ts": ts,
            "args": {"arguments": arguments},
        }),
    }
}

#[allow(clippy::cast_precision_loss, reason = "exact for a hundred days")]
fn microseconds(time: u64, start: u64) -> f64 {
    time.saturating_sub(start) as f64 / 1000.0
}
