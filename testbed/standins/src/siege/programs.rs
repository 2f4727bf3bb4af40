//! The processes of a round, and what they say.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::{Context, Result};

/// What happens to a program, which is told by its index.
#[derive(Debug)]
pub enum Event {
    /// It printed a line.
    Line(usize, String),
    /// It has closed its output, which it does when it ends; the last line that it wrote to stderr.
    End(usize, String),
}

/// A program under the launcher. It is killed when this value goes away.
pub struct Program {
    child: Child,
    /// A good program ends when this closes.
    stdin: Option<ChildStdin>,
}

impl Program {
    /// Starts this program's `siege` with `arguments` under the launcher beside it, on the bus in `sysfs` if
    /// there is one.
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

    /// Asks a good program to end.
    pub fn close(&mut self) {
        drop(self.stdin.take());
    }

    /// Kills the program and waits until it is gone.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill().context("kill a program")?;
        self.child.wait().context("wait for a program").map(drop)
    }

    /// How it ended, once it has closed its output.
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

/// The launcher lies beside this program.
fn launcher(own: &Path) -> PathBuf {
    own.with_file_name("vgpu-run")
}

/// The last line of what is written until the end.
fn last_line(from: impl Read) -> String {
    let lines = BufReader::new(from).lines().map_while(Result::ok);
    lines.filter(|line| !line.trim().is_empty()).last().unwrap_or_default()
}
