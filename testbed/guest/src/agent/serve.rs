//! Runs the commands that arrive, one after the other.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;

use super::message::{End, Job, Message, PORT};

/// Size in bytes of the pieces in which a command's output is forwarded.
const PIECE: usize = 1 << 14;
/// Value of `PATH` for the commands.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Opens the agent's port, which is found by its name because no udev creates links in the guest.
///
/// # Errors
/// Fails if there is no such port.
pub fn port() -> io::Result<File> {
    let ports = Path::new("/sys/class/virtio-ports");
    for entry in fs::read_dir(ports)? {
        let entry = entry?;
        if fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim() == PORT) {
            return OpenOptions::new().read(true).write(true).open(Path::new("/dev").join(entry.file_name()));
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("no virtio-serial port {PORT}")))
}

/// A user of the guest, as `/etc/passwd` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct User {
    id: u32,
    group: u32,
    home: PathBuf,
}

/// Returns the user called `name` from the text of `/etc/passwd`.
fn user(passwd: &str, name: &str) -> Option<User> {
    let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let fields = lines.find(|fields| fields.first() == Some(&name))?;
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(User { id: number(2)?, group: number(3)?, home: PathBuf::from(fields.get(5)?) })
}

/// Reports that the agent is ready and runs jobs until the host has no more.
///
/// # Errors
/// Fails if the port fails.
pub fn serve(port: &File) -> io::Result<()> {
    let uptime = fs::read_to_string("/proc/uptime")?;
    let since = uptime.split(' ').next().unwrap_or_default().to_owned();
    let (mut reader, mut writer) = (port, port);
    Message::Ready(since).send(&mut writer)?;
    while let Some(job) = Job::receive(&mut reader)? {
        let (sender, messages) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let last = match run_job(&job, &sender) {
                    Ok(end) => Message::Ended(end),
                    Err(error) => Message::Failed(format!("run {:?}: {error}", job.command)),
                };
                // The receiver is gone only if the port has failed.
                let _ = sender.send(last);
            });
            messages.iter().try_for_each(|message| message.send(&mut writer))
        })?;
    }
    Ok(())
}

/// Runs one command and sends its output to `to`.
fn run_job(job: &Job, to: &Sender<Message>) -> io::Result<End> {
    let passwd = fs::read_to_string("/etc/passwd")?;
    let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("no user {}", job.user));
    let user = user(&passwd, &job.user).ok_or_else(unknown)?;
    let (program, arguments) = job.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", PATH).env("HOME", &user.home).env("USER", &job.user);
    command.envs(&job.environment).current_dir(&job.folder);
    // The groups of init are dropped together with root.
    command.gid(user.group).uid(user.id).process_group(0);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let status = thread::scope(|scope| {
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        scope.spawn(|| stdout.map(|pipe| pass(pipe, to, Message::Stdout)));
        scope.spawn(|| stderr.map(|pipe| pass(pipe, to, Message::Stderr)));
        child.wait()
    })?;
    Ok(status.code().map_or_else(|| End::Signal(status.signal().unwrap_or(0)), End::Code))
}

/// Forwards the output of a pipe as messages until the pipe is closed.
fn pass(mut pipe: impl Read, to: &Sender<Message>, message: fn(Vec<u8>) -> Message) {
    let mut piece = vec![0; PIECE];
    loop {
        match pipe.read(&mut piece) {
            Ok(count) if count > 0 && to.send(message(piece[..count].to_vec())).is_ok() => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nguest:x:1000:1000::/home/guest:/bin/sh\n";
        let found = user(passwd, "guest").unwrap();
        assert_eq!(found, User { id: 1000, group: 1000, home: "/home/guest".into() });
        assert!(user(passwd, "gues").is_none() && user("guest:x:\n", "guest").is_none());
    }
}
