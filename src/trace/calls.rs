//! A process's calls as text: one line a call.

use std::io::{self, Write};

use super::reader::{Call, End, Process};

/// Writes all of them.
pub fn write(out: &mut dyn Write, process: &Process) -> io::Result<()> {
    writeln!(out, "# {} {}", process.pid, process.command)?;
    writeln!(
        out,
        "# time of the call in seconds, thread, function(first six integer registers) = result, time taken"
    )?;
    for (name, count) in &process.counted {
        writeln!(out, "# {name}: {count} calls, counted only")?;
    }
    for call in &process.calls {
        let time = seconds(call.begin.saturating_sub(process.opened));
        let indent = "  ".repeat(usize::from(call.depth.min(40)));
        writeln!(out, "{time:12.6} {:>7} {indent}{}", call.thread, line(call))?;
    }
    Ok(())
}

/// A call in a line.
pub fn line(call: &Call) -> String {
    let arguments = call.arguments.map(|argument| format!("{argument:#x}")).join(", ");
    let end = match &call.end {
        End::Unfinished => "... did not return".to_owned(),
        End::Unknown => "= ? (too deep to follow)".to_owned(),
        End::Returned { result, status, .. } => {
            let took = duration(call.took().unwrap_or_default());
            match status {
                Some(status) => format!("= {} {status}, {took}", *result as u32),
                None => format!("= {result:#x}, {took}"),
            }
        }
    };
    format!("{}({arguments}) {end}", call.name)
}

/// Nanoseconds as seconds.
#[allow(clippy::cast_precision_loss, reason = "exact for a hundred days")]
pub fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// A time for people.
pub fn duration(nanoseconds: u64) -> String {
    let seconds = seconds(nanoseconds);
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.1} µs", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}
