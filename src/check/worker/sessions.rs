//! Implements `vgpu-run __worker sessions ADDRESS`, which lists the processes that have sessions of a device.
//! It takes no channel.
//!
//! A process that has locked a channel without a session on the device holds a session that is over, because
//! the device was restarted since. The process learns that when it next uses the device. A process that is
//! about to attach looks the same for a moment.

use std::time::{Duration, Instant};

use vgpu_transport::{Device, PciFunction, holders, sysfs_root};

use super::device::{function, refusal};
use super::say::{begin, done, failed, watch};
use crate::check::messages::{Sessions, StepFailure};
use crate::device::{judge, survey};

/// Time limit for reading the device's registers, which takes microseconds.
const ANSWER: Duration = Duration::from_secs(1);
/// Time limit for a process to get from its lock to its session.
const ATTACHING: Duration = Duration::from_secs(1);
/// Interval between polls of a process that may be attaching.
const TICK: Duration = Duration::from_millis(10);

/// Reports the sessions of the function with this PCI address.
pub fn list_sessions(address: &str) {
    watch();
    begin::<Sessions>(ANSWER + ATTACHING);
    let seen = function(address).map_err(|error| Box::new(refusal(error)));
    match seen.and_then(|function| sessions(&function)) {
        Ok(sessions) => done(&sessions),
        Err(failure) => failed::<Sessions>(&failure),
    }
}

fn sessions(function: &PciFunction) -> Result<Sessions, Box<StepFailure>> {
    if survey::version(function) == 1 {
        let found = "processes of a device of version 1 are not listed".to_owned();
        return Err(Box::new(StepFailure { found, ..StepFailure::default() }));
    }
    let refused = |error| Box::new(refusal(judge::refused(function, &sysfs_root(), error)));
    let device = Device::identify(function, Some(vgpu_transport_v1::open)).map_err(refused)?;
    let end = Instant::now() + ATTACHING;
    loop {
        let locked = holders(&function.dir).map_err(|error| {
            let found = format!("the owners of its channels cannot be read: {error}");
            Box::new(StepFailure { found, ..StepFailure::default() })
        })?;
        let usage = device.usage().map_err(refused)?;
        let attached: Vec<u32> = usage.sessions.iter().map(|session| session.channel).collect();
        let settled = locked.iter().all(|holder| attached.contains(&holder.channel));
        if settled || Instant::now() >= end {
            let locked = locked.iter().map(|holder| (holder.channel, holder.process)).collect();
            return Ok(Sessions { locked, attached });
        }
        std::thread::sleep(TICK);
    }
}
