//! Determines who listens at the address that a server would take: an Ollama with vgpu-run's libraries, one
//! without, or another program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::check::context::CheckContext;
use crate::check::unit::{self, Unit};
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
    /// A process that this user may not see, or an Ollama that may or may not be vgpu-run's, with the id of
    /// the user that the process runs as.
    Unseen(u32),
    /// Nobody any more.
    Nobody,
}

/// Finds the holder of the address in OLLAMA_HOST.
pub async fn find(context: &CheckContext) -> Holder {
    let host = context.environment.get(OLLAMA_HOST).map(|host| host.to_string_lossy().into_owned());
    at(context, host.as_deref()).await
}

/// Finds the holder of the address that a server takes for a value of OLLAMA_HOST.
pub async fn at(context: &CheckContext, host: Option<&str>) -> Holder {
    let Ok(all) = sockets::listeners(Path::new(PROC), "self") else { return Holder::Nobody };
    let (name, port) = address::listens(host);
    let wanted = addresses(&name);
    let in_the_way = |socket: &&Listener| {
        socket.address.port() == port && excludes(socket.address.ip(), wanted.as_deref())
    };
    let in_the_way: Vec<&Listener> = all.iter().filter(in_the_way).collect();
    let Some(first) = in_the_way.first() else { return Holder::Nobody };
    let running = Running::scan(Path::new(PROC));
    // Of several, the Ollama is the server that a check is about.
    let owners = in_the_way.iter().filter_map(|socket| owner(&running, socket));
    let Some(process) = owners.min_by_key(|process| !process.serves()) else {
        return Holder::Unseen(first.user);
    };
    let unit = unit_of(context, &running, process.pid).await;
    let name = |unit: Unit| unit.name;
    if !process.serves() {
        return Holder::Other(process.clone(), unit.map(name));
    }
    // Its environment may not be readable, while its unit is.
    let wrapped = process.wrapped().or_else(|| starts_wrapped(unit.as_ref()?, process.pid));
    match wrapped {
        Some(true) => Holder::Ours(process.clone()),
        Some(false) => {
            Holder::Stock(process.clone(), unit.filter(|unit| sets_up(unit, process.pid)).map(name))
        }
        None => Holder::Unseen(process.user),
    }
}

/// Returns the addresses of a host as a server listens at them; `None` for a name that only a resolver knows.
fn addresses(host: &str) -> Option<Vec<IpAddr>> {
    match host {
        "" => Some(vec![Ipv6Addr::UNSPECIFIED.into()]),
        "localhost" => Some(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
        host => host.parse().ok().map(|address| vec![address]),
    }
}

/// Returns whether nobody else can listen at one of the `wanted` addresses while a socket listens at `bound`:
/// one that takes all addresses is in the way of each of them, and the other way round.
fn excludes(bound: IpAddr, wanted: Option<&[IpAddr]>) -> bool {
    let bound = bound.to_canonical();
    wanted.is_none_or(|wanted| {
        wanted.iter().map(IpAddr::to_canonical).any(|wanted| {
            let all = |of: IpAddr, other: IpAddr| of.is_unspecified() && (of.is_ipv6() || other.is_ipv4());
            bound == wanted || all(bound, wanted) || all(wanted, bound)
        })
    })
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

/// Returns the unit of the system's manager that started a process, directly or through its main process.
async fn unit_of(context: &CheckContext, running: &Running, pid: u32) -> Option<Unit> {
    let name = unit_by_group(Path::new(PROC), pid)?;
    let unit = unit::find(&name, &context.environment).await.ok()?;
    let main = main_process(&unit)?;
    running.tree(main).iter().any(|process| process.pid == pid).then_some(unit)
}

/// Returns the main process of a unit, if systemd knows one.
fn main_process(unit: &Unit) -> Option<u32> {
    unit.get("MainPID").parse().ok().filter(|pid| *pid != 0)
}

/// Returns whether a unit starts its main process `pid` through vgpu-run. What a script does is not known.
fn starts_wrapped(unit: &Unit, pid: u32) -> Option<bool> {
    let command = unit.command();
    if command.iter().any(|word| word.ends_with("vgpu-run")) {
        return Some(true);
    }
    let bare = command.first().is_some_and(|program| Path::new(program).ends_with("ollama"));
    (bare && main_process(unit) == Some(pid)).then_some(false)
}

/// Returns whether a unit is there to run the Ollama `pid`, so that it can be set up for vgpu-run. Others,
/// such as that of cron, start it among many programs.
fn sets_up(unit: &Unit, pid: u32) -> bool {
    let command = unit.command();
    main_process(unit) == Some(pid)
        || std::iter::once(&unit.name).chain(&command).any(|word| word.contains("ollama"))
}

/// Returns the service of the system's manager whose control group a process is in. A user's services, which
/// are below `user@UID.service`, are unknown to that manager.
fn unit_by_group(proc: &Path, pid: u32) -> Option<String> {
    let groups = std::fs::read_to_string(proc.join(pid.to_string()).join("cgroup")).ok()?;
    groups.lines().find_map(|line| {
        let mut parts = line.split('/');
        let leaf = parts.next_back().filter(|leaf| leaf.ends_with(".service"))?;
        let of_user = leaf.starts_with("user@") || parts.any(|part| part.starts_with("user@"));
        (!of_user).then(|| leaf.to_owned())
    })
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
            unit_by_group(scratch.path(), 7)
        };
        assert_eq!(of("0::/system.slice/ollama.service\n").as_deref(), Some("ollama.service"));
        assert_eq!(of("0::/user.slice/user-0.slice/user@0.service/app.slice/x.scope\n"), None);
        assert_eq!(of("1:name=systemd:/system.slice/a.service\n0::/\n").as_deref(), Some("a.service"));
        let terminal = "0::/user.slice/user-0.slice/user@0.service/app.slice/gnome-terminal-server.service\n";
        assert_eq!(of(terminal), None, "of the user's manager");
        assert_eq!(
            of("0::/system.slice/k3s.service/kubepods/pod1\n"),
            None,
            "started by what the service runs"
        );
        assert_eq!(unit_by_group(scratch.path(), 8), None);
    }

    #[test]
    fn who_is_in_the_way_of_an_address() {
        let of = |bound: &str, host: &str| excludes(bound.parse().unwrap(), addresses(host).as_deref());
        assert!(of("127.0.0.1", "127.0.0.1") && of("0.0.0.0", "127.0.0.1") && of("::", "127.0.0.1"));
        assert!(of("::ffff:127.0.0.1", "127.0.0.1") && of("::1", "localhost"));
        assert!(of("192.168.1.5", "0.0.0.0") && of("192.168.1.5", ""));
        assert!(!of("192.168.1.5", "127.0.0.1") && !of("192.168.1.5", "localhost"));
        assert!(!of("0.0.0.0", "::1"), "another family");
        assert!(of("192.168.1.5", "gpu-box"), "a name that is not known here");
    }

    #[test]
    fn what_a_unit_proves_about_its_process() {
        let of = |command: &str| {
            let exec = format!("{{ path=/x ; argv[]={command} ; ignore_errors=no }}");
            Unit::with(&[("MainPID", "7"), ("ExecStart", &exec)])
        };
        assert_eq!(starts_wrapped(&of("/usr/bin/vgpu-run -- /usr/bin/ollama serve"), 8), Some(true));
        assert_eq!(starts_wrapped(&of("/usr/bin/ollama serve"), 7), Some(false));
        assert_eq!(starts_wrapped(&of("/usr/bin/ollama serve"), 8), None, "one that the server started");
        assert_eq!(starts_wrapped(&of("/opt/start.sh"), 7), None);
        let cron = Unit { name: "cron.service".into(), ..of("/usr/sbin/cron -f") };
        assert!(!sets_up(&cron, 8) && sets_up(&cron, 7) && sets_up(&of("/opt/start.sh"), 8));
        assert_eq!(main_process(&Unit::with(&[("MainPID", "0")])), None);
    }
}
