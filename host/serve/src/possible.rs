//! Values that a setting may have in itself, but that no device or VM can have.

use std::fmt::Display;

use vgpu_device::ADDRESS_RANGES;
use vgpu_wire::area::AREA_BYTES;
use vgpu_wire::registers::MAX_CHANNELS;

use crate::device::CHANNELS;
use crate::settings::Settings;
use crate::values::Bus;

/// Least memory of a GPU or of a VM, in bytes.
const LEAST_MEMORY: u64 = 64 << 20;
/// Largest window in bytes. Firmware reserves twice its size for a root port.
const MOST_WINDOW: u64 = 16 << 30;

/// A value that a device or its VM cannot have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} = {value} is not possible: {why}")]
pub(crate) struct Impossible {
    /// Name of the setting.
    pub(crate) name: &'static str,
    value: String,
    why: &'static str,
}

/// Checks values that a device on `bus` or its VM could not have.
///
/// # Errors
/// The error names the setting, its value, and one that would do.
pub(crate) fn check(settings: &Settings, bus: &Bus) -> Result<(), Impossible> {
    let wrong = |name, value: &dyn Display, why| Err(Impossible { name, value: value.to_string(), why });
    if let Some(memory) = settings.memory.filter(|memory| memory.0 < LEAST_MEMORY) {
        return wrong("memory", &memory, "a GPU has 64M at least, such as 8G");
    }
    if let Some(memory) = settings.vm_memory
        && (memory.0 < LEAST_MEMORY || !memory.0.is_multiple_of(1 << 20))
    {
        return wrong("vm-memory", &memory, "a VM has 64M at least, in units of 1M, such as 4G");
    }
    if let Some(channels) = settings.channels.filter(|channels| !(1..=MAX_CHANNELS).contains(channels)) {
        return wrong("channels", &channels, "a device has 1 to 64, such as 16");
    }
    if let Some(range) = settings.address_range.filter(|range| *range >= ADDRESS_RANGES) {
        return wrong("address-range", &range, "there are 0 to 44, such as 6");
    }
    let Some(window) = settings.window else { return Ok(()) };
    if matches!(bus, Bus::VfioUser(_)) && !window.0.is_power_of_two() {
        return wrong("window", &window, "a PCI BAR has a power of two, such as 256M");
    }
    let areas = u64::from(settings.channels.unwrap_or(CHANNELS)).saturating_mul(AREA_BYTES);
    if window.0 < areas {
        return wrong(
            "window",
            &window,
            "each channel takes 512K of it, and buffers the rest: 256M is usual",
        );
    }
    if window.0 > MOST_WINDOW {
        return wrong("window", &window, "no firmware reserves addresses for more than 16G; 256M is usual");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(setting: &str, bus: &str) -> Result<(), Impossible> {
        check(&toml::from_str(setting).unwrap(), &bus.parse().unwrap())
    }

    #[test]
    fn impossible_values_are_named_with_one_that_would_do() {
        for (setting, bus, why) in [
            ("memory = \"0\"", "vfio-user:/a", "such as 8G"),
            ("memory = \"8K\"", "sim:/a", "such as 8G"),
            ("vm-memory = \"3M\"", "vfio-user:/a", "such as 4G"),
            ("vm-memory = \"67108865\"", "vfio-user:/a", "units of 1M"),
            ("window = \"96M\"", "vfio-user:/a", "power of two"),
            ("window = \"16M\"", "sim:/a", "256M is usual"),
            ("window = \"64G\"", "vfio-user:/a", "16G"),
            ("channels = 0", "sim:/a", "1 to 64"),
            ("channels = 65", "vfio-user:/a", "1 to 64"),
            ("address-range = 45", "sim:/a", "0 to 44"),
        ] {
            let error = checked(setting, bus).unwrap_err().to_string();
            let (name, _) = setting.split_once(' ').unwrap();
            assert!(error.starts_with(name) && error.contains(why), "{setting}: {error}");
        }
        for (setting, bus) in [
            ("window = \"64M\"", "vfio-user:/a"),
            ("window = \"96M\"", "sim:/a"),
            ("window = \"4M\"\nchannels = 8", "vfio-user:/a"),
            ("channels = 64\naddress-range = 44", "sim:/a"),
        ] {
            assert_eq!(checked(setting, bus), Ok(()), "{setting}");
        }
    }
}
