//! What the sessions of a device use, as its host tells it in registers that anybody may read: neither a
//! session nor a channel is needed for it, and no session notices.

use std::time::Duration;

use vgpu_wire::registers::{self as reg, usage};

use crate::device::Device;
use crate::identity::read;
use crate::open_error::OpenError;
use crate::registers::wide;

/// How often the halves of a time are read that changes meanwhile.
const TRIES: usize = 8;

/// What the sessions of a device use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUsage {
    /// Device memory that is free, in bytes, rounded down to MiB.
    pub free: u64,
    /// The sessions that there are, in the order of their channels.
    pub sessions: Vec<SessionUsage>,
}

/// What a session uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionUsage {
    /// Index of the channel.
    pub channel: u32,
    /// What the host tells of it. `None`: the host is older than these figures.
    pub told: Option<ReportedUsage>,
}

/// What a host tells of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedUsage {
    /// The id of its process, as that process said when it attached: of its own namespace.
    pub process: u32,
    /// Device memory in bytes, rounded up to KiB.
    pub memory: u64,
    /// How long the device has worked for it.
    pub busy: Duration,
}

impl Device {
    /// Reads what the device's sessions use, now.
    ///
    /// # Errors
    /// The device is gone.
    pub fn usage(&self) -> Result<DeviceUsage, OpenError> {
        let registers = [reg::V2_FREE_MIB, reg::V2_ATTACHED_LO, reg::V2_ATTACHED_HI];
        let [free, low, high] = read(self.registers.as_ref(), &self.function, registers)?;
        let attached = wide(low, high);
        let channels = (0..self.areas.channels).filter(|channel| attached & (1 << channel) != 0);
        let sessions = channels.map(|channel| Ok(SessionUsage { channel, told: self.told(channel)? }));
        Ok(DeviceUsage { free: u64::from(free) << 20, sessions: sessions.collect::<Result<_, _>>()? })
    }

    fn told(&self, channel: u32) -> Result<Option<ReportedUsage>, OpenError> {
        if self.identity.capabilities & reg::CAP_USAGE == 0 {
            return Ok(None);
        }
        let at = |register| usage::base(channel) + register;
        // The first is not all ones while the device is there, whatever a guest process wrote to the others.
        let registers = [
            usage::USAGE_BUSY_HI,
            usage::USAGE_BUSY_LO,
            usage::USAGE_BUSY_HI,
            usage::USAGE_PROCESS,
            usage::USAGE_MEMORY_KIB,
        ];
        let mut told = None;
        for _ in 0..TRIES {
            let [before, low, after, process, kib] =
                read(self.registers.as_ref(), &self.function, registers.map(at))?;
            let (memory, busy) = (u64::from(kib) << 10, Duration::from_micros(wide(low, after)));
            told = Some(ReportedUsage { process, memory, busy });
            if before == after {
                break;
            }
        }
        Ok(told)
    }
}
