//! The handle of a worker process in a device's saved state.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use vgpu_device::{RestoreError, RetiredState, SessionHost, lock};

use super::WorkerProcess;
use crate::device::saved::{UsageState, WorkerState};
use crate::shared::status_page::StatusPage;

/// What is added to the age of a worker that was restored, for the time that nobody has measured. The age
/// only bounds the time for which a worker claims to have worked.
const UNMEASURED: Duration = Duration::from_secs(1);

impl WorkerProcess {
    /// Describes the process, without its ring and what its session is charged.
    pub(crate) fn save(&self) -> WorkerState {
        let retired = lock(&self.retired);
        WorkerState {
            protocol: self.protocol,
            pid: self.pid,
            pidfd: self.pidfd.is_some(),
            age: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            newest: self.newest(),
            done_here: self.done_here.load(Ordering::Acquire),
            asked: self.asked(),
            known: 0,
            retirements: 0,
            files: 0,
            retired: retired.iter().filter_map(|(&id, memory)| Some((id, memory.save()?))).collect(),
            tail: 0,
            backlog: 0,
            usage: UsageState::default(),
        }
    }

    /// Makes the handle of a process that the program before this one has started. It must be a child of
    /// this process.
    pub(crate) fn restore(
        host: SessionHost,
        page: Arc<StatusPage>,
        socket: OwnedFd,
        pidfd: Option<OwnedFd>,
        state: &WorkerState,
    ) -> Result<Self, RestoreError> {
        let child = Pid::from_raw(state.pid.cast_signed()).ok_or(Errno::CHILD).and_then(|pid| {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            waitid(WaitId::Pid(pid), look)
        });
        if child.is_err() {
            return Err(RestoreError::field("process of a worker", state.pid));
        }
        let age = Duration::from_nanos(state.age) + UNMEASURED;
        let now = Instant::now();
        let link = Self {
            protocol: state.protocol,
            started: now.checked_sub(age).unwrap_or(now),
            ..Self::new(host, page, socket, pidfd, state.pid)
        };
        link.set_newest(state.newest);
        link.set_done_here(state.done_here);
        link.set_asked(state.asked);
        Ok(link)
    }

    /// Takes over the memory that the process has not released. If that fails, the process is dead when this
    /// returns, because the memory is free then.
    pub(crate) fn restore_retired(&self, retired: &[(u64, RetiredState)]) -> Result<(), RestoreError> {
        let retain = |(id, memory): &(u64, RetiredState)| {
            self.retain(*id, self.host.restore_retired(memory)?);
            Ok(())
        };
        retired.iter().try_for_each(retain).inspect_err(|_| {
            self.kill();
            // It is a child of this process, which was killed.
            let _ = self.reap();
        })
    }
}
