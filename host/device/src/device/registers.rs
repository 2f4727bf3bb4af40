//! The registers of BAR0, with the source of the value of each offset.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::registers::{self as reg, EXECUTOR_READY, PROTOCOL_V2, channel};
use vgpu_wire::share::VmShare;
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION, area};
use zerocopy::IntoBytes;

use crate::device::Device;
use crate::device::channel::Channel;
use crate::session::host::SessionHost;

/// A read-only register of the device.
struct DeviceRegister {
    offset: u32,
    read: fn(&Device) -> u32,
}

impl DeviceRegister {
    fn answer(&self, device: &Device) -> u32 {
        device.overridden(self.offset).unwrap_or_else(|| (self.read)(device))
    }
}

const REGISTERS: &[DeviceRegister] = &[
    DeviceRegister { offset: reg::VM_ID, read: Device::vm_id },
    DeviceRegister { offset: reg::PROTOCOL_VER, read: |_| PROTOCOL_V2 },
    DeviceRegister { offset: reg::CAPABILITIES, read: Device::capabilities },
    DeviceRegister { offset: reg::V2_WIRE_VERSION, read: |_| WIRE_VERSION },
    DeviceRegister { offset: reg::V2_DIGEST_LO, read: |_| TABLE_DIGEST as u32 },
    DeviceRegister { offset: reg::V2_DIGEST_HI, read: |_| (TABLE_DIGEST >> 32) as u32 },
    DeviceRegister { offset: reg::V2_CHANNELS, read: |device| device.channels().len() as u32 },
    // The areas begin at offset 0 of the window, so both halves are zero.
    DeviceRegister { offset: reg::V2_AREA_BASE_LO, read: |_| 0 },
    DeviceRegister { offset: reg::V2_AREA_BASE_HI, read: |_| 0 },
    DeviceRegister { offset: reg::V2_AREA_STRIDE, read: |_| area::AREA_BYTES as u32 },
    DeviceRegister { offset: reg::V2_GENERATION, read: Device::generation },
    DeviceRegister { offset: reg::V2_WAKE, read: Device::wake_bits },
    DeviceRegister { offset: reg::V2_ATTACHED_LO, read: |device| device.published().attached() as u32 },
    DeviceRegister {
        offset: reg::V2_ATTACHED_HI,
        read: |device| (device.published().attached() >> 32) as u32,
    },
    DeviceRegister { offset: reg::V2_EXECUTOR, read: |_| EXECUTOR_READY },
    DeviceRegister { offset: reg::V2_WINDOW_MIB, read: |device| (device.window().bytes() >> 20) as u32 },
    DeviceRegister { offset: reg::V2_FREE_MIB, read: Device::free_mib },
    DeviceRegister { offset: reg::V2_SHARE, read: |device| device.share_word(0) },
    DeviceRegister { offset: reg::V2_SHARE_PPM, read: |device| device.share_word(1) },
    DeviceRegister { offset: reg::V2_CHARGED_LO, read: |device| device.share_word(2) },
    DeviceRegister { offset: reg::V2_CHARGED_HI, read: |device| device.share_word(3) },
    DeviceRegister { offset: reg::V2_WAITED_LO, read: |device| device.share_word(4) },
    DeviceRegister { offset: reg::V2_WAITED_HI, read: |device| device.share_word(5) },
];

/// Returns the channel whose block contains an offset, and the offset within the block.
fn channel_block(device: &Device, offset: u32) -> Option<(&Arc<Channel>, u32)> {
    let within = offset.checked_sub(channel::FIRST)?;
    Some((device.channels().get((within / channel::STRIDE) as usize)?, within % channel::STRIDE))
}

/// Reads a register of a channel's block. Returns 0 if there is none.
fn read_channel(channel: &Channel, register: u32) -> u32 {
    match register {
        channel::STATE => channel.state(),
        channel::ERROR => channel.error(),
        channel::SESSION => channel.session(),
        // Any process may read registers, and must not learn the key.
        channel::PAGES_KEY_LO | channel::PAGES_KEY_HI => 0,
        _ => channel.written(register).map_or(0, |written| written.load(Ordering::Relaxed)),
    }
}

/// Writes a register of a channel's block.
fn write_channel(device: &Device, channel: &Arc<Channel>, register: u32, value: u32) {
    match register {
        channel::CONTROL if value == channel::ATTACH => device.attach(channel),
        channel::DOORBELL => channel.doorbell(),
        channel::DETACH_SESSION => device.detach(channel, value),
        _ => {
            if let Some(written) = channel.written(register) {
                written.store(value, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the value of the usage register at an offset of BAR0, or `None` if there is none.
fn usage(device: &Device, offset: u32) -> Option<u32> {
    let within = offset.checked_sub(reg::V2_USAGE)?;
    let channel = device.channels().get((within / reg::usage::USAGE_STRIDE) as usize)?;
    Some(channel.with_session(|host| host.usage(within % reg::usage::USAGE_STRIDE)).unwrap_or(0))
}

impl Device {
    /// Updates the register page, if the bus has one.
    pub(crate) fn publish(&self) {
        for register in REGISTERS {
            self.published().store(register.offset, register.answer(self));
        }
    }

    /// Updates the registers of the page that change without a message of the guest: the time of work that
    /// goes on, and the VM's share.
    pub(crate) fn refresh_page(&self) {
        for channel in self.channels() {
            channel.with_session(SessionHost::show_busy);
        }
        if self.capabilities() & reg::CAP_SHARE != 0 {
            // Nobody else stores these.
            for register in REGISTERS.iter().filter(|register| VmShare::REGISTERS.contains(&register.offset))
            {
                self.published().store(register.offset, register.answer(self));
            }
        }
    }

    /// Stores the facts in the register page. They never change, so this happens once.
    pub(crate) fn publish_facts(&self) {
        for word in 0..(size_of::<DeviceFacts>() / 4) as u32 {
            let offset = reg::V2_FACTS + 4 * word;
            self.published().store(offset, self.fact(offset));
        }
    }

    /// Returns the word of the facts at an offset of BAR0, or 0 if there is none.
    fn fact(&self, offset: u32) -> u32 {
        let at = offset.checked_sub(reg::V2_FACTS).map(|at| at as usize);
        let word = at.and_then(|at| self.facts().as_bytes().get(at..)?.first_chunk());
        word.filter(|_| offset.is_multiple_of(4)).map_or(0, |&word| u32::from_le_bytes(word))
    }

    /// Fills the register page with ones, which registers read when the function is gone.
    pub(crate) fn unpublish(&self) {
        for register in REGISTERS {
            self.published().store(register.offset, reg::ALL_ONES);
        }
    }

    /// Reads the 32-bit register at `offset` of BAR0. Returns 0 if there is none.
    #[must_use]
    pub fn read(&self, offset: u32) -> u32 {
        self.count_read();
        let _timed = self.longest().access();
        if let Some((channel, register)) = channel_block(self, offset) {
            return read_channel(channel, register);
        }
        if let Some(used) = usage(self, offset) {
            return used;
        }
        let register = REGISTERS.iter().find(|register| register.offset == offset);
        register.map_or_else(|| self.fact(offset), |register| register.answer(self))
    }

    /// Writes the 32-bit register at `offset` of BAR0. An attach is decided when this returns. A session that
    /// is told to end ends later, and its channel is [`channel::STATE_ENDING`] until then, so nothing here
    /// waits for an executor. The write is ignored if the register does not exist or is read-only.
    pub fn write(&self, offset: u32, value: u32) {
        self.count_write();
        let _timed = self.longest().access();
        if let Some((channel, register)) = channel_block(self, offset) {
            write_channel(self, channel, register, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_order_and_aligned() {
        assert!(REGISTERS.is_sorted_by(|a, b| a.offset < b.offset));
        assert!(
            REGISTERS
                .iter()
                .all(|register| register.offset.is_multiple_of(4) && register.offset < channel::FIRST)
        );
        // The words of a share are numbered in their order.
        let share = REGISTERS.iter().map(|register| register.offset).skip_while(|at| *at != reg::V2_SHARE);
        assert_eq!(share.collect::<Vec<_>>(), VmShare::REGISTERS);
    }
}
