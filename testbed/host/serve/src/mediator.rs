//! The command `mediator`: carries out the calls of devices of version 1 that live in other processes.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use vgpu_device::v1::{Mediator, Rules, Server, Settings};

use crate::executor::ExecutorOptions;
use crate::knobs::Knobs;
use crate::lifetime::{ready, when_asked};

/// Options.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where devices connect, such as /var/xen/qemu/root-1/tmp/vgpu-mediator.sock; can be given several
    /// times.
    #[arg(long, required = true, value_name = "PATH")]
    socket: Vec<PathBuf>,
    #[command(flatten)]
    host: ExecutorOptions,
    /// The most calls a second of one machine; more are turned away with BUSY.
    #[arg(long, value_name = "CALLS")]
    rate: Option<u32>,
    /// The number of a machine whose calls are turned away for good; can be given several times.
    #[arg(long, value_name = "VM")]
    quarantine: Vec<u32>,
    /// A group, by name or number, whose users may connect, too; without it only this user may. Hypervisors
    /// often run as users of their own.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    group: Option<u32>,
    /// How long a machine whose last connection is gone keeps what it has, such as 30s, 5m.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    grace: Duration,
    /// What is logged on stderr: error, warn, info (what kernels print, too), debug.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log: tracing::Level,
    /// Stop when stdin closes, as well as on SIGTERM or SIGINT. A line `status` is answered on stdout by what
    /// owners have, in one line of JSON.
    #[arg(long)]
    until_stdin_closes: bool,
}

/// Reads a group: its number, or a name of `/etc/group`.
fn group(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let groups =
        std::fs::read_to_string("/etc/group").map_err(|error| format!("read /etc/group: {error}"))?;
    // name:password:number:users
    let number = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    number.ok_or_else(|| "there is no such group in /etc/group".to_owned())
}

/// Reads a time: "30s", "5m", "0s".
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => 0,
    };
    let number = digits.parse::<u64>().ok().filter(|_| seconds > 0);
    let seconds = number.and_then(|number| number.checked_mul(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| "expected a time such as 30s, 5m, 1h".to_owned())
}

/// Serves, says `ready` on stdout, and waits until it is told to stop.
pub fn run(arguments: &Arguments, knobs: &Knobs) -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(arguments.log).init();
    let mut gpu = arguments.host.gpu(0)?;
    if let Some(uuid) = arguments.host.uuid() {
        gpu.uuid = uuid;
    }
    if arguments.host.has_workers() {
        bail!("--worker is for devices of version 2");
    }
    let rules = Rules::new(arguments.rate, arguments.quarantine.iter().copied());
    let settings = Settings { rules, grace: arguments.grace, ..Settings::default() };
    let mediator = Mediator::with_settings(arguments.host.executor(&gpu, knobs)?, settings)?;
    let (exit, asked) = mpsc::channel();
    let known = Arc::clone(&mediator);
    let stop = move || {
        // Nobody listens any more when it is ending anyway.
        let _ = exit.send(());
    };
    when_asked(arguments.until_stdin_closes, stop, move || status(&known))?;
    let start = |path: &PathBuf| Server::start_for(path, &mediator, arguments.group);
    let servers: Vec<Server> = arguments.socket.iter().map(start).collect::<Result<_, _>>()?;
    ready()?;
    // The thread that waits for signals holds the other end for good.
    let _ = asked.recv();
    Server::end_all(servers);
    Ok(())
}

/// What owners have, by the keys of a device's status.
fn status(mediator: &Mediator) -> Value {
    let (total, allocated) = mediator.memory();
    json!({
        "executor": mediator.executor(),
        "total": total,
        "allocated": allocated,
        "charged_bytes": mediator.charged_bytes(),
        "kept_image_bytes": mediator.kept_image_bytes(),
        "sessions": mediator.owners(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_groups_are_read() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("5m"), Ok(Duration::from_mins(5)));
        assert_eq!(time("0h"), Ok(Duration::ZERO));
        for bad in ["", "s", "5", "-1s", "1d", "18446744073709551615h"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert_eq!((group("107"), group("root")), (Ok(107), Ok(0)));
        assert!(group("no such group").is_err());
    }
}
