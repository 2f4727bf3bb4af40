//! Resource usage of the sessions of a device, as its host states it in registers that anybody may read. It
//! needs neither a session nor a channel, and does not disturb any session.

use std::time::Duration;

use vgpu_wire::registers::{self as reg, usage};
use vgpu_wire::share::VmShare;

use crate::device::Device;
use crate::identity::read;
use crate::open_error::OpenError;
use crate::registers::wide;

/// Maximum number of tries to read the two halves of a time that changes meanwhile.
const TRIES: usize = 8;

/// Resource usage of the sessions of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUsage {
    /// Device memory that is free, in bytes, rounded down to MiB.
    pub free: u64,
    /// Attached sessions, in the order of their channels.
    pub sessions: Vec<SessionUsage>,
    /// This guest's share of the GPU's time; `None` if the host shares the GPU with no other guest, or is too
    /// old to tell.
    pub share: Option<VmShare>,
}

/// Resource usage of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionUsage {
    /// Index of the channel.
    pub channel: u32,
    /// Usage that the host reports; `None` if the host is too old to report it.
    pub told: Option<ReportedUsage>,
}

/// Usage that a host reports of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedUsage {
    /// Id of the session's process in its own namespace, as the process stated it at the attach.
    pub process: u32,
    /// Device memory in bytes, rounded up to KiB.
    pub memory: u64,
    /// Time that the device has worked for the session.
    pub busy: Duration,
}

impl Device {
    /// Reads the current usage of the device's sessions.
    ///
    /// # Errors
    /// Fails if the device is gone.
    pub fn usage(&self) -> Result<DeviceUsage, OpenError> {
        let registers = [reg::V2_FREE_MIB, reg::V2_ATTACHED_LO, reg::V2_ATTACHED_HI];
        let [free, low, high] = read(self.registers.as_ref(), &self.function, registers)?;
        let attached = wide(low, high);
        let channels = (0..self.areas.channels).filter(|channel| attached & (1 << channel) != 0);
        let sessions = channels.map(|channel| Ok(SessionUsage { channel, told: self.told(channel)? }));
        let sessions = sessions.collect::<Result<_, _>>()?;
        Ok(DeviceUsage { free: u64::from(free) << 20, sessions, share: self.share()? })
    }

    /// Reads this guest's share of the GPU's time, if the host tells it.
    fn share(&self) -> Result<Option<VmShare>, OpenError> {
        if self.identity.capabilities & reg::CAP_SHARE == 0 {
            return Ok(None);
        }
        let [state, part, charged_lo, charged_hi, waited_lo, waited_hi] = VmShare::REGISTERS;
        let registers = [state, charged_hi, waited_hi, part, charged_lo, waited_lo, charged_hi, waited_hi];
        let mut share = None;
        for _ in 0..TRIES {
            let [state, charged, waited, part, charged_lo, waited_lo, charged_hi, waited_hi] =
                read(self.registers.as_ref(), &self.function, registers)?;
            share = Some(VmShare::from_words([state, part, charged_lo, charged_hi, waited_lo, waited_hi]));
            if (charged, waited) == (charged_hi, waited_hi) {
                break;
            }
        }
        Ok(share)
    }

    fn told(&self, channel: u32) -> Result<Option<ReportedUsage>, OpenError> {
        if self.identity.capabilities & reg::CAP_USAGE == 0 {
            return Ok(None);
        }
        let at = |register| usage::base(channel) + register;
        // Registers that read all ones mean a lost device, so the first one is never all ones while the
        // device exists. A guest process chooses the value of others.
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
