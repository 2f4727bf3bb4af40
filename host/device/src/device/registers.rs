//! BAR0 as data: which offset is answered by what.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::registers::{self as reg, EXECUTOR_READY, PROTOCOL_V2, channel};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION, area};
use zerocopy::IntoBytes;

use crate::device::Device;
use crate::device::channel::Channel;

/// A register of the device. All of them are read-only.
struct Register {
    offset: u32,
    read: fn(&Device) -> u32,
}

impl Register {
    fn answer(&self, device: &Device) -> u32 {
        device.overridden(self.offset).unwrap_or_else(|| (self.read)(device))
    }
}

/// A register that each channel has.
struct ChannelRegister {
    /// Offset from the channel's base.
    offset: u32,
    read: fn(&Channel) -> u32,
    write: Option<fn(&Device, &Arc<Channel>, u32)>,
}

const REGISTERS: &[Register] = &[
    Register { offset: reg::VM_ID, read: Device::vm_id },
    Register { offset: reg::PROTOCOL_VER, read: |_| PROTOCOL_V2 },
    Register { offset: reg::CAPABILITIES, read: Device::capabilities },
    Register { offset: reg::V2_WIRE_VERSION, read: |_| WIRE_VERSION },
    Register { offset: reg::V2_DIGEST_LO, read: |_| TABLE_DIGEST as u32 },
    Register { offset: reg::V2_DIGEST_HI, read: |_| (TABLE_DIGEST >> 32) as u32 },
    Register { offset: reg::V2_CHANNELS, read: |device| device.channels().len() as u32 },
    // The areas begin at offset 0 of the window, so both halves are zero.
    Register { offset: reg::V2_AREA_BASE_LO, read: |_| 0 },
    Register { offset: reg::V2_AREA_BASE_HI, read: |_| 0 },
    Register { offset: reg::V2_AREA_STRIDE, read: |_| area::AREA_BYTES as u32 },
    Register { offset: reg::V2_GENERATION, read: Device::generation },
    Register { offset: reg::V2_WAKE, read: Device::wake_bits },
    Register { offset: reg::V2_ATTACHED_LO, read: |device| device.published().attached() as u32 },
    Register { offset: reg::V2_ATTACHED_HI, read: |device| (device.published().attached() >> 32) as u32 },
    Register { offset: reg::V2_EXECUTOR, read: |_| EXECUTOR_READY },
    Register { offset: reg::V2_WINDOW_MIB, read: |device| (device.window().bytes() >> 20) as u32 },
    Register { offset: reg::V2_FREE_MIB, read: Device::free_mib },
];

const CHANNEL_REGISTERS: &[ChannelRegister] = &[
    ChannelRegister { offset: channel::CONTROL, read: |_| 0, write: Some(control) },
    ChannelRegister { offset: channel::STATE, read: Channel::state, write: None },
    ChannelRegister {
        offset: channel::DOORBELL,
        read: |_| 0,
        write: Some(|_, channel, _| channel.doorbell()),
    },
    ChannelRegister { offset: channel::ERROR, read: Channel::error, write: None },
    ChannelRegister { offset: channel::SESSION, read: Channel::session, write: None },
    ChannelRegister {
        offset: channel::GUEST_VERSION,
        read: |channel| channel.guest_version.load(Ordering::Relaxed),
        write: Some(|_, channel, value| channel.guest_version.store(value, Ordering::Relaxed)),
    },
    ChannelRegister {
        offset: channel::GUEST_DIGEST_LO,
        read: |channel| channel.guest_digest_lo.load(Ordering::Relaxed),
        write: Some(|_, channel, value| channel.guest_digest_lo.store(value, Ordering::Relaxed)),
    },
    ChannelRegister {
        offset: channel::GUEST_DIGEST_HI,
        read: |channel| channel.guest_digest_hi.load(Ordering::Relaxed),
        write: Some(|_, channel, value| channel.guest_digest_hi.store(value, Ordering::Relaxed)),
    },
    ChannelRegister {
        offset: channel::PROCESS,
        read: Channel::process,
        write: Some(|_, channel, value| channel.guest_process.store(value, Ordering::Relaxed)),
    },
    ChannelRegister {
        offset: channel::RETURN_GPA_LO,
        read: |channel| channel.return_gpa_lo.load(Ordering::Relaxed),
        write: Some(|_, channel, value| channel.return_gpa_lo.store(value, Ordering::Relaxed)),
    },
    ChannelRegister {
        offset: channel::RETURN_GPA_HI,
        read: |channel| channel.return_gpa_hi.load(Ordering::Relaxed),
        write: Some(|_, channel, value| channel.return_gpa_hi.store(value, Ordering::Relaxed)),
    },
    // Not to be read: other processes may.
    ChannelRegister {
        offset: channel::PAGES_KEY_LO,
        read: |_| 0,
        write: Some(|_, channel, value| channel.pages_key_lo.store(value, Ordering::Relaxed)),
    },
    ChannelRegister {
        offset: channel::PAGES_KEY_HI,
        read: |_| 0,
        write: Some(|_, channel, value| channel.pages_key_hi.store(value, Ordering::Relaxed)),
    },
    ChannelRegister {
        offset: channel::DETACH_SESSION,
        read: |_| 0,
        write: Some(|device, channel, value| device.detach(channel, value)),
    },
];

fn control(device: &Device, channel: &Arc<Channel>, value: u32) {
    if value == channel::ATTACH {
        device.attach(channel);
    }
}

/// The channel and its register that an offset means.
fn channel_register(device: &Device, offset: u32) -> Option<(&Arc<Channel>, &'static ChannelRegister)> {
    let within = offset.checked_sub(channel::FIRST)?;
    let channel = device.channels().get((within / channel::STRIDE) as usize)?;
    let register = CHANNEL_REGISTERS.iter().find(|register| register.offset == within % channel::STRIDE)?;
    Some((channel, register))
}

/// What the register at an offset says of what a channel's session uses; `None`: it is another register.
fn usage(device: &Device, offset: u32) -> Option<u32> {
    let within = offset.checked_sub(reg::V2_USAGE)?;
    let channel = device.channels().get((within / reg::usage::USAGE_STRIDE) as usize)?;
    Some(channel.look(|host| host.usage(within % reg::usage::USAGE_STRIDE)).unwrap_or(0))
}

impl Device {
    /// Brings the page that guests read up to date, where the bus has one.
    pub(crate) fn publish(&self) {
        for register in REGISTERS {
            self.published().store(register.offset, register.answer(self));
        }
    }

    /// Puts the facts into the page, once: they do not change.
    pub(crate) fn publish_facts(&self) {
        for word in 0..(size_of::<DeviceFacts>() / 4) as u32 {
            let offset = reg::V2_FACTS + 4 * word;
            self.published().store(offset, self.fact(offset));
        }
    }

    /// The word of the facts at an offset of BAR0; 0 where there is none.
    fn fact(&self, offset: u32) -> u32 {
        let at = offset.checked_sub(reg::V2_FACTS).map(|at| at as usize);
        let word = at.and_then(|at| self.facts().as_bytes().get(at..)?.first_chunk());
        word.filter(|_| offset.is_multiple_of(4)).map_or(0, |&word| u32::from_le_bytes(word))
    }

    /// The page reads as a function does that is gone.
    pub(crate) fn unpublish(&self) {
        for register in REGISTERS {
            self.published().store(register.offset, reg::ALL_ONES);
        }
    }

    /// Reads the 32-bit register at `offset` of BAR0; 0 where there is none.
    #[must_use]
    pub fn read(&self, offset: u32) -> u32 {
        self.count_read();
        let _timed = self.longest().access();
        if let Some((channel, register)) = channel_register(self, offset) {
            return (register.read)(channel);
        }
        if let Some(used) = usage(self, offset) {
            return used;
        }
        let register = REGISTERS.iter().find(|register| register.offset == offset);
        register.map_or_else(|| self.fact(offset), |register| register.answer(self))
    }

    /// Writes the 32-bit register at `offset` of BAR0. An attach is decided when this returns; a session that
    /// is told to end ends later, and its channel is [`channel::STATE_ENDING`] until then: nothing here waits
    /// for an executor's work. Ignored where there is no register, or one that is read-only.
    pub fn write(&self, offset: u32, value: u32) {
        self.count_write();
        let _timed = self.longest().access();
        if let Some((channel, ChannelRegister { write: Some(write), .. })) = channel_register(self, offset) {
            write(self, channel, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_order_and_aligned() {
        assert!(REGISTERS.is_sorted_by(|a, b| a.offset < b.offset));
        assert!(CHANNEL_REGISTERS.is_sorted_by(|a, b| a.offset < b.offset));
        assert!(
            REGISTERS
                .iter()
                .all(|register| register.offset.is_multiple_of(4) && register.offset < channel::FIRST)
        );
        let fits = |register: &ChannelRegister| {
            register.offset.is_multiple_of(4) && register.offset < channel::STRIDE
        };
        assert!(CHANNEL_REGISTERS.iter().all(fits));
    }
}
