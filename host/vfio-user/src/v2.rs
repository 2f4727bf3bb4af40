//! VGPU-STUB as a PCI function: version 2 of the contract.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use vgpu_device::{
    Device, DeviceConfig, DeviceError, DeviceState, KeptDescriptors, RestoreError, TestHooks, Window,
    WindowError,
};
use vgpu_wire::pci;

use crate::function::{Bar, Decode, Function, IDENTITY, Identity};

/// Index of BAR2, which is the window.
const WINDOW: usize = 2;
/// Width of a register in bytes.
const REGISTER: u64 = 4;

/// Reason for which the function cannot be created.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum StubError {
    #[error(transparent)]
    Window(#[from] WindowError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("make a BAR of {0} bytes: it has to be a power of two")]
    Size(u64),
}

/// A version 2 device as a PCI function. Accesses to registers in BAR0 are passed on, and the guest maps the
/// window in BAR2.
#[derive(Debug)]
pub struct V2 {
    device: Arc<Device>,
}

impl V2 {
    /// Creates the device. A futex does not work between two kernels, so `V2_WAKE` has no meaning here, and
    /// the guest sleeps by time.
    pub fn new(config: &DeviceConfig) -> Result<Self, StubError> {
        Self::with_hooks(config, &TestHooks::default())
    }

    /// Makes a device with hooks, for tests of guests.
    pub fn with_hooks(config: &DeviceConfig, hooks: &TestHooks) -> Result<Self, StubError> {
        Self::with_window(config, hooks, None)
    }

    /// Makes a device with hooks whose window is that of a device that has ended. It is cleared.
    pub fn with_window(
        config: &DeviceConfig,
        hooks: &TestHooks,
        window: Option<Window>,
    ) -> Result<Self, StubError> {
        let bytes = config.window_bytes;
        if !bytes.is_power_of_two() || window.as_ref().is_some_and(|window| window.bytes() != bytes) {
            return Err(StubError::Size(bytes));
        }
        let window = match window {
            Some(window) => {
                window.clear(0, bytes);
                window
            }
            None => Window::anonymous(bytes)?,
        };
        let window = Arc::new(window);
        Ok(Self { device: Arc::new(Device::with_hooks(config, hooks, window, 0)?) })
    }

    /// Makes the device of a saved state, whose window is `window` with all that is in it.
    pub fn restore(
        config: &DeviceConfig,
        state: &DeviceState,
        descriptors: &mut KeptDescriptors,
        window: Window,
    ) -> Result<Self, RestoreError> {
        let device = Device::restore(config, state, descriptors, Arc::new(window), 0)?;
        Ok(Self { device: Arc::new(device) })
    }

    /// Returns the device that the function presents.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Function for V2 {
    fn identity(&self) -> Identity {
        IDENTITY
    }

    fn bars(&self) -> [Option<Bar>; 6] {
        let registers = Bar { bytes: pci::V2_BAR0_BYTES, decode: Decode::Memory32 };
        let window = Bar { bytes: self.device.bar2().bytes(), decode: Decode::Memory64Prefetchable };
        [Some(registers), None, Some(window), None, None, None]
    }

    fn pages_key(&self) -> u64 {
        self.device.pages_key()
    }

    fn memory(&self, bar: usize) -> Option<OwnedFd> {
        (bar == WINDOW).then(|| self.device.bar2().file().try_clone_to_owned().ok()).flatten()
    }

    fn read(&self, bar: usize, offset: u64, data: &mut [u8]) {
        if bar == WINDOW {
            // The VMM does not map the window, or reads where it cannot map it.
            if let Some(slice) = self.device.bar2().slice(offset, data.len() as u64) {
                slice.copy_to(data);
            }
            return;
        }
        // The access is not aligned, or not as wide as a register. All registers that it touches are read.
        let mut word = None;
        for (at, byte) in (offset..).zip(data) {
            let register = at - at % REGISTER;
            let (_, value) = *word
                .filter(|(read, _)| *read == register)
                .get_or_insert_with(|| (register, self.device.read(register as u32).to_le_bytes()));
            word = Some((register, value));
            *byte = value[(at % REGISTER) as usize];
        }
    }

    fn write(&self, bar: usize, offset: u64, data: &[u8]) {
        if bar == WINDOW {
            if let Some(slice) = self.device.bar2().slice(offset, data.len() as u64) {
                slice.copy_from(data);
            }
            return;
        }
        // The contract only has aligned 32-bit accesses, two of which may arrive as one. Others are ignored,
        // as are accesses to registers that do not exist.
        if !offset.is_multiple_of(REGISTER) {
            return;
        }
        let (words, _) = data.as_chunks::<4>();
        for (at, word) in (offset..).step_by(REGISTER as usize).zip(words) {
            self.device.write(at as u32, u32::from_le_bytes(*word));
        }
    }

    fn reset(&self) {
        self.device.reset();
    }
}

#[cfg(test)]
mod tests {
    use vgpu_device::GpuConfig;
    use vgpu_executor_null::Null;
    use vgpu_wire::registers as reg;

    use super::*;

    fn stub() -> V2 {
        let executor = Arc::new(Null::new(&GpuConfig::new("test").unwrap()).unwrap());
        V2::new(&DeviceConfig::new("0000:00:04.0".parse().unwrap(), executor)).unwrap()
    }

    fn word(stub: &V2, offset: u32) -> u32 {
        let mut bytes = [0; 4];
        stub.read(0, u64::from(offset), &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn registers_read_alike_in_every_width() {
        let stub = stub();
        assert_eq!(word(&stub, reg::PROTOCOL_VER), reg::PROTOCOL_V2);
        assert_eq!(word(&stub, reg::V2_WAKE), 0, "nobody is woken across kernels");
        let mut wide = [0; 8];
        stub.read(0, u64::from(reg::PROTOCOL_VER), &mut wide);
        let both = [word(&stub, reg::PROTOCOL_VER), word(&stub, reg::CAPABILITIES)];
        assert_eq!(wide, *[both[0].to_le_bytes(), both[1].to_le_bytes()].as_flattened());
        let mut narrow = [0; 3];
        stub.read(0, u64::from(reg::PROTOCOL_VER) + 1, &mut narrow);
        assert_eq!(narrow, wide[1..4]);
        // These facts are answered by registers.
        assert_ne!(word(&stub, reg::V2_FACTS), 0);
    }

    #[test]
    fn only_whole_registers_are_written() {
        let stub = stub();
        let process = reg::channel::base(0) + reg::channel::PROCESS;
        stub.write(0, u64::from(process), &7u32.to_le_bytes());
        stub.write(0, u64::from(process), &[9]);
        stub.write(0, u64::from(process) + 2, &[9; 4]);
        assert_eq!(word(&stub, process), 7);
        stub.reset();
        assert_eq!(word(&stub, process), 0);
    }

    #[test]
    fn the_windows_memory_is_one() {
        let stub = stub();
        let file = std::fs::File::from(stub.memory(WINDOW).unwrap());
        assert!(stub.memory(0).is_none());
        stub.write(WINDOW, 0x10_0000, &[1, 2, 3]);
        let mut seen = [0; 3];
        std::os::unix::fs::FileExt::read_at(&file, &mut seen, 0x10_0000).unwrap();
        assert_eq!(seen, [1, 2, 3]);
    }

    #[test]
    fn a_window_that_no_bar_can_have_is_refused() {
        let executor = Arc::new(Null::new(&GpuConfig::new("test").unwrap()).unwrap());
        let mut config = DeviceConfig::new("0000:00:04.0".parse().unwrap(), executor);
        config.window_bytes = 65 << 20;
        assert!(matches!(V2::new(&config), Err(StubError::Size(_))));
    }
}
