//! The monitor of a running QEMU: by its QMP socket, or by libvirt, which keeps the socket to itself.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};

use crate::programs::{self, ProgramError};
use crate::vm::ANSWER_MOST_MS;

/// Maximum time that QEMU may take to answer a command. It answers nothing while it waits for a device that
/// has died, for which it has a limit of its own ([`ANSWER_MOST_MS`]).
const ANSWER_MOST: Duration = Duration::from_millis(ANSWER_MOST_MS as u64 + 10_000);
/// Maximum length of a line of the monitor in bytes.
const LINE_MOST: u64 = 1 << 20;

/// Reason for which a command of the monitor failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MonitorError {
    /// The socket cannot be used, or QEMU does not answer.
    #[error("talk to QEMU at {}", .socket.display())]
    Socket {
        /// Path of the QMP socket.
        socket: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// QEMU does not answer.
    #[error(
        "QEMU does not answer at {}: another client may have its monitor, or it waits for the old device, for \
         {} s at most; try again",
        .socket.display(),
        ANSWER_MOST_MS / 1000
    )]
    Silent {
        /// Path of the QMP socket.
        socket: PathBuf,
    },
    /// virsh does not pass the command on.
    #[error(transparent)]
    Virsh(#[from] ProgramError),
    /// The answer is not one of QMP.
    #[error("understand the answer of QEMU: {0}")]
    Answer(String),
    /// QEMU refuses the command.
    #[error("QEMU refuses {command}: {reason}")]
    Refused {
        /// Name of the command.
        command: String,
        /// QEMU's words.
        reason: String,
    },
}

/// A monitor.
#[derive(Debug)]
pub(crate) enum Monitor {
    /// The QMP socket of QEMU.
    Qmp { socket: PathBuf, stream: BufReader<UnixStream> },
    /// The domain of libvirt.
    Libvirt { domain: String },
}

impl Monitor {
    /// Connects to a QMP socket, which serves one client at a time.
    pub(crate) fn qmp(socket: &Path) -> Result<Self, MonitorError> {
        let failed = |source| failed(socket, source);
        let connect = || {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(ANSWER_MOST))?;
            stream.set_write_timeout(Some(ANSWER_MOST))?;
            Ok(BufReader::new(stream))
        };
        let mut stream = connect().map_err(failed)?;
        // The greeting.
        let greeting = read_line(&mut stream).map_err(failed)?;
        if greeting.get("QMP").is_none() {
            return Err(MonitorError::Answer(greeting.to_string()));
        }
        let mut monitor = Self::Qmp { socket: socket.to_owned(), stream };
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Returns the monitor of a domain of libvirt.
    pub(crate) fn libvirt(domain: &str) -> Self {
        Self::Libvirt { domain: domain.to_owned() }
    }

    /// Carries out a command, and returns its result.
    pub(crate) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, MonitorError> {
        let request = json!({ "execute": command, "arguments": arguments });
        let mut answer = match self {
            Self::Qmp { socket, stream } => {
                let failed = |source| failed(socket, source);
                writeln!(stream.get_mut(), "{request}").map_err(failed)?;
                // Events may come first.
                loop {
                    let line = read_line(stream).map_err(failed)?;
                    if line.get("event").is_none() {
                        break line;
                    }
                }
            }
            Self::Libvirt { domain } => through_virsh(domain, &request)?,
        };
        if let Some(error) = answer.get("error") {
            let reason = error["desc"].as_str().map_or_else(|| error.to_string(), str::to_owned);
            return Err(MonitorError::Refused { command: command.to_owned(), reason });
        }
        match answer.get_mut("return") {
            Some(result) => Ok(result.take()),
            None => Err(MonitorError::Answer(answer.to_string())),
        }
    }

    /// Returns whether the VM was started with `text` in its arguments or its domain.
    pub(crate) fn was_started_with(&self, text: &str) -> Result<bool, MonitorError> {
        let description = match self {
            Self::Qmp { socket, stream } => {
                let failed = |source| failed(socket, source);
                let process = socket_peercred(stream.get_ref()).map_err(|error| failed(error.into()))?.pid;
                fs::read(format!("/proc/{process}/cmdline")).map_err(failed)?
            }
            Self::Libvirt { domain } => {
                programs::run("virsh", &["dumpxml", domain], ANSWER_MOST)?.into_bytes()
            }
        };
        Ok(String::from_utf8_lossy(&description).contains(text))
    }

    /// Returns whether the VM has a device of this id.
    pub(crate) fn has_device(&mut self, id: &str) -> Result<bool, MonitorError> {
        let devices = self.execute("qom-list", &json!({ "path": "/machine/peripheral" }))?;
        Ok(devices.as_array().is_some_and(|devices| devices.iter().any(|device| device["name"] == id)))
    }
}

fn failed(socket: &Path, source: io::Error) -> MonitorError {
    let socket = socket.to_owned();
    match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => MonitorError::Silent { socket },
        _ => MonitorError::Socket { socket, source },
    }
}

fn read_line(stream: &mut BufReader<UnixStream>) -> io::Result<Value> {
    let mut line = String::new();
    stream.by_ref().take(LINE_MOST).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}

fn through_virsh(domain: &str, request: &Value) -> Result<Value, MonitorError> {
    let request = request.to_string();
    let answer = programs::run("virsh", &["qemu-monitor-command", domain, &request], ANSWER_MOST)?;
    serde_json::from_str(&answer).map_err(|_| MonitorError::Answer(answer))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Plays QEMU: it greets, and answers each line by the next of `answers`.
    /// Returns the names of the commands that it was given.
    pub(crate) fn played(
        answers: &'static [&'static str],
        session: impl FnOnce(Result<Monitor, MonitorError>),
    ) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("qmp");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::scope(|scope| {
            let commands = scope.spawn(move || {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                let (greeting, answers) = answers.split_first().unwrap();
                writeln!(stream.get_mut(), "{greeting}").unwrap();
                let mut commands = Vec::new();
                for answer in answers {
                    let request = read_line(&mut stream).unwrap();
                    commands.push(request["execute"].as_str().unwrap().to_owned());
                    writeln!(stream.get_mut(), "{answer}").unwrap();
                }
                commands
            });
            session(Monitor::qmp(&socket));
            commands.join().unwrap()
        })
    }

    #[test]
    fn events_between_answers_are_passed_over() {
        let answers = &[
            r#"{"QMP":{"version":{},"capabilities":[]}}"#,
            r#"{"return":{}}"#,
            "{\"event\":\"RESUME\"}\n{\"event\":\"DEVICE_DELETED\"}\n{\"return\":[{\"name\":\"vgpu\"}]}",
            r#"{"return":[{"name":"type"}]}"#,
        ];
        played(answers, |monitor| {
            let mut monitor = monitor.unwrap();
            assert!(monitor.has_device("vgpu").unwrap());
            assert!(!monitor.has_device("vgpu").unwrap());
            // The other end is this program.
            assert!(
                monitor.was_started_with("vgpu").unwrap() && !monitor.was_started_with("no such").unwrap()
            );
        });
    }

    #[test]
    fn refusals_and_other_servers_are_told() {
        let answers = &[
            r#"{"QMP":{}}"#,
            r#"{"return":{}}"#,
            r#"{"error":{"class":"DeviceNotFound","desc":"Device 'vgpu' not found"}}"#,
            r#"{"answer":1}"#,
        ];
        played(answers, |monitor| {
            let mut monitor = monitor.unwrap();
            let refused = monitor.execute("device_del", &json!({ "id": "vgpu" })).unwrap_err();
            assert_eq!(refused.to_string(), "QEMU refuses device_del: Device 'vgpu' not found");
            assert!(matches!(monitor.execute("stop", &json!({})), Err(MonitorError::Answer(_))));
            // It has gone.
            assert!(matches!(monitor.execute("stop", &json!({})), Err(MonitorError::Socket { .. })));
        });
        played(&[r#"{"name":"vm1"}"#], |monitor| assert!(matches!(monitor, Err(MonitorError::Answer(_)))));
        assert!(matches!(Monitor::qmp(Path::new("/does/not/exist")), Err(MonitorError::Socket { .. })));
    }
}
