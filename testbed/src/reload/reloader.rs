//! Reloads a device at the tokens of a stream, so that reloads are spread over it however long it takes.

use std::sync::mpsc::Receiver;
use std::time::Instant;

use anyhow::Result;
use vgpu_testbed::unit::Instance;

use super::figures::Interval;
use super::options::ReloadArgs;

/// The reloads of a device.
#[derive(Debug, Default)]
pub(super) struct Reloads {
    pub(super) intervals: Vec<Interval>,
    /// Times in milliseconds for which the device has answered no access, as it tells it.
    pub(super) pauses: Vec<f64>,
    /// Number of reloads that began before the last token.
    pub(super) streaming: usize,
}

/// Reloads the device at every so many of the tokens that `tokens` tells of. Reloads that the stream has left
/// no time for come after it.
pub(super) fn reload(device: &Instance, arguments: &ReloadArgs, tokens: &Receiver<()>) -> Result<Reloads> {
    let mut reloads = Reloads::default();
    let mut over = false;
    for _ in 0..arguments.reloads {
        for _ in 0..(arguments.tokens / (arguments.reloads + 1)).max(1) {
            over |= tokens.recv().is_err();
        }
        let start = Instant::now();
        reloads.pauses.push(device.reload_well()?);
        reloads.intervals.push((start, Instant::now()));
        reloads.streaming += usize::from(!over);
    }
    Ok(reloads)
}
