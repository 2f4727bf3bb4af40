//! `facts`: reports what the driver, the runtime and NVML return for each device, side by side.

use vgpu_probe_steps::{self as steps, Fault, Gpu};

use crate::driver::{Driver, uuid_text};
use crate::say::Say;
use crate::{nvml, runtime};

/// Reports the facts. NVML is asked about the devices that the driver shows.
pub fn show_facts(soname: Option<&str>, say: &mut Say) {
    let uuids = say.step(driver);
    if let Some(soname) = soname {
        say.step(|said| runtime::describe(soname, said));
    }
    say.step(|said| nvml::describe(uuids.as_deref().unwrap_or_default(), said));
}

/// Returns the UUIDs of the devices that the driver makes visible.
fn driver(said: &mut steps::Driver) -> Result<Vec<String>, Fault> {
    let driver = Driver::open()?;
    driver.init()?;
    said.version = driver.version()?;
    let mut devices = Vec::new();
    for device in driver.devices()? {
        let (major, minor) = driver.capability(device)?;
        driver.enter(device)?;
        let (free, total) = driver.memory()?;
        devices.push(Gpu {
            name: driver.name(device)?,
            pci: driver.pci(device)?,
            uuid: uuid_text(driver.uuid(device)?),
            capability: format!("{major}.{minor}"),
            integrated: Some(driver.integrated(device)?),
            device_total: Some(driver.total(device)? as u64),
            total: total as u64,
            free: free as u64,
            ..Gpu::default()
        });
    }
    said.devices = devices;
    Ok(said.devices.iter().map(|device| device.uuid.clone()).collect())
}
