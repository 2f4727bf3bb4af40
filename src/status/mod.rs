//! Implements `vgpu-run status`: the devices of this guest and the processes that use them, with their memory
//! and their share of the GPU.
//!
//! The data is in /proc and in registers that every process with access to the device may read, so no channel
//! is taken and no session is disturbed. A share needs two readings, so one reading is made before the first
//! report.

mod figures;
mod reading;
mod table;

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use vgpu_findings::style::Style;
use vgpu_transport::sysfs_root;

use crate::cli::StatusOptions;
use crate::device;
use crate::error::Failure;
use crate::reap::reap_one;

use figures::Figures;
use reading::{Opened, Reading};

/// Interval between the two readings of a single report.
const MOMENT: Duration = Duration::from_millis(250);
/// Time for which sessions of dead processes that are ending are waited for.
const ENDING_MOST: Duration = Duration::from_millis(250);
/// Escape sequence that moves the cursor to the top left and clears the screen below it.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Prints the report once, or repeatedly with `--watch`.
pub fn status(options: &StatusOptions) -> Result<(), Failure> {
    let root = sysfs_root();
    let functions = device::find()?;
    for function in &functions {
        // What the dead hold is not shown as in use. A device that cannot be reaped may still be shown.
        if let Err(error) = reap_one(function, ENDING_MOST) {
            tracing::debug!(?error, "the sessions of dead processes are not ended");
        }
    }
    let opened: Vec<Opened> =
        functions.into_iter().map(|function| Opened::new(function, &root)).collect::<Result<_, _>>()?;
    let read = || opened.iter().map(Opened::read).collect::<Result<Vec<Reading>, _>>();
    let style = Style::of_stdout(options.color);
    let redraw = if io::stdout().is_terminal() { REDRAW } else { "" };
    let mut before = read()?;
    let mut pause = MOMENT;
    loop {
        thread::sleep(pause);
        let now = read()?;
        let figures = Figures::new(&before, &now);
        let text = if options.json {
            // Texts and numbers: there is nothing in it that cannot be written.
            serde_json::to_string(&figures).unwrap_or_default() + "\n"
        } else if options.watch.is_some() {
            format!("{redraw}{}", table::text(&figures, style))
        } else {
            table::text(&figures, style)
        };
        let mut out = io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            // Standard output is closed. The exit code is then enough.
            return Ok(());
        }
        let Some(interval) = options.watch else { return Ok(()) };
        pause = interval;
        before = now;
    }
}
