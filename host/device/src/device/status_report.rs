//! The status that the device reports about itself and its sessions.

use std::sync::atomic::Ordering;

use vgpu_wire::registers::channel;

use super::Device;
use crate::accesses::{Accesses, BarAccesses};
use crate::device::channel::Channel;
use crate::figures::DeviceFigures;
use crate::profile::SessionProfile;
use crate::status::{DeviceStatus, SessionStatus};

impl Device {
    /// Returns the state of the device and of its sessions.
    #[must_use]
    pub fn status(&self) -> DeviceStatus {
        let sessions: Vec<SessionStatus> =
            self.channels.iter().filter_map(|channel| self.session_status(channel)).collect();
        let free = self.channels.iter().filter(|channel| channel.state() == channel::STATE_FREE).count();
        DeviceStatus {
            address: self.label.to_string(),
            executor: self.executor.name().to_owned(),
            generation: self.generation(),
            total: self.greeting.facts.total_bytes,
            allocated: self.executor.allocated(),
            charged_bytes: self.charges.bytes() + self.executor.charged_in_workers(),
            kept_image_bytes: self.executor.kept_image_bytes(),
            workers_started: self.executor.workers().map(|workers| workers.started),
            workers_running: self.executor.workers().map(|workers| workers.running),
            contexts: sessions.iter().map(|session| u64::from(session.contexts)).sum(),
            context_bytes: self.executor.context_bytes(),
            sessions,
            free_channels: free,
            accesses: Some(self.accesses()),
            longest_access_us: self.longest.access_us(),
            longest_attach_us: self.longest.attach_us(),
        }
    }

    /// Returns the figures of the device at this moment.
    #[must_use]
    pub fn figures(&self) -> DeviceFigures {
        let (uuid, used) = (self.greeting.facts.uuid, self.executor.allocated());
        let mut figures = DeviceFigures { uuid, used, ..DeviceFigures::default() };
        // While this is locked, each session is counted once.
        let ended = self.ended.done();
        figures.done = *ended;
        for channel in &self.channels {
            if channel.state() != channel::STATE_FREE {
                figures.sessions += 1;
            }
            channel.with_session(|host| {
                if !host.counters().are_added.load(Ordering::Relaxed) {
                    figures.done += host.work_done();
                    figures.contexts += u64::from(host.gauges().contexts.load(Ordering::Relaxed));
                }
            });
        }
        drop(ended);
        figures.lost = self.ended.lost();
        figures
    }

    /// Returns the profiles of all sessions whose executor keeps one.
    #[must_use]
    pub fn profiles(&self) -> Vec<SessionProfile> {
        let sessions = self.channels.iter().filter_map(|channel| {
            channel.with_session(|host| {
                let profile = self.executor.profile(host.session())?;
                Some(SessionProfile { session: host.session(), process: host.process(), profile })
            })
        });
        sessions.flatten().collect()
    }

    /// Returns the number of accesses to registers. Each access is an exit of a virtual machine.
    #[must_use]
    pub fn accesses(&self) -> Accesses {
        let bar0 = BarAccesses {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        };
        let doorbells = self.channels.iter().map(|channel| channel.all_doorbells()).sum();
        Accesses { bar0, bar1: BarAccesses::default(), doorbells }
    }

    fn session_status(&self, channel: &Channel) -> Option<SessionStatus> {
        let state = match channel.state() {
            channel::STATE_FREE => return None,
            channel::STATE_FAILED => "failed",
            channel::STATE_ENDING => "ending",
            _ if self.gate.held() => "held",
            _ => "attached",
        };
        channel.with_session(|host| {
            let (gauges, counters) = (host.gauges(), host.counters());
            // Read first, so that everything that was read from the ring before this moment is counted.
            let unread = host.unread();
            let stats = counters.stats.read();
            let (mut done, mut elsewhere) = (counters.done.load(Ordering::Relaxed), 0);
            if let Some(remote) = host.remote() {
                remote.show(gauges);
                (done, elsewhere) = (remote.done(), remote.charged());
            }
            let worker = gauges.worker.load(Ordering::Relaxed);
            SessionStatus {
                channel: channel.index(),
                session: host.session(),
                process: host.process(),
                state: state.to_owned(),
                allocated: gauges.allocated.load(Ordering::Relaxed),
                allocations: gauges.allocations.load(Ordering::Relaxed),
                charged_bytes: host.charges().bytes() + elsewhere,
                busy_us: gauges.busy_us(),
                contexts: gauges.contexts.load(Ordering::Relaxed),
                window_bytes: host.memory().window_bytes(),
                page_bytes: host.memory().page_bytes(),
                streams: gauges.streams.load(Ordering::Relaxed),
                events: gauges.events.load(Ordering::Relaxed),
                modules: gauges.modules.load(Ordering::Relaxed),
                worker: Some(worker).filter(|&worker| worker != 0),
                messages: counters.messages.load(Ordering::Relaxed),
                done,
                host_sleeps: counters.host_sleeps.load(Ordering::Relaxed),
                unread,
                kinds: stats.kinds,
                joins: stats.joins,
                waits: stats.waits,
                bytes_in: stats.bytes_in,
                bytes_out: stats.bytes_out,
                doorbells: channel.doorbells(),
            }
        })
    }
}
