//! The host's explanations of late errors.

use std::sync::atomic::{Ordering, fence};

use vgpu_wire::area::{
    RETURN_WHY, RETURN_WHY_AT, RETURN_WHY_BYTES, RETURN_WHY_FLAGS, RETURN_WHY_KERNEL, RETURN_WHY_TEXT,
    WHY_ADDRESS, WHY_TEXT_MAX,
};

use crate::channel::Channel;
use crate::replies::shown;

/// Maximum number of tries to read an explanation while the host replaces it.
const TRIES: u32 = 64;

/// The host's explanation of a late error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Mangled name of the kernel that failed; empty if the work was not a kernel.
    pub kernel: Box<str>,
    /// The reason, fit to be shown on a terminal.
    pub reason: Box<str>,
    /// Address that the work must not access, if that was the reason.
    pub address: Option<u64>,
}

impl Explanation {
    /// Reads the explanation of the error that message `message` caused. Returns `None` if the host has none,
    /// or has replaced it by that of a later error.
    pub(crate) fn read(channel: &Channel, message: u64) -> Option<Self> {
        for _ in 0..TRIES {
            if message == 0 || channel.word(RETURN_WHY) != message {
                return None;
            }
            let half = |field| channel.half(field, Ordering::Relaxed);
            let mut text = vec![0; (half(RETURN_WHY_BYTES) as usize).min(WHY_TEXT_MAX)];
            channel.returned(RETURN_WHY_TEXT, &mut text);
            let kernel = (half(RETURN_WHY_KERNEL) as usize).min(text.len());
            let flags = half(RETURN_WHY_FLAGS);
            let address = channel.word(RETURN_WHY_AT);
            // The host stores 0 there before it changes the rest.
            fence(Ordering::Acquire);
            if channel.word(RETURN_WHY) == message {
                let (kernel, reason) = text.split_at(kernel);
                let address = (flags & WHY_ADDRESS != 0).then_some(address);
                return Some(Self { kernel: shown(kernel), reason: shown(reason), address });
            }
        }
        None
    }
}
