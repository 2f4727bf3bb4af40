//! `facts`: what the driver, the runtime and NVML say of each device, side by side.

use serde_json::{Value, json};

use crate::driver::{Driver, uuid_text};
use crate::say::{Fault, Fields, Say};
use crate::{nvml, runtime};

/// Reports the facts. NVML is asked about the devices that the driver shows.
pub fn run(soname: Option<&str>, say: &mut Say) {
    let uuids = say.step("driver", driver);
    if let Some(soname) = soname {
        say.step("runtime", |fields| {
            fields.insert("soname".into(), soname.into());
            runtime::describe(soname.as_ref(), fields)
        });
    }
    say.step("nvml", |fields| nvml::describe(uuids.as_deref().unwrap_or_default(), fields));
}

fn driver(fields: &mut Fields) -> Result<Vec<String>, Fault> {
    let driver = Driver::open()?;
    driver.init()?;
    fields.insert("version".into(), driver.version()?.into());
    let mut uuids = Vec::new();
    let mut devices: Vec<Value> = Vec::new();
    for device in driver.devices()? {
        let uuid = uuid_text(driver.uuid(device)?);
        let (major, minor) = driver.capability(device)?;
        driver.enter(device)?;
        let (free, total) = driver.memory()?;
        devices.push(json!({
            "name": driver.name(device)?,
            "pci": driver.pci(device)?,
            "uuid": uuid,
            "capability": format!("{major}.{minor}"),
            "integrated": driver.integrated(device)?,
            "device_total": driver.total(device)?,
            "total": total,
            "free": free,
        }));
        uuids.push(uuid);
    }
    fields.insert("devices".into(), devices.into());
    Ok(uuids)
}
