//! Writes the calls of a process as text: one line for each call, and one for each refusal by the host.

use std::io::{self, Write};

use super::event::What;
use super::reader::{CallEnd, TracedCall, TracedProcess};

/// Writes all calls and refusals of `process` to `out`, one a line.
pub fn write(out: &mut dyn Write, process: &TracedProcess) -> io::Result<()> {
    writeln!(out, "# {} {}", process.pid, process.command)?;
    writeln!(
        out,
        "# time of the call in seconds, thread, function(first six integer registers) = result, time taken"
    )?;
    for (name, count) in &process.counted {
        writeln!(out, "# {name}: {count} calls, counted only")?;
    }
    let since = |time: u64| seconds(time.saturating_sub(process.opened));
    let mut refusals =
        process.events.iter().filter(|event| matches!(event.what, What::Refusal(_))).peekable();
    let mut refused = |out: &mut dyn Write, until: u64| -> io::Result<()> {
        while let Some(event) = refusals.next_if(|event| event.begin < until) {
            if let What::Refusal(refusal) = &event.what {
                writeln!(out, "{:12.6} {:>7} # {refusal}", since(event.begin), event.thread)?;
            }
        }
        Ok(())
    };
    for call in &process.calls {
        refused(out, call.begin)?;
        let indent = "  ".repeat(usize::from(call.depth.min(40)));
        writeln!(out, "{:12.6} {:>7} {indent}{}", since(call.begin), call.thread, line(call))?;
    }
    refused(out, u64::MAX)
}

/// Formats a call as one line: function, arguments, result and duration.
pub fn line(call: &TracedCall) -> String {
    let arguments = call.arguments.map(|argument| format!("{argument:#x}")).join(", ");
    let end = match &call.end {
        CallEnd::Unfinished => "... did not return".to_owned(),
        CallEnd::Unknown => "= ? (too deep to follow)".to_owned(),
        CallEnd::Returned { result, status, .. } => {
            let took = duration(call.took().unwrap_or_default());
            match status {
                Some(status) => format!("= {} {status}, {took}", *result as u32),
                None => format!("= {result:#x}, {took}"),
            }
        }
    };
    format!("{}({arguments}) {end}", call.name)
}

/// Converts nanoseconds to seconds.
#[allow(clippy::cast_precision_loss, reason = "exact for a hundred days")]
pub fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Formats a duration in the unit that suits its size.
pub fn duration(nanoseconds: u64) -> String {
    let seconds = seconds(nanoseconds);
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.1} µs", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}
