//! Chooses the running server to examine: with `--service` the service's own, otherwise the one that answers
//! at the address in OLLAMA_HOST. The owner of the listening socket identifies the server, rather than a name
//! or an order.

use std::net::SocketAddr;
use std::path::Path;

use crate::check::unit::Unit;
use crate::diagnosis::cause::service as cause;
use crate::diagnosis::fix::service as fix;
use crate::diagnosis::{Finding, LinkId};
use crate::env::OLLAMA_HOST;
use crate::ollama::address::addresses;
use crate::ollama::processes::{OllamaServer, Running, RunningProcess};
use crate::ollama::sockets::{self, Listener};

const LINK: LinkId = LinkId::Service;

/// Directory in which the kernel shows processes and sockets.
const PROC: &str = "/proc";

/// A running server that was chosen for examination.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Server to examine.
    pub server: OllamaServer,
    /// Address at which the server is asked. `None` if the host name in OLLAMA_HOST does not resolve.
    pub address: Option<SocketAddr>,
    /// Another process that answers at that address instead.
    pub instead: Option<RunningProcess>,
    /// Remarks on the other servers, and on what could not be examined.
    pub notes: Vec<String>,
}

/// Chooses a server. `host` is the value of OLLAMA_HOST for this check, or in the unit.
///
/// # Errors
///
/// Returns the finding if there is no server to examine.
pub fn choose(running: &Running, unit: Option<&Unit>, host: Option<&str>) -> Result<Chosen, Box<Finding>> {
    match unit {
        Some(unit) => of_unit(running, unit, host),
        None => of_address(running, host),
    }
}

/// Owner of the socket that answers at an address.
enum Owner<'a> {
    OllamaServer(&'a OllamaServer),
    Other(&'a RunningProcess),
    /// The owner is not visible to this user.
    Unseen,
}

/// Returns the first of the addresses at which a process listens, with the socket.
fn listener(addresses: &[SocketAddr]) -> Result<Option<(SocketAddr, Listener)>, String> {
    let all = sockets::listeners(Path::new(PROC), "self")
        .map_err(|error| format!("which sockets listen cannot be read: {error}"))?;
    let found = |address: &SocketAddr| Some((*address, *sockets::answering(&all, *address)?));
    Ok(addresses.iter().find_map(found))
}

fn owner<'a>(running: &'a Running, listener: &Listener) -> Owner<'a> {
    let listens = |server: &&OllamaServer| {
        let sockets = server.listens.as_deref().unwrap_or_default();
        sockets.iter().any(|socket| socket.inode == listener.inode)
    };
    if let Some(server) = running.servers.iter().find(listens) {
        return Owner::OllamaServer(server);
    }
    let owners = sockets::owners(Path::new(PROC), &running.pids(), listener.inode);
    match owners.processes.first().and_then(|&pid| running.process(pid)) {
        Some(process) => Owner::Other(process),
        None => Owner::Unseen,
    }
}

fn of_unit(running: &Running, unit: &Unit, host: Option<&str>) -> Result<Chosen, Box<Finding>> {
    let pid = unit.get("MainPID").parse::<u32>().unwrap_or_default();
    let server = (pid > 0).then(|| running.server_of(pid)).flatten();
    let host = server.and_then(|server| server.process.value(OLLAMA_HOST)).or(host.map(str::to_owned));
    let addresses = addresses(host.as_deref());
    let listener = listener(&addresses);
    let mut notes = Vec::new();
    let mut instead = None;
    match &listener {
        Err(error) => notes.push(error.clone()),
        Ok(None) => {}
        Ok(Some((address, socket))) => match owner(running, socket) {
            Owner::OllamaServer(other)
                if Some(other.process.pid) != server.map(|server| server.process.pid) =>
            {
                instead = Some(other.process.clone());
            }
            Owner::OllamaServer(_) => {}
            Owner::Other(process) => instead = Some(process.clone()),
            Owner::Unseen => {
                notes.push(format!("which process listens at {address} may not be seen by this user"));
            }
        },
    }
    let address = listener.ok().flatten().map(|(address, _)| address).or(addresses.first().copied());
    let Some(server) = server else {
        return Err(Box::new(not_running(running, unit, address, instead.as_ref())));
    };
    notes.extend(others(running, Some(server)));
    Ok(Chosen { server: server.clone(), address, instead, notes })
}

fn not_running(
    running: &Running,
    unit: &Unit,
    address: Option<SocketAddr>,
    instead: Option<&RunningProcess>,
) -> Finding {
    let state = unit.get("ActiveState");
    let pid = unit.get("MainPID").parse::<u32>().unwrap_or_default();
    if state.is_empty() {
        return Finding::skip(LINK, format!("systemd does not say whether {} runs", unit.name))
            .details(others(running, None));
    }
    if let (Some(process), Some(address)) = (instead, address) {
        return taken(&unit.name, address, process, &format!("{} is {state}", unit.name))
            .details(others(running, None));
    }
    if pid > 0 && running.process(pid).is_none() {
        return Finding::skip(
            LINK,
            format!("{} runs as process {pid}, which may not be seen by this user", unit.name),
        );
    }
    if let Some(process) = running.process(pid).filter(|_| pid > 0) {
        return Finding::unknown(LINK, format!("{} runs a process that is no `ollama serve`", unit.name))
            .fix(fix::OTHER_COMMAND)
            .detail(process.shown());
    }
    Finding::fail(cause::NOT_ANSWERING, format!("{} is {state}", unit.name))
        .fix(fix::START)
        .with("unit", &unit.name)
        .details(others(running, None))
}

/// Returns the finding for another process that listens at the service's address.
pub fn taken(unit: &str, address: SocketAddr, process: &RunningProcess, state: &str) -> Finding {
    let ollama = process.serves();
    let what = if ollama { "another Ollama" } else { "another program" };
    let found = format!("{address} is answered by {what} (process {}), not by {unit}", process.pid);
    let finding = Finding::fail(cause::ADDRESS_TAKEN, found).expected(format!("{unit} at its address"));
    let finding = if ollama {
        finding.fix(fix::END_OTHER).with("process", process.pid).with("unit", unit)
    } else {
        finding
    };
    finding.detail(process.shown()).detail(state)
}

fn of_address(running: &Running, host: Option<&str>) -> Result<Chosen, Box<Finding>> {
    let addresses = addresses(host);
    let skip = |why: String| Box::new(Finding::skip(LINK, why).details(others(running, None)));
    let Some(&first) = addresses.first() else {
        return Err(skip(format!("the host of OLLAMA_HOST={} is not known", host.unwrap_or_default())));
    };
    let (address, socket) = match listener(&addresses) {
        Ok(Some(found)) => found,
        Ok(None) if running.servers.is_empty() => return Err(skip("no Ollama is running".to_owned())),
        Ok(None) => {
            return Err(skip(format!("no Ollama listens at {first}, where OLLAMA_HOST says; others run")));
        }
        Err(error) => return Err(skip(error)),
    };
    let chosen = |server: &OllamaServer, note: Option<String>| Chosen {
        server: server.clone(),
        address: Some(address),
        instead: None,
        notes: note.into_iter().chain(others(running, Some(server))).collect(),
    };
    match owner(running, &socket) {
        Owner::OllamaServer(server) => Ok(chosen(server, None)),
        Owner::Other(process) => {
            let name = process.words.first().map(|word| word.rsplit('/').next().unwrap_or(word));
            let found = format!(
                "what listens at {address} is no Ollama: process {} ({})",
                process.pid,
                name.unwrap_or_default()
            );
            Err(Box::new(skip(found).detail(process.shown())))
        }
        Owner::Unseen => {
            let unseen = format!("which process listens at {address} may not be seen by this user");
            let same =
                |server: &&OllamaServer| server.listens.is_none() && server.process.user == socket.user;
            let mut candidates = running.servers.iter().filter(same);
            match (candidates.next(), candidates.next()) {
                (Some(server), None) => Ok(chosen(
                    server,
                    Some(format!("{unseen}; process {} is the one Ollama of its user", server.process.pid)),
                )),
                _ => Err(skip(format!("{unseen} (the socket is of user {})", socket.user))),
            }
        }
    }
}

/// Describes each server other than the examined one: where it listens, and who started it.
fn others(running: &Running, judged: Option<&OllamaServer>) -> Vec<String> {
    let other = |server: &&OllamaServer| judged.is_none_or(|judged| judged.process.pid != server.process.pid);
    let line = |server: &OllamaServer| {
        let sockets = server.listens.as_deref().map(|sockets| {
            sockets.iter().map(|socket| socket.address.to_string()).collect::<Vec<_>>().join(", ")
        });
        let place = match sockets {
            None => "its sockets may not be seen by this user".to_owned(),
            Some(list) if list.is_empty() => "listens nowhere".to_owned(),
            Some(list) => format!("listens at {list}"),
        };
        let by = match server.process.wrapped() {
            Some(true) => "started by vgpu-run",
            Some(false) => "not started by vgpu-run",
            None => "its environment may not be seen by this user",
        };
        format!("another Ollama, {}; {place}; {by}", server.process.shown())
    };
    running.servers.iter().filter(other).map(line).collect()
}
