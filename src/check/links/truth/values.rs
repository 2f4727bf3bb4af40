//! Judges the values that the server would start with, which the worker tried beside its run: the address,
//! the key, the models, and the directory for temporary files.

use std::path::Path;

use nix::errno::Errno;

use super::holder::{self, Holder};
use crate::check::context::CheckContext;
use crate::check::messages::{RefusedValue, Serve, ValueTrouble};
use crate::check::unit::Unit;
use crate::diagnosis::cause::truth as cause;
use crate::diagnosis::fix::truth as fix;
use crate::diagnosis::{Cause, Finding, LinkId, Remedy, Status};
use crate::ollama::era::Era;
use crate::ollama::evidence;
use crate::ollama::processes::{Running, RunningProcess};
use crate::service;

const LINK: LinkId = LinkId::Truth;
/// End of the line in which Go says that an address is taken.
const TAKEN: &str = ": bind: address already in use";

/// Completes the finding about the server's run by the values that it would have had otherwise. `log` is what
/// it said.
pub async fn consider(context: &mut CheckContext, served: &Serve, finding: Finding, log: &str) -> Finding {
    let works = finding.holds();
    let era = context.target().ollama.as_ref().map(|ollama| ollama.era);
    let mut finding = finding;
    if let Some(judged) = taken_by_another(context, served, log).await {
        return judged.details(finding.details);
    }
    for value in &served.refused {
        let judged = match value.trouble {
            // The server has it, and does with it what it can.
            _ if value.left && works => None,
            ValueTrouble::TemporaryRefused if era != Some(Era::B) => None,
            ValueTrouble::SettingsBlock if era != Some(Era::C) => None,
            ValueTrouble::AddressTaken if !is_used(served) => None,
            // With `--service` link `service` has judged who has the address.
            ValueTrouble::AddressTaken if context.unit.is_some() => None,
            ValueTrouble::AddressTaken => taken(context, &value.value, false).await,
            _ => Some(spared(context, value, of_value(value, log))),
        };
        let Some(judged) = judged else { continue };
        if judged.status != Status::Fail {
            let ended = evidence::last_words(log).is_none() && served.code.is_some();
            if works {
                finding = merged(judged, &finding);
            } else if ended && judged.status == Status::Pass {
                // What starts the server does not start a second one.
                finding = judged.detail(finding.found).details(finding.details);
            }
        } else if works || value.left {
            let own = evidence::last_words(log).filter(|words| !judged.found.contains(words.as_str()));
            let judged = with_unit(context.unit.as_ref(), value, judged).details(own);
            let otherwise = works.then(|| format!("with another value, {}", finding.found));
            return judged.details(otherwise);
        } else {
            finding = finding.detail(judged.found);
        }
    }
    match served.waits_for.filter(|_| served.lines.is_empty() && finding.status == Status::Fail) {
        Some(process) => beside_the_locked(context, process, finding).await,
        None => finding,
    }
}

/// Judges who has the address that the server was given on the way, by what starts it, if that was the reason
/// of its end.
async fn taken_by_another(context: &mut CheckContext, served: &Serve, log: &str) -> Option<Finding> {
    let line = log.lines().find(|line| line.ends_with(TAKEN)).filter(|_| served.lines.is_empty())?;
    let address = line.strip_suffix(TAKEN)?.rsplit(' ').next()?;
    let port: u16 = address.rsplit(':').next()?.parse().ok()?;
    if served.address.is_some_and(|given| given.port() == port) {
        return None;
    }
    taken(context, address, true).await.map(|finding| finding.detail(line))
}

/// Returns the finding for a server that waits for a lock: if a process of the Ollama that vgpu-run started
/// at the address holds it, that one is the server.
async fn beside_the_locked(context: &CheckContext, process: u32, finding: Finding) -> Finding {
    let running = Running::scan(Path::new("/proc"));
    let shown = running.process(process).map(RunningProcess::shown);
    let server = running.server_of(process).map(|server| server.process.pid);
    match holder::find(context).await {
        Holder::Ours(ours) if server == Some(ours.pid) => {
            let found = format!("the running Ollama (process {}) holds the lock of its start", ours.pid);
            Finding::pass(LINK, found).detail(finding.found).details(shown)
        }
        _ => finding.details(shown),
    }
}

/// Returns the finding with a failure made a warning if a server that vgpu-run started is running: it has
/// started before the value was refused, and works.
fn spared(context: &CheckContext, value: &RefusedValue, finding: Finding) -> Finding {
    let runs = context.running.as_ref().is_some_and(|running| running.wrapped == Some(true));
    if !runs || value.left || finding.status != Status::Fail {
        return finding;
    }
    let found = format!("{}; the running server works until it is started again", finding.found);
    Finding { status: Status::Warn, found, ..finding }
}

/// Returns the finding about a value in place of a passed one, whose words and evidence it keeps.
fn merged(judged: Finding, passed: &Finding) -> Finding {
    let found = format!("{}; {}", passed.found, judged.found);
    Finding { found, ..judged }.details(passed.details.clone())
}

/// Returns whether the server listened at the address that it was given, as far as it is known. What starts
/// it may give it another.
fn is_used(served: &Serve) -> bool {
    served.listened.is_empty() || served.address.is_none_or(|given| served.listened.contains(&given))
}

/// Returns the finding for a value that a server cannot use.
fn of_value(value: &RefusedValue, log: &str) -> Finding {
    let RefusedValue { variable, value: tried, at, errno, .. } = value;
    let why = errno.map(|errno| Errno::from_raw(errno).desc()).unwrap_or_default();
    let at = at.display();
    let ends = evidence::last_words(log).map_or_else(String::new, |words| format!(": {words}"));
    let fail = |cause: Cause, found: String| Finding::fail(cause, found);
    match value.trouble {
        ValueTrouble::AddressUnknown => fail(
            cause::ADDRESS_UNUSABLE,
            format!("{variable} is {tried}, whose host name does not resolve, and ollama serve ends{ends}"),
        ),
        ValueTrouble::AddressPrivileged => {
            let port = tried.rsplit(':').next().unwrap_or_default();
            fail(
                cause::ADDRESS_UNUSABLE,
                format!("{variable} is {tried}, and this user may not listen at port {port}: {why}"),
            )
            .fix(fix::PRIVILEGED)
            .with("port", port)
        }
        ValueTrouble::AddressUnusable if is_policy(*errno) => fail(
            cause::ADDRESS_UNUSABLE,
            format!("{variable} is {tried}, at which a policy does not let this process listen: {why}"),
        )
        .fix(fix::POLICY),
        ValueTrouble::AddressUnusable | ValueTrouble::AddressTaken => fail(
            cause::ADDRESS_UNUSABLE,
            format!("{variable} is {tried}, at which this machine cannot listen: {why}"),
        ),
        ValueTrouble::HomeUnset => {
            fail(cause::HOME_UNUSABLE, format!("{variable} is not set, and ollama serve ends{ends}"))
                .fix(fix::HOME_UNSET)
        }
        ValueTrouble::KeyRefused => {
            let found = format!("ollama serve cannot create its key {tried}, because of {at}: {why}");
            let finding = fail(cause::HOME_UNUSABLE, found);
            let read_only = *errno == Some(Errno::EROFS as i32);
            if read_only { finding.fix(fix::HOME_READ_ONLY) } else { finding }.with("path", at)
        }
        ValueTrouble::SettingsBlock => fail(
            cause::HOME_UNUSABLE,
            format!("ollama serve waits for ever for its settings, because {at} is a FIFO"),
        )
        .fix(fix::NO_FILE)
        .with("path", at),
        ValueTrouble::ModelsRefused => fail(
            cause::MODELS_UNUSABLE,
            format!(
                "ollama serve cannot use {tried}, the directory of its models ({variable}), because of {at}: \
                 {why}"
            ),
        )
        .with("path", at),
        ValueTrouble::ModelsReadOnly => Finding::warn(
            cause::MODELS_READ_ONLY,
            format!("no model can be added to {tried}, because {at} may not be written: {why}"),
        )
        .with("path", at),
        ValueTrouble::TemporaryRefused => fail(
            cause::TEMPORARY_UNUSABLE,
            format!("{variable} is {tried}, in which ollama serve cannot create a file: {why}"),
        ),
        ValueTrouble::NoRoom => {
            fail(cause::NO_ROOM, format!("there is no room for {tried} in the file system of {at}: {why}"))
                .with("path", at)
        }
    }
}

/// Returns whether an error is that of a policy, at a port at which every user may listen.
fn is_policy(errno: Option<i32>) -> bool {
    errno.is_some_and(|errno| [Errno::EACCES, Errno::EPERM].contains(&Errno::from_raw(errno)))
}

/// Names the unit in the remedy for a value that the unit sets.
fn with_unit(unit: Option<&Unit>, value: &RefusedValue, finding: Finding) -> Finding {
    let remedy: Option<Remedy> = match value.trouble {
        ValueTrouble::AddressUnusable if is_policy(value.errno) => None,
        ValueTrouble::KeyRefused if value.errno == Some(Errno::EROFS as i32) => {
            Some(fix::HOME_READ_ONLY_IN_UNIT)
        }
        ValueTrouble::AddressUnknown | ValueTrouble::AddressUnusable => Some(fix::ADDRESS_IN_UNIT),
        ValueTrouble::HomeUnset => Some(fix::HOME_IN_UNIT),
        _ => None,
    };
    match (unit, remedy) {
        (Some(unit), Some(remedy)) => {
            finding.fix(remedy).with("unit", &unit.name).with("path", value.at.display())
        }
        _ => finding,
    }
}

/// Judges who listens at the address: that of OLLAMA_HOST, or one that what starts the server has `chosen`.
/// An Ollama that vgpu-run started is the server that a check is about.
async fn taken(context: &mut CheckContext, address: &str, chosen: bool) -> Option<Finding> {
    let finding = |who: String| Finding::fail(cause::ADDRESS_TAKEN, format!("{who} listens at {address}"));
    let holder = if chosen { holder::at(context, Some(address)).await } else { holder::find(context).await };
    let named = |unit: &Option<String>, pid: u32| match unit {
        Some(unit) => format!("{unit} (process {pid})"),
        None => format!("process {pid}"),
    };
    Some(match holder {
        Holder::Ours(process) => {
            context.held = true;
            let found = format!("the running Ollama (process {}) has {address}", process.pid);
            return Some(Finding::pass(LINK, found));
        }
        Holder::Nobody => return None,
        Holder::Stock(process, unit) => {
            let who = named(&unit, process.pid);
            let found = finding(format!("{who}, an Ollama that vgpu-run did not start,"));
            let found = found.detail(process.shown());
            match unit {
                Some(unit) => found.fix(fix::SET_UP).with("command", service::install_command(&unit)),
                None => found.fix(fix::END_STOCK).with("process", process.pid),
            }
        }
        Holder::Other(process, unit) => {
            let name = process.words.first().map(|word| Path::new(word).file_name().unwrap_or_default());
            let name = name.unwrap_or_default().display().to_string();
            let who = match unit {
                Some(unit) => format!("{unit} (process {}, {name})", process.pid),
                None => format!("process {} ({name})", process.pid),
            };
            finding(format!("{who}, which is no Ollama,")).detail(process.shown())
        }
        Holder::Unseen(user) => {
            finding(format!("a process of user {user}, which this user may not see,")).fix(fix::AS_ROOT)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(trouble: ValueTrouble, errno: Errno) -> RefusedValue {
        RefusedValue {
            trouble,
            variable: "OLLAMA_HOST".into(),
            value: "[::1]:80".into(),
            at: "/h".into(),
            errno: Some(errno as i32),
            left: true,
        }
    }

    #[test]
    fn each_trouble_names_its_value_and_reason() {
        let privileged = of_value(&value(ValueTrouble::AddressPrivileged, Errno::EACCES), "");
        assert_eq!(privileged.cause, Some(cause::ADDRESS_UNUSABLE));
        assert!(privileged.fix.unwrap().command.unwrap().ends_with("_start=80"));
        let unset = of_value(&value(ValueTrouble::HomeUnset, Errno::ENOENT), "Error: $HOME is not defined\n");
        assert!(unset.found.ends_with("ends: Error: $HOME is not defined"), "{}", unset.found);
        let room = of_value(&value(ValueTrouble::NoRoom, Errno::ENOSPC), "");
        assert!(room.found.contains("/h") && room.fix.unwrap().command.unwrap().contains("df -h /h"));
        let read_only = of_value(&value(ValueTrouble::ModelsReadOnly, Errno::EROFS), "");
        assert_eq!(read_only.status, Status::Warn);
        let home = |errno| of_value(&value(ValueTrouble::KeyRefused, errno), "").fix.unwrap().sentence();
        assert!(home(Errno::EROFS).ends_with("findmnt -T /h") && home(Errno::EACCES).ends_with("ls -ld /h"));
    }

    #[test]
    fn a_unit_gets_what_its_section_says() {
        let unit = Unit::with(&[]);
        let of = |trouble, errno| {
            let value = value(trouble, errno);
            with_unit(Some(&unit), &value, of_value(&value, "")).fix.unwrap()
        };
        let read_only = of(ValueTrouble::KeyRefused, Errno::EROFS);
        assert!(read_only.text.starts_with("Name /h in ReadWritePaths="), "{read_only:?}");
        assert!(read_only.command.unwrap().starts_with("systemctl edit "));
        let policy = of(ValueTrouble::AddressUnusable, Errno::EACCES);
        assert!(policy.text.contains("SocketBindDeny="), "{policy:?}");
        assert!(!of(ValueTrouble::AddressUnusable, Errno::EADDRNOTAVAIL).text.contains("SocketBindDeny="));
    }

    #[test]
    fn an_address_that_a_script_replaces_is_not_used() {
        let given = "127.0.0.1:5".parse().unwrap();
        let served = |listened: &[&str]| Serve {
            address: Some(given),
            listened: listened.iter().map(|address| address.parse().unwrap()).collect(),
            ..Serve::default()
        };
        assert!(is_used(&served(&[])) && is_used(&served(&["127.0.0.1:5"])));
        assert!(!is_used(&served(&["[::]:12000"])));
    }
}
