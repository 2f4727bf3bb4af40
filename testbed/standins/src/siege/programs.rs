//! The processes of a round and their output.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::{Context, Result};

/// Event of a program, which is identified by its index.
#[derive(Debug)]
pub enum Event {
    /// The program printed this line.
    Line(usize, String),
    /// The program closed its output, as it does when it ends. The text is the last line that it wrote to
    /// stderr.
    End(usize, String),
}

/// A program that was started by the launcher. Dropping this kills it.
pub struct Program {
    child: Child,
    /// Input of a good program, which ends when its input is closed.
    stdin: Option<ChildStdin>,
}

impl Program {
    /// Starts this program's `siege` with `arguments` by the launcher in the same directory, on the simulated
    /// bus in `sysfs` if one is given.
    pub fn start(
        index: usize,
        arguments: &[OsString],
        sysfs: Option<&Path>,
        events: &Sender<Event>,
    ) -> Result<Self> {
        let own = std::env::current_exe().context("find the running program")?;
        let mut command = Command::new(launcher(&own));
        command.arg("--").arg(&own).arg("siege").args(arguments).env_remove("CUDA_VISIBLE_DEVICES");
        if let Some(sysfs) = sysfs {
            command.env("VGPU_SYSFS", sysfs);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("start the launcher")?;
        let stdin = child.stdin.take();
        let (out, err) =
            (child.stdout.take().context("no stdout")?, child.stderr.take().context("no stderr")?);
        let events = events.clone();
        thread::spawn(move || {
            let errors = thread::spawn(move || last_line(err));
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // Nobody listens any more when the round is over.
                let _ = events.send(Event::Line(index, line));
            }
            let _ = events.send(Event::End(index, errors.join().unwrap_or_default()));
        });
        Ok(Self { child, stdin })
    }

    /// Closes the program's input, which makes a good program end.
    pub fn close(&mut self) {
        drop(self.stdin.take());
    }

    /// Kills the program and reaps it.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill().context("kill a program")?;
        self.child.wait().context("wait for a program").map(drop)
    }

    /// Waits for the end of the program and returns its status. The program must have closed its output.
    pub fn status(mut self) -> Result<ExitStatus> {
        self.child.wait().context("wait for a program")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already; nothing can be done about either failure here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the path of the launcher, which is in the same directory as this program.
fn launcher(own: &Path) -> PathBuf {
    own.with_file_name("vgpu-run")
}

/// Reads to the end and returns the last line that is not empty.
fn last_line(from: impl Read) -> String {
    let lines = BufReader::new(from).lines().map_while(Result::ok);
    lines.filter(|line| !line.trim().is_empty()).last().unwrap_or_default()
}
