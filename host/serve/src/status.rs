//! The command `status`: shows what running devices do, and for which processes.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use vgpu_device::{DeviceStatus, SessionStatus};
use vgpu_findings::{size, time};

use crate::control::{ControlPath, Instance, ask, places};
use crate::gpus::{self, GpuReport};

/// Column headings of the table of sessions.
const HEADS: [&str; COLUMNS] = [
    "CHANNEL",
    "SESSION",
    "PROCESS",
    "STATE",
    "MEMORY",
    "GPU TIME",
    "MESSAGES",
    "BEHIND",
    "WAITS",
    "UPLOADED",
    "DOWNLOADED",
];
const COLUMNS: usize = 11;

/// Options of the command `status`.
#[derive(Debug, clap::Args)]
pub struct StatusArguments {
    /// Name of the device to query, as the list shows it; all running devices by default.
    name: Option<String>,
    /// Control socket to query, if it is not in one of the usual directories.
    #[arg(long, value_name = "SOCKET", conflicts_with = "name")]
    control: Option<PathBuf>,
    /// Directory in which the devices of this host find each other, if `serve` was given one.
    #[arg(long, value_name = "DIR")]
    shares: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Asks the instances and prints their answers. Returns exit code 0, or 1 if none answers.
pub fn show_status(arguments: &StatusArguments) -> Result<ExitCode> {
    let places = if let Some(socket) = &arguments.control {
        vec![ControlPath { name: String::new(), socket: socket.clone() }]
    } else {
        let wanted = |place: &ControlPath| arguments.name.as_ref().is_none_or(|name| *name == place.name);
        places().into_iter().filter(wanted).collect()
    };
    let (mut instances, mut failures) = (Vec::new(), Vec::new());
    for place in &places {
        match ask(&place.socket) {
            Ok(instance) => instances.push(instance),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    for failure in &failures {
        eprintln!("vgpu-device: {failure}");
    }
    // Without this list, the devices can still be shown.
    let mut gpus = gpus::gpus(arguments.shares.as_deref()).unwrap_or_else(|error| {
        eprintln!("vgpu-device: {error:#}");
        Vec::new()
    });
    if arguments.name.is_some() || arguments.control.is_some() {
        gpus.retain(|gpu| instances.iter().any(|instance| gpu.has(instance.process)));
    }
    let text = if arguments.json {
        json!({ "instances": instances, "gpus": gpus }).to_string() + "\n"
    } else {
        text(&instances, &gpus)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    if instances.is_empty() && failures.is_empty() && !arguments.json {
        eprintln!("vgpu-device: no device is served that this user may ask about");
    }
    Ok(if instances.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn text(instances: &[Instance], gpus: &[GpuReport]) -> String {
    let mut text = String::new();
    for gpu in gpus {
        gpu.write(&mut text);
    }
    for instance in instances {
        if !text.is_empty() {
            text.push('\n');
        }
        _ = writeln!(
            text,
            "{}  {}  process {}, up {}",
            instance.name,
            instance.bus,
            instance.process,
            span(instance.seconds)
        );
        for device in &instance.devices {
            self::device(&mut text, device);
        }
        if let Some(mediator) = &instance.mediator {
            let owners = mediator["sessions"].as_array().map_or(0, Vec::len);
            let number = |key: &str| mediator[key].as_u64().unwrap_or(0);
            let (used, total) = (size(number("allocated")), size(number("total")));
            let executor = mediator["executor"].as_str().unwrap_or("?");
            _ = writeln!(text, "  {executor}: {used} of {total} in use, {owners} owners of version 1");
        }
    }
    text
}

fn device(text: &mut String, device: &DeviceStatus) {
    let (used, total) = (size(device.allocated), size(device.total));
    let sessions = match device.sessions.len() {
        0 => "no session".to_owned(),
        1 => "1 session".to_owned(),
        many => format!("{many} sessions"),
    };
    let contexts = match device.contexts {
        0 => String::new(),
        1 => ", 1 GPU context".to_owned(),
        many => format!(", {many} GPU contexts"),
    };
    let contexts = match device.context_bytes {
        cost if cost > 0 && device.contexts > 0 => format!("{contexts} of {}", size(cost)),
        _ => contexts,
    };
    _ = writeln!(
        text,
        "  {} {}: {used} of {total} in use, {sessions}{contexts}, {} channels free",
        device.address, device.executor, device.free_channels
    );
    if device.sessions.is_empty() {
        return;
    }
    let mut rows = vec![HEADS.map(str::to_owned)];
    rows.extend(device.sessions.iter().map(row));
    let widths: [usize; COLUMNS] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        _ = writeln!(text, "  {}", cells.join("  "));
    }
}

fn row(session: &SessionStatus) -> [String; COLUMNS] {
    [
        session.channel.to_string(),
        session.session.to_string(),
        session.process.to_string(),
        session.state.clone(),
        size(session.allocated),
        time(Duration::from_micros(session.busy_us).as_secs_f64()),
        session.messages.to_string(),
        session.messages.saturating_sub(session.done).to_string(),
        session.waits.to_string(),
        size(session.bytes_in),
        size(session.bytes_out),
    ]
}

/// Formats a duration for people: `45 s`, `3 min`, `2 h 5 min`, `4 d 2 h`.
fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {} min", minutes % 60),
        (days, hours, _) => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_for_people() {
        assert_eq!([59, 60, 3661, 90_000].map(span), ["59 s", "1 min", "1 h 1 min", "1 d 1 h"]);
    }
}
