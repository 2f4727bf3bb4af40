//! What a running device does, and for which processes, as `status` shows it for people.

use std::fmt::Write as _;
use std::time::Duration;

use vgpu_device::{DeviceStatus, SessionStatus};
use vgpu_findings::{size, time};

use crate::control::{Instance, span};
use crate::table;

/// Column headings of the table of sessions.
const HEADS: [&str; 11] = [
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

/// Writes a device with its sessions.
pub(crate) fn write(text: &mut String, instance: &Instance) {
    _ = writeln!(
        text,
        "{}  {}  process {}, up {}",
        instance.name,
        instance.bus,
        instance.process,
        span(instance.seconds)
    );
    if let Some(restart) = &instance.restart {
        _ = writeln!(text, "  {}", restart.sentence(instance.seconds));
    }
    for device in &instance.devices {
        self::device(text, device);
    }
    if let Some(mediator) = &instance.mediator {
        let owners = mediator["sessions"].as_array().map_or(0, Vec::len);
        let number = |key: &str| mediator[key].as_u64().unwrap_or(0);
        let (used, total) = (size(number("allocated")), size(number("total")));
        let executor = mediator["executor"].as_str().unwrap_or("?");
        _ = writeln!(text, "  {executor}: {used} of {total} in use, {owners} owners of version 1");
    }
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
    let rows: Vec<_> =
        [HEADS.map(str::to_owned)].into_iter().chain(device.sessions.iter().map(row)).collect();
    table::write(text, &rows, false);
}

fn row(session: &SessionStatus) -> [String; HEADS.len()] {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_for_people() {
        assert_eq!([59, 60, 3661, 90_000].map(span), ["59 s", "1 min", "1 h 1 min", "1 d 1 h"]);
    }
}
