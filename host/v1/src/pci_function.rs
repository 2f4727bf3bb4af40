//! VGPU-STUB as a PCI function: version 1 of the contract. Every access is an exit of the virtual machine, to
//! BAR1 as well; the window, if the guest registers one, is in the guest's own memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use vgpu_vfio_user::{Bar, Decode, Function, IDENTITY, Identity};
use vgpu_wire::pci;

use super::access;
use super::device::Device;

/// Largest access in bytes.
const WIDEST: usize = 8;

/// A version 1 device as a PCI function.
#[derive(Debug)]
pub struct PciFunction {
    device: Arc<Device>,
}

impl PciFunction {
    /// Makes the function of a device whose guest memory is the machine's.
    pub fn new(device: Arc<Device>) -> Self {
        Self { device }
    }
}

fn bar(index: usize) -> Option<access::Bar> {
    [access::Bar::Bar0, access::Bar::Bar1].get(index).copied()
}

/// Returns the size of the largest access that starts at `offset` and is at most `bytes` long.
fn piece(offset: u64, bytes: usize) -> usize {
    let aligned = 1 << offset.trailing_zeros().min(WIDEST.trailing_zeros());
    let fits = if bytes.is_power_of_two() { bytes } else { bytes.next_power_of_two() / 2 };
    aligned.min(fits).min(WIDEST)
}

impl Function for PciFunction {
    fn identity(&self) -> Identity {
        IDENTITY
    }

    fn bars(&self) -> [Option<Bar>; 6] {
        let registers = Bar { bytes: pci::V1_BAR0_BYTES, decode: Decode::Memory32 };
        let data = Bar { bytes: pci::V1_BAR1_BYTES, decode: Decode::Memory32 };
        [Some(registers), Some(data), None, None, None, None]
    }

    fn pages_key(&self) -> u64 {
        0
    }

    fn memory(&self, _bar: usize) -> Option<OwnedFd> {
        None
    }

    fn read(&self, index: usize, offset: u64, data: &mut [u8]) {
        let Some(bar) = bar(index) else { return data.fill(0xff) };
        let mut at = 0;
        while at < data.len() {
            let size = piece(offset + at as u64, data.len() - at);
            let value = self.device.read(bar, offset as u32 + at as u32, size);
            data[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
            at += size;
        }
    }

    fn write(&self, index: usize, offset: u64, data: &[u8]) {
        let Some(bar) = bar(index) else { return };
        let mut at = 0;
        while at < data.len() {
            let size = piece(offset + at as u64, data.len() - at);
            let mut value = [0; WIDEST];
            value[..size].copy_from_slice(&data[at..at + size]);
            self.device.write(bar, offset as u32 + at as u32, size, u64::from_le_bytes(value));
            at += size;
        }
    }

    /// Does nothing: version 1 devices have no reset, and keep window and status when their guest is
    /// restarted.
    fn reset(&self) {}
}

#[cfg(test)]
mod tests {
    use vgpu_vfio_user::SharedRam;
    use vgpu_wire::registers as reg;

    use super::*;
    use crate::properties::Properties;

    #[test]
    fn accesses_are_cut_as_a_bus_does() {
        assert_eq!(
            [piece(0, 8), piece(4, 8), piece(2, 8), piece(1, 8), piece(8, 3), piece(0, 64)],
            [8, 4, 2, 1, 2, 8]
        );
    }

    #[test]
    fn registers_and_data_are_the_devices() {
        let stub = PciFunction::new(Device::new(Properties::default(), Arc::new(SharedRam::default())));
        let mut word = [0; 4];
        stub.read(0, u64::from(reg::PROTOCOL_VER), &mut word);
        assert_eq!(u32::from_le_bytes(word), reg::PROTOCOL_V1);
        stub.write(1, 0x10_0000, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let mut back = [0; 8];
        stub.read(1, 0x10_0000, &mut back);
        assert_eq!(back, [1, 2, 3, 4, 5, 6, 7, 8]);
        stub.read(2, 0, &mut back);
        assert_eq!(back, [0xff; 8], "there is no BAR2");
    }
}
