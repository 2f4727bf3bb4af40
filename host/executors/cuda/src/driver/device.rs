//! Queries of the driver's devices that need no context.

use std::ffi::{c_char, c_int};
use std::fmt::Write;
use std::sync::Arc;

use vgpu_abi::driver::CUdevice;

use super::error::{DriverError, LoadError, check};
use super::library::DriverLibrary;

/// A GPU of the host, or a part of one (MIG).
#[derive(Clone, Debug)]
pub(crate) struct DriverDevice {
    driver: Arc<DriverLibrary>,
    ordinal: CUdevice,
}

/// Formats a UUID as NVIDIA's tools print it.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("GPU-");
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl DriverDevice {
    /// Finds the device with a UUID, or the first one.
    pub(crate) fn find(driver: &Arc<DriverLibrary>, uuid: Option<[u8; 16]>) -> Result<Self, LoadError> {
        let mut found = Vec::new();
        for ordinal in 0..count(driver)? {
            let device = Self::open(driver, ordinal)?;
            let known = device.uuid()?;
            if uuid.is_none_or(|uuid| uuid == known) {
                return Ok(device);
            }
            found.push(uuid_text(&known));
        }
        let wanted = uuid.map_or_else(|| "any".to_owned(), |uuid| uuid_text(&uuid));
        let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
        Err(LoadError::NoDevice { wanted, found })
    }

    /// Returns all devices, in the driver's order.
    pub(crate) fn all(driver: &Arc<DriverLibrary>) -> Result<Vec<Self>, DriverError> {
        (0..count(driver)?).map(|ordinal| Self::open(driver, ordinal)).collect()
    }

    fn open(driver: &Arc<DriverLibrary>, ordinal: c_int) -> Result<Self, DriverError> {
        let mut device = 0;
        // SAFETY: a live place for the answer.
        check("cuDeviceGet", unsafe { (driver.table.cuDeviceGet)(&raw mut device, ordinal) })?;
        Ok(Self { driver: Arc::clone(driver), ordinal: device })
    }

    /// Returns the library that serves the device.
    pub(super) const fn driver(&self) -> &Arc<DriverLibrary> {
        &self.driver
    }

    /// Returns the ordinal of the device.
    pub(super) const fn ordinal(&self) -> CUdevice {
        self.ordinal
    }

    /// Returns the version of the driver from `cuDriverGetVersion`: 1000 × major + 10 × minor.
    pub(crate) fn driver_version(&self) -> Result<u32, DriverError> {
        let mut version = 0;
        // SAFETY: a live place for the answer.
        check("cuDriverGetVersion", unsafe { (self.driver.table.cuDriverGetVersion)(&raw mut version) })?;
        Ok(u32::try_from(version).unwrap_or(0))
    }

    /// Returns the UUID from `cuDeviceGetUuid_v2`. For a part of a GPU, it is the UUID of the part.
    pub(crate) fn uuid(&self) -> Result<[u8; 16], DriverError> {
        let mut uuid = [0; 16];
        // SAFETY: a live place for the answer.
        let code = unsafe { (self.driver.table.cuDeviceGetUuid_v2)(&raw mut uuid, self.ordinal) };
        check("cuDeviceGetUuid_v2", code)?;
        Ok(uuid)
    }

    /// Returns the product name, padded with zeros. The last byte is always zero.
    pub(crate) fn name(&self) -> Result<[u8; 256], DriverError> {
        let mut name = [0_u8; 256];
        let room = c_int::try_from(name.len() - 1).unwrap_or(0);
        let text = name.as_mut_ptr().cast::<c_char>();
        // SAFETY: a live buffer of more bytes than are offered.
        check("cuDeviceGetName", unsafe { (self.driver.table.cuDeviceGetName)(text, room, self.ordinal) })?;
        // The bytes after the end of the text are undefined.
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(255);
        name[end..].fill(0);
        Ok(name)
    }

    /// Returns the size of the device memory in bytes.
    pub(crate) fn total_bytes(&self) -> Result<u64, DriverError> {
        let mut bytes = 0;
        // SAFETY: a live place for the answer.
        let code = unsafe { (self.driver.table.cuDeviceTotalMem_v2)(&raw mut bytes, self.ordinal) };
        check("cuDeviceTotalMem_v2", code)?;
        Ok(bytes as u64)
    }

    /// Returns the value of an attribute, or `None` if the driver does not know the attribute.
    pub(crate) fn attribute(&self, id: c_int) -> Option<i32> {
        let mut value = 0;
        // SAFETY: a live place for the answer; the driver checks the id.
        let code = unsafe { (self.driver.table.cuDeviceGetAttribute)(&raw mut value, id, self.ordinal) };
        check("cuDeviceGetAttribute", code).ok().map(|()| value)
    }

    /// Returns whether the driver has a linker.
    pub(crate) fn has_linker(&self) -> bool {
        let table = &self.driver.table;
        table.cuLinkCreate_v2.is_some()
            && table.cuLinkAddData_v2.is_some()
            && table.cuLinkComplete.is_some()
            && table.cuLinkDestroy.is_some()
    }

    /// Returns whether edges of graphs can have data, which came with CUDA 12.3.
    pub(crate) fn has_edge_data(&self) -> bool {
        let table = &self.driver.table;
        table.cuStreamGetCaptureInfo_v3.is_some() && table.cuStreamUpdateCaptureDependencies_v2.is_some()
    }

    /// Returns whether streams can store words in host memory and wait for them.
    pub(crate) fn has_stream_memory_operations(&self) -> bool {
        // CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, of version 2 of these calls.
        const CAN: c_int = 122;
        let table = &self.driver.table;
        table.cuStreamWriteValue64_v2.is_some()
            && table.cuStreamWaitValue32_v2.is_some()
            && self.attribute(CAN).is_some_and(|can| can != 0)
    }
}

fn count(driver: &DriverLibrary) -> Result<c_int, DriverError> {
    let mut count = 0;
    // SAFETY: a live place for the answer.
    check("cuDeviceGetCount", unsafe { (driver.table.cuDeviceGetCount)(&raw mut count) })?;
    Ok(count)
}
