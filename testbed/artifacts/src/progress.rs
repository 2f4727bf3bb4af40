//! Progress of long work on stderr: a progress bar on a terminal, else a line.

use std::io::{IsTerminal as _, Read, Seek, SeekFrom};
use std::time::Duration;

use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};

/// Progress bar of work with a known number of bytes. The bar disappears when the value is dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Starts a progress bar, or prints one line if stderr is no terminal. `what` describes the work, as in
    /// "fetching this".
    pub fn begin(what: String, bytes: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            eprintln!("{what} ({})", DecimalBytes(bytes));
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(bytes).with_message(what);
        let style =
            ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(bar)
    }

    /// Moves the bar to `bytes` bytes, at most to its end.
    pub fn at(&self, bytes: u64) {
        self.0.set_position(bytes.min(self.0.length().unwrap_or(bytes)));
    }

    /// Wraps `reader` so that the bytes read from it advance the bar.
    pub fn counted<R>(&self, reader: R) -> Counted<'_, R> {
        Counted { reader, progress: self }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A reader that advances a progress bar by the bytes read.
#[derive(Debug)]
pub struct Counted<'a, R> {
    reader: R,
    progress: &'a Progress,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.reader.read(buffer)?;
        self.progress.0.inc(bytes as u64);
        Ok(bytes)
    }
}

impl<R: Seek> Seek for Counted<'_, R> {
    fn seek(&mut self, position: SeekFrom) -> std::io::Result<u64> {
        self.reader.seek(position)
    }
}
