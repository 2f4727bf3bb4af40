//! Formats the status report for people: two lines about each device, one about its share, and a line for
//! each process.

use std::fmt::Write as _;

use vgpu_findings::style::Style;
use vgpu_findings::time;

use super::figures::{DeviceFigures, Figures, ProcessFigures};
use crate::device::survey::size;

/// Placeholder for an unknown value.
const UNKNOWN: &str = "-";
/// Width in characters of the process id column; the constants below are those of the other columns.
const PID: usize = 8;
const MEMORY: usize = 11;
const TIME: usize = 12;
const SHARE: usize = 8;
/// Widths in characters of the command line's column: without and with a limit on the line's width.
const COMMAND: usize = 48;
const COMMAND_LEAST: usize = 12;
/// Number of spaces before each line of the table.
const INDENT: usize = 2;

/// Formats the report as a table.
pub fn text(figures: &Figures, style: Style) -> String {
    let mut text = String::new();
    for (index, device) in figures.devices.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        about(&mut text, device, style);
        processes(&mut text, device, style);
    }
    text
}

fn about(text: &mut String, device: &DeviceFigures, style: Style) {
    let DeviceFigures { address, name, driver, cuda, .. } = device;
    let rest = style.plain(&format!("  {address}  driver {driver}  CUDA {cuda}"));
    _ = writeln!(text, "{}{}", style.bold(&style.plain(name)), style.dim(&rest));
    let (used, total) = (device.memory_used, device.memory_total);
    let percent = u128::from(used) * 100 / u128::from(total.max(1));
    _ = writeln!(
        text,
        "{:INDENT$}memory {} of {} ({percent} %)   GPU {}",
        "",
        size(used),
        size(total),
        share(device.utilization)
    );
    if let Some(of_guest) = &device.share {
        let how = if of_guest.enforced { "" } else { ", not enforced now" };
        let waited = time(of_guest.waited_seconds);
        let (part, waiting) = (share(Some(of_guest.part)), share(of_guest.waiting));
        _ = writeln!(
            text,
            "{:INDENT$}share {part} of the GPU's time{how}   waits {waiting}, {waited} so far",
            ""
        );
    }
}

fn processes(text: &mut String, device: &DeviceFigures, style: Style) {
    if device.processes.is_empty() {
        _ = writeln!(text, "{:INDENT$}{}", "", style.dim("no process of this guest uses it"));
        return;
    }
    let others = INDENT + PID + 2 + MEMORY + TIME + SHARE;
    let command =
        style.width.map_or(COMMAND, |width| width.saturating_sub(others).clamp(COMMAND_LEAST, COMMAND * 2));
    let head = format!(
        "{:INDENT$}{:>PID$}  {:command$}{:>MEMORY$}{:>TIME$}{:>SHARE$}",
        "", "PID", "PROCESS", "MEMORY", "GPU TIME", "GPU"
    );
    _ = writeln!(text, "{}", style.dim(&head));
    for process in &device.processes {
        line(text, process, command, style);
    }
}

fn line(text: &mut String, process: &ProcessFigures, command: usize, style: Style) {
    let pid = process.pid.map_or_else(|| UNKNOWN.to_owned(), |pid| pid.to_string());
    let name = style.plain(process.command.as_deref().unwrap_or(UNKNOWN));
    _ = writeln!(
        text,
        "{:INDENT$}{pid:>PID$}  {:command$}{:>MEMORY$}{:>TIME$}{:>SHARE$}",
        "",
        cut(&name, command.saturating_sub(1), style),
        process.memory.map_or_else(|| UNKNOWN.to_owned(), size),
        process.gpu_seconds.map_or_else(|| UNKNOWN.to_owned(), time),
        share(process.utilization),
    );
}

/// Shortens a text to `most` characters and marks the cut with an ellipsis.
fn cut(text: &str, most: usize, style: Style) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mark = if style.unicode { "\u{2026}" } else { "..." };
    text.chars().take(most.saturating_sub(mark.chars().count())).chain(mark.chars()).collect()
}

fn share(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.to_owned(), |share| format!("{:.0} %", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::{readings, session, share_of_guest};
    use super::super::reading::{Reading, Session};
    use super::*;

    fn shown(sessions: Vec<Session>, style: Style) -> String {
        let (before, now) = readings(vec![session(0, 1234, 11_930)], sessions);
        text(&Figures::new(&[before], &[now]), style)
    }

    #[test]
    fn the_table_is_what_was_agreed_on() {
        let untold = Session { memory: None, busy: None, process: None, command: None, ..session(5, 0, 0) };
        let long = Session { command: Some("llama-server --model ".repeat(9)), ..session(2, 77, 7_384_000) };
        let text =
            shown(vec![session(0, 1234, 12_300), long, untold], Style { unicode: true, ..Style::default() });
        let expected = "\
VGPU-STUB soft  0000:00:05.0  driver 580.65.06  CUDA 13.0
  memory 2 GiB of 8 GiB (25 %)   GPU -
       PID  PROCESS                                              MEMORY    GPU TIME     GPU
      1234  ollama runner --port 5                                1 GiB      12.3 s    37 %
        77  llama-server --model llama-server --model llam\u{2026}       1 GiB     2:03:04       -
         -  -                                                         -           -       -
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn a_share_has_a_line() {
        let line = |enforced| {
            let (before, now) = readings(vec![], vec![]);
            let before = Reading { share: Some(share_of_guest(enforced, 500)), ..before };
            let now = Reading { share: Some(share_of_guest(enforced, 71_000 + 540)), ..now };
            let text = text(&Figures::new(&[before], &[now]), Style::default());
            text.lines().nth(2).unwrap().to_owned()
        };
        assert_eq!(line(true), "  share 25 % of the GPU's time   waits 100 %, 1:11 so far");
        assert_eq!(
            line(false),
            "  share 25 % of the GPU's time, not enforced now   waits 100 %, 1:11 so far"
        );
    }

    #[test]
    fn narrow_terminals_and_nobody() {
        let style = Style { width: Some(60), ..Style::default() };
        let text = shown(vec![session(0, 1234, 12_300)], style);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(text.contains("ollama runner...") && text.contains("GPU 37 %"), "{text}");
        let text = shown(Vec::new(), style);
        assert!(text.ends_with("GPU 0 %\n  no process of this guest uses it\n"), "{text}");
    }
}
