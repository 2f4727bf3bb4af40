//! Why a GPU's file cannot be used, and why memory cannot be promised.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::uuid::GpuUuid;

const MIB: u64 = 1 << 20;

/// Reason for which a device has no slot of a GPU.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The directory or a file in it cannot be used.
    #[error("failed to {doing} {}", path.display())]
    File {
        /// What failed, as a verb.
        doing: &'static str,
        /// Path of the directory or file.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The file is not one of this release.
    #[error(
        "{} is {found}; stop all devices of this GPU and remove it",
        path.display()
    )]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// What it is instead.
        found: String,
    },
    /// Another process has been claiming a slot for too long.
    #[error(
        "{} has been claiming a share of {} for {seconds} s; it may be stopped",
        if *process == 0 { "another process".to_owned() } else { format!("the process {process}") },
        path.display()
    )]
    Busy {
        /// Path of the GPU's file.
        path: PathBuf,
        /// Number of the process, or 0 if it is not known.
        process: u64,
        /// Time for which this process has waited, in seconds.
        seconds: u64,
    },
    /// Devices of the GPU disagree about the memory that it has.
    #[error("{gpu} has {found} bytes of memory, but devices that are running have found {known}")]
    Disagree {
        /// The GPU.
        gpu: GpuUuid,
        /// Bytes that this process has found.
        found: u64,
        /// Bytes that the devices have found that hold slots.
        known: u64,
    },
    /// A VM of this name has a device already.
    #[error(
        "{gpu} is already served to a VM of the name {name}, by the process {process}; --control DIR/NAME/control \
         gives this one another name"
    )]
    Name {
        /// The GPU.
        gpu: GpuUuid,
        /// Name of the VM.
        name: String,
        /// Process of its device.
        process: u64,
    },
    /// A former device of a VM of this name has ended, but workers of it have not.
    #[error(
        "workers of {name}'s former device still hold its memory of {gpu}; they end when the driver lets them"
    )]
    Left {
        /// The GPU.
        gpu: GpuUuid,
        /// Name of the VM.
        name: String,
    },
    /// A device holds a slot in which nothing is recorded, so that what it was promised is not known.
    #[error(
        "a device holds slot {slot} of {}, which does not say what it was promised: the file was removed while \
         the device ran; stop all devices of this GPU",
        path.display()
    )]
    Unrecorded {
        /// Path of the GPU's file.
        path: PathBuf,
        /// Number of the slot.
        slot: usize,
    },
    /// The promise is less than what a context costs, so that nothing could be computed.
    #[error(
        "a VM with {} MiB of {gpu} could compute nothing, because each context takes {} MiB: --memory promises it \
         more",
        promised / MIB,
        context_bytes.div_ceil(MIB)
    )]
    TooLittle {
        /// The GPU.
        gpu: GpuUuid,
        /// Bytes of the promise.
        promised: u64,
        /// Bytes that one context costs.
        context_bytes: u64,
    },
    /// The directory that the devices of this host share cannot be used, and no other one will do.
    #[error(
        "failed to {doing} {}, where the devices of this host find each other; a unit needs it in ReadWritePaths= \
         and `systemd-tmpfiles --create vgpu-device.conf`, a container needs a directory that all of them see \
         (--shares DIR)",
        path.display()
    )]
    Host {
        /// What failed, as a verb.
        doing: &'static str,
        /// Path of the directory.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The name is too long, empty, or has characters that a table cannot show.
    #[error("{0:?} is not a name of 1 to 64 bytes without spaces and control characters")]
    Unnameable(String),
    /// All slots are taken.
    #[error("all shares of {0} are taken: a GPU has at most 64 VMs")]
    Full(GpuUuid),
    /// The GPU does not have the memory that the device promises.
    #[error(transparent)]
    Promise(#[from] Promise),
}

impl ShareError {
    /// Returns whether the reason may pass by itself: workers of an ended device have not ended yet.
    pub(crate) const fn may_pass(&self) -> bool {
        matches!(self, Self::Left { .. } | Self::Promise(Promise { ending: true, .. }))
    }
}

/// A promise that the GPU's memory does not suffice for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The GPU.
    pub gpu: GpuUuid,
    /// Bytes that the device needs, its overhead included.
    pub asked: u64,
    /// Bytes that the GPU has for VMs: its memory without the reserve.
    pub has: u64,
    /// Name of each VM that holds memory, and its bytes, overhead included.
    pub holders: Vec<(String, u64)>,
    /// Whether one of them has ended, and workers of it have not.
    pub ending: bool,
}

impl Promise {
    /// Returns the bytes that are still to be promised.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.holders.iter().fold(self.has, |free, (_, bytes)| free.saturating_sub(*bytes))
    }
}

impl std::error::Error for Promise {}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gpu, asked, has, holders, .. } = self;
        // What is asked for is rounded up and what is free down, so that the sentence is true of whole MiB.
        let (asked, free, has) = (asked.div_ceil(MIB), self.free() / MIB, has / MIB);
        write!(f, "{gpu} cannot promise {asked} MiB: of {has} MiB for VMs {free} MiB are free")?;
        for (index, (name, bytes)) in holders.iter().enumerate() {
            f.write_str(match index {
                0 => ", because ",
                _ if index + 1 == holders.len() => " and ",
                _ => ", ",
            })?;
            let verb = if index == 0 { "holds " } else { "" };
            write!(f, "{name} {verb}{} MiB", bytes.div_ceil(MIB))?;
        }
        Ok(())
    }
}
