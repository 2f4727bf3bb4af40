//! The thread that supervises a worker: it reads the worker's reports, notices its death, and reaps it.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use vgpu_device::SessionLoss;

use crate::device::memory_pool::{MemoryPool, SessionUsage};
use crate::device::process::WorkerProcess;
use crate::shared::packet::WorkerOrder;
use crate::shared::report::{REPORT_MAX, WorkerReport};

/// Time that a worker may live after it has closed its socket.
const MUTE_MOST: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Supervises a worker until it is reaped.
pub(crate) fn supervise(link: &WorkerProcess, pool: &Arc<MemoryPool>, usage: &SessionUsage) {
    read_reports(link, pool, usage);
    let ended = link
        .pidfd
        .as_ref()
        .is_some_and(|pidfd| poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&MUTE_MOST)) != Ok(0));
    if !ended {
        // Without a descriptor of the process at once: a worker closes its socket only as it ends.
        link.kill();
    }
    let end = match link.reap() {
        Ok(status) if status.signal().is_some() => format!("was killed by {status}"),
        Ok(status) => format!("ended with {status}"),
        Err(error) => format!("cannot be waited for: {error}"),
    };
    pool.close(usage);
    tracing::debug!(session = link.host.session(), pid = link.pid, "worker {end}");
    if !link.host.stopping() {
        // A reason that the worker has reported takes precedence.
        link.lose(SessionLoss::Executor { number: None, text: format!("worker process {} {end}", link.pid) });
    }
    link.host.memory_changed();
    link.set_reaped();
}

/// Handles reports until the worker closes its socket, dies, or sends a bad packet.
fn read_reports(link: &WorkerProcess, pool: &MemoryPool, usage: &SessionUsage) {
    loop {
        let mut fds = vec![PollFd::new(&link.socket, PollFlags::IN)];
        fds.extend(link.pidfd.as_ref().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!(pid = link.pid, "watch a worker: {error}");
                return link.end_reports(true);
            }
        }
        let dead = fds.get(1).is_some_and(|process| !process.revents().is_empty());
        link.begin_reports();
        // The worker's last packets are still readable after its death. A pause of the device comes between two
        // of them, however many there are.
        let mut over = false;
        let mut none = false;
        while !over && !none && link.may_read() {
            match receive(link) {
                Some(Ok(packet)) => over = !handle_report(link, pool, usage, &packet),
                Some(Err(())) => over = true,
                None => none = true,
            }
        }
        over |= dead && none;
        link.end_reports(over);
        if over {
            return;
        }
    }
}

/// Receives a packet. Returns `None` if none has arrived, and an error if none will.
fn receive(link: &WorkerProcess) -> Option<Result<Vec<u8>, ()>> {
    // One byte more than the longest packet, so that a packet that fills it is too long. The kernel drops
    // descriptors that arrive with it.
    let mut packet = vec![0; REPORT_MAX + 1];
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

/// Handles the report in a packet. Returns false if no more reports of the worker may be read.
fn handle_report(link: &WorkerProcess, pool: &MemoryPool, usage: &SessionUsage, packet: &[u8]) -> bool {
    let known = |number: u64| (1..=link.newest()).contains(&number);
    match WorkerReport::decode(packet) {
        Ok(WorkerReport::Memory) => {
            pool.take_report();
            // The status then shows the amount that the gauges have.
            link.show_figures();
            link.host.memory_changed();
        }
        Ok(WorkerReport::Worked) => link.show_figures(),
        Ok(WorkerReport::Reserve(bytes)) => {
            let reserved = pool.reserve_for_worker(usage, bytes);
            // An error ends the session, or the worker is dead.
            return link.order(WorkerOrder::Reserved(reserved), &[]).is_ok();
        }
        Ok(WorkerReport::Complete) => {
            let (number, asked) = (link.page.complete(), link.asked());
            if number > asked {
                link.kill_for_violation(format_args!("message {number} is complete, of {asked}"));
                return false;
            }
            link.host.report_complete(number);
        }
        Ok(WorkerReport::Retired(id)) => {
            if link.release_retired(id).is_none() {
                link.kill_for_violation(format_args!("it released memory number {id} without an order"));
                return false;
            }
        }
        Ok(WorkerReport::Violation(number, text)) if known(number) => {
            link.lose(SessionLoss::Violation { number, text });
        }
        Ok(WorkerReport::Lost(number, text)) if number == 0 || known(number) => {
            let text = format!("worker process {}: {text}", link.pid);
            link.lose(SessionLoss::Executor { number: Some(number).filter(|&number| number != 0), text });
        }
        Ok(WorkerReport::Violation(number, _) | WorkerReport::Lost(number, _)) => {
            link.kill_for_violation(format_args!("it ends at message {number}, of {}", link.newest()));
            return false;
        }
        Err(error) => {
            link.kill_for_violation(format_args!("{error}"));
            return false;
        }
    }
    true
}
