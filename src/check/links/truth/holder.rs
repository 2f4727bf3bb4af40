//! Determines who listens at the address that a server would take: an Ollama with vgpu-run's libraries, one
//! without, or another program.

use std::path::Path;

use crate::check::context::CheckContext;
use crate::check::unit;
use crate::env::OLLAMA_HOST;
use crate::ollama::address;
use crate::ollama::processes::{OllamaServer, Running, RunningProcess};
use crate::ollama::sockets::{self, Listener};

/// Directory in which the kernel shows processes and sockets.
const PROC: &str = "/proc";

/// Who listens at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// An Ollama that vgpu-run started.
    Ours(RunningProcess),
    /// An Ollama that vgpu-run did not start, with its unit, if systemd runs it.
    Stock(RunningProcess, Option<String>),
    /// Another program, with its unit.
    Other(RunningProcess, Option<String>),
    /// A process that this user may not see, with the id of the user that it runs as.
    Unseen(u32),
    /// Nobody any more.
    Nobody,
}

/// Finds the holder of the address in OLLAMA_HOST.
pub async fn find(context: &CheckContext) -> Holder {
    let host = context.environment.get(OLLAMA_HOST).map(|host| host.to_string_lossy().into_owned());
    let (_, port) = address::listens(host.as_deref());
    at_port(context, port).await
}

/// Finds the holder of a port.
pub async fn at_port(context: &CheckContext, port: u16) -> Holder {
    let Ok(all) = sockets::listeners(Path::new(PROC), "self") else { return Holder::Nobody };
    // A server that takes all addresses is in the way of each of them, and the other way round.
    let Some(socket) = all.into_iter().find(|socket| socket.address.port() == port) else {
        return Holder::Nobody;
    };
    let running = Running::scan(Path::new(PROC));
    let Some(process) = owner(&running, &socket) else { return Holder::Unseen(socket.user) };
    let unit = unit_of(Path::new(PROC), process.pid);
    if !process.serves() {
        return Holder::Other(process.clone(), unit);
    }
    let ours = match (process.wrapped(), &unit) {
        (Some(wrapped), _) => wrapped,
        // Its environment may not be read, but its unit may.
        (None, Some(unit)) => unit::find(unit, &context.environment)
            .await
            .is_ok_and(|unit| unit.command().iter().any(|word| word.ends_with("vgpu-run"))),
        (None, None) => false,
    };
    if ours { Holder::Ours(process.clone()) } else { Holder::Stock(process.clone(), unit) }
}

/// Returns the owner of a socket. Where sockets may not be read, the one Ollama of the socket's user counts.
fn owner<'a>(running: &'a Running, socket: &Listener) -> Option<&'a RunningProcess> {
    let owners = sockets::owners(Path::new(PROC), &running.pids(), socket.inode);
    let seen = owners.processes.iter().filter_map(|pid| running.process(*pid));
    if let Some(process) = seen.max_by_key(|process| process.serves()) {
        return Some(process);
    }
    let same = |server: &&OllamaServer| server.listens.is_none() && server.process.user == socket.user;
    let mut candidates = running.servers.iter().filter(same);
    match (candidates.next(), candidates.next()) {
        (Some(server), None) => Some(&server.process),
        _ => None,
    }
}

/// Returns the systemd service that a process belongs to.
fn unit_of(proc: &Path, pid: u32) -> Option<String> {
    let groups = std::fs::read_to_string(proc.join(pid.to_string()).join("cgroup")).ok()?;
    let mut parts = groups.lines().flat_map(|line| line.split('/'));
    // A user's manager is itself a service, of no interest here.
    parts.rfind(|part| part.ends_with(".service") && !part.starts_with("user@")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_unit_of_a_process() {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.join("7")).unwrap();
        let of = |text: &str| {
            std::fs::write(scratch.join("7/cgroup"), text).unwrap();
            unit_of(scratch.path(), 7)
        };
        assert_eq!(of("0::/system.slice/ollama.service\n").as_deref(), Some("ollama.service"));
        assert_eq!(of("0::/user.slice/user-0.slice/user@0.service/app.slice/x.scope\n"), None);
        assert_eq!(of("1:name=systemd:/system.slice/a.service\n0::/\n").as_deref(), Some("a.service"));
        assert_eq!(unit_of(scratch.path(), 8), None);
    }
}
