//! The thread that watches a worker: reads what it says, notices its death, and reaps it.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use vgpu_device::Loss;

use crate::device::accounts::{Account, Accounts};
use crate::device::link::Link;
use crate::shared::record::{RECORD_MAX, Record};

/// How long a worker may live without its socket.
const MUTE_MOST: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Watches a worker until it is reaped.
pub(crate) fn keep(link: &Link, mut child: Child, accounts: &Arc<Accounts>, account: &Account) {
    listen(link);
    if poll(&mut [PollFd::new(&link.pidfd, PollFlags::IN)], Some(&MUTE_MOST)) == Ok(0) {
        link.kill();
    }
    let end = match child.wait() {
        Ok(status) if status.signal().is_some() => format!("was killed by {status}"),
        Ok(status) => format!("ended with {status}"),
        Err(error) => format!("cannot be waited for: {error}"),
    };
    accounts.close(account);
    tracing::debug!(session = link.host.session(), pid = link.pid, "worker {end}");
    if !link.host.stopping() {
        // What it said before is the better reason.
        link.lose(Loss::Executor { number: None, text: format!("worker process {} {end}", link.pid) });
    }
    link.host.memory_changed();
    link.set_reaped();
}

/// Hears the worker until it closes its socket, dies, or talks rubbish.
fn listen(link: &Link) {
    loop {
        let mut fds = [PollFd::new(&link.socket, PollFlags::IN), PollFd::new(&link.pidfd, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!(pid = link.pid, "watch a worker: {error}");
                return;
            }
        }
        let dead = !fds[1].revents().is_empty();
        // What it said last is still there when it is dead.
        while let Some(packet) = next(link) {
            match packet {
                Ok(packet) if hear(link, &packet) => {}
                _ => return,
            }
        }
        if dead {
            return;
        }
    }
}

/// The next packet; `None`: there is none yet; an error: there is none any more.
fn next(link: &Link) -> Option<Result<Vec<u8>, ()>> {
    // One byte more than the longest: a packet that fills it is too long. Descriptors that come along the
    // kernel drops.
    let mut packet = vec![0; RECORD_MAX + 1];
    match recv(&link.socket, &mut packet[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => Some(Err(())),
        Ok((bytes, _)) => {
            packet.truncate(bytes);
            Some(Ok(packet))
        }
        Err(Errno::AGAIN | Errno::INTR) => None,
        Err(_) => Some(Err(())),
    }
}

/// Does what a packet asks for. False: the worker is not listened to any more.
fn hear(link: &Link, packet: &[u8]) -> bool {
    let known = |number: u64| (1..=link.newest()).contains(&number);
    match Record::decode(packet) {
        Ok(Record::Memory) => {
            // Who looks at the device is shown the amount that the gauges have.
            link.show_figures();
            link.host.memory_changed();
        }
        Ok(Record::Worked) => link.show_figures(),
        Ok(Record::Retired(id)) => {
            if link.let_go(id).is_none() {
                link.rubbish(format_args!("it lets go of memory number {id}, which it was not told to"));
                return false;
            }
        }
        Ok(Record::Violation(number, text)) if known(number) => {
            link.lose(Loss::Violation { number, text });
        }
        Ok(Record::Lost(number, text)) if number == 0 || known(number) => {
            let text = format!("worker process {}: {text}", link.pid);
            link.lose(Loss::Executor { number: Some(number).filter(|&number| number != 0), text });
        }
        Ok(Record::Violation(number, _) | Record::Lost(number, _)) => {
            link.rubbish(format_args!("it ends at message {number}, of {}", link.newest()));
            return false;
        }
        Err(error) => {
            link.rubbish(format_args!("{error}"));
            return false;
        }
    }
    true
}
