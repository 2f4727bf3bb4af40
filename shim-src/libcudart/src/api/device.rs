//! Device management: number of devices, the thread's device, attributes, limits and flags.
//!
//! Since CUDA 12 `cudaSetDevice` initialises the device's primary context at once, and returns its errors.
//! The number of devices, properties and attributes need no context.

use core::ffi::{c_char, c_int, c_uint};

use vgpu_abi::runtime::{CudaError, DEVICE_FLAGS, DEVICE_MAP_HOST};

use crate::{MAJOR, process, thread};

/// Returns whether the runtime has an attribute with the driver's number. Numbers that only the driver has
/// are invalid here (`cudaDeviceAttr` of 12.9 and 13.5 against `CUdevice_attribute`).
fn is_attribute(id: c_int) -> bool {
    let last = if MAJOR == 13 { 160 } else { 143 };
    let drivers_alone = matches!(id, 44 | 102..=105 | 107 | 110 | 136 | 137 | 146 | 152..=156 | 158 | 159);
    (1..=last).contains(&id) && !drivers_alone
}

/// Returns whether the scheduling part of device flags is valid: automatic, spin, yield or block.
fn is_schedule(flags: c_uint) -> bool {
    matches!(flags & 7, 0 | 1 | 2 | 4)
}

fn set_flags(runtime: &process::Runtime, ordinal: c_int, flags: c_uint) -> Result<(), CudaError> {
    if flags & !DEVICE_FLAGS != 0 || !is_schedule(flags) {
        return Err(CudaError::INVALID_VALUE);
    }
    // Mapped host memory is always enabled; the driver's flags need not contain it.
    cu!(cuDevicePrimaryCtxSetFlags_v2(runtime.device(ordinal)?.handle, flags & !DEVICE_MAP_HOST))
}

fn synchronize() -> Result<(), CudaError> {
    process::enter()?;
    cu!(cuCtxSynchronize())
}

fn get_limit(value: *mut usize, limit: c_uint) -> Result<(), CudaError> {
    process::enter()?;
    if value.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    cu!(cuCtxGetLimit(value, limit))
}

fn set_limit(limit: c_uint, value: usize) -> Result<(), CudaError> {
    process::enter()?;
    cu!(cuCtxSetLimit(limit, value))
}

fn get_cache_config(config: *mut c_uint) -> Result<(), CudaError> {
    process::enter()?;
    if config.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    cu!(cuCtxGetCacheConfig(config))
}

fn set_cache_config(config: c_uint) -> Result<(), CudaError> {
    process::enter()?;
    cu!(cuCtxSetCacheConfig(config))
}

fn reset() -> Result<(), CudaError> {
    let runtime = process::runtime()?;
    runtime.reset(runtime.current()?)
}

/// Length in bytes of the part of `cudaDeviceProp` that [`cudaChooseDevice`] reads, up to the compute
/// capability. It is the same in every layout, and older programs pass a shorter structure than this
/// library's.
const CHOICE_BYTES: usize = 368;

/// Returns a score for how well a device fits a request. Sufficient memory and a sufficient compute
/// capability count; of equal devices the first is chosen.
fn score(wanted: &[u8; CHOICE_BYTES], has: &[u8]) -> u32 {
    let number = |bytes: &[u8], offset: usize, count: usize| {
        let mut number = [0; 8];
        number[..count].copy_from_slice(&bytes[offset..][..count]);
        u64::from_le_bytes(number)
    };
    let memory = |bytes: &[u8]| number(bytes, 288, 8);
    let capability = |bytes: &[u8]| (number(bytes, 360, 4), number(bytes, 364, 4));
    2 * u32::from(capability(has) >= capability(wanted)) + u32::from(memory(has) >= memory(wanted))
}

calls! {
    /// Stores the number of devices that the process sees.
    pub fn cudaGetDeviceCount(count: *mut c_int) {
        let runtime = process::runtime()?;
        store!(count, runtime.count())
    }

    /// Stores the ordinal of the thread's device.
    pub fn cudaGetDevice(ordinal: *mut c_int) {
        let runtime = process::runtime()?;
        store!(ordinal, runtime.current()?)
    }

    /// Selects a device for the calling thread, and makes its primary context current.
    pub fn cudaSetDevice(ordinal: c_int) {
        let runtime = process::runtime()?;
        runtime.device(ordinal)?;
        thread::with(|thread| thread.device.set(ordinal));
        runtime.bind(ordinal)
    }

    /// Initialises a device's primary context without selecting the device. With the last bit of `flags`,
    /// `device_flags` are set first.
    pub fn cudaInitDevice(ordinal: c_int, device_flags: c_uint, flags: c_uint) {
        let runtime = process::runtime()?;
        let device = runtime.device(ordinal)?;
        match flags {
            0 => {}
            1 => set_flags(runtime, ordinal, device_flags)?,
            _ => return Err(CudaError::INVALID_VALUE),
        }
        device.primary().map(|_| ())
    }

    /// Selects the first of a list of devices if the thread has not selected one yet; an empty list selects
    /// device 0.
    pub fn cudaSetValidDevices(list: *mut c_int, count: c_int) {
        let runtime = process::runtime()?;
        if count < 0 || count > runtime.count() || (list.is_null() && count > 0) {
            return Err(CudaError::INVALID_VALUE);
        }
        let mut first = 0;
        for index in (0..count as usize).rev() {
            // SAFETY: the caller of the export promised `count` elements.
            let place = unsafe { list.add(index) };
            first = load!(place)?;
            runtime.device(first)?;
        }
        thread::with(|thread| thread.device.set(first));
        Ok(())
    }

    /// Stores the ordinal of the device that fits the properties best.
    pub fn cudaChooseDevice(ordinal: *mut c_int, wanted: *const [u8; CHOICE_BYTES]) {
        let runtime = process::runtime()?;
        let wanted = load!(wanted)?;
        let mut best = (0, 0);
        for candidate in 0..runtime.count() {
            // One more than the score, so that the first device is chosen where none fits.
            let score = 1 + score(&wanted, runtime.device(candidate)?.properties()?.bytes());
            if score > best.0 {
                best = (score, candidate);
            }
        }
        store!(ordinal, best.1)
    }

    /// Stores an attribute of a device.
    pub fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_int, ordinal: c_int) {
        let device = process::runtime()?.device(ordinal)?;
        if value.is_null() || !is_attribute(attribute) {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuDeviceGetAttribute(value, attribute, device.handle))
    }

    /// Stores a device's PCI address as text, such as "0000:00:05.0".
    pub fn cudaDeviceGetPCIBusId(text: *mut c_char, bytes: c_int, ordinal: c_int) {
        let device = process::runtime()?.device(ordinal)?;
        if text.is_null() || bytes <= 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuDeviceGetPCIBusId(text, bytes, device.handle))
    }

    /// Stores the ordinal of the device at a PCI address.
    pub fn cudaDeviceGetByPCIBusId(ordinal: *mut c_int, text: *const c_char) {
        let runtime = process::runtime()?;
        if ordinal.is_null() || text.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        let mut handle = 0;
        cu!(cuDeviceGetByPCIBusId(&raw mut handle, text))?;
        store!(ordinal, runtime.ordinal(handle)?)
    }

    /// Waits until the thread's device has completed all work of this process.
    pub fn cudaDeviceSynchronize() {
        synchronize()
    }

    /// Resets the primary context of the thread's device, which ends everything in it.
    pub fn cudaDeviceReset() {
        reset()
    }

    /// Succeeds without effect, because the driver keeps no persisting lines in the L2 cache.
    pub fn cudaCtxResetPersistingL2Cache() {
        process::enter()?;
        cu!(cuCtxResetPersistingL2Cache())
    }

    /// Sets the flags of the thread's device, which say above all how threads wait for it.
    pub fn cudaSetDeviceFlags(flags: c_uint) {
        let runtime = process::runtime()?;
        set_flags(runtime, runtime.current()?, flags)
    }

    /// Stores the flags of the thread's device.
    pub fn cudaGetDeviceFlags(flags: *mut c_uint) {
        let runtime = process::runtime()?;
        let device = runtime.device(runtime.current()?)?;
        let (mut set, mut active) = (0, 0);
        cu!(cuDevicePrimaryCtxGetState(device.handle, &raw mut set, &raw mut active))?;
        store!(flags, set | DEVICE_MAP_HOST)
    }

    /// Stores a limit of the thread's device.
    pub fn cudaDeviceGetLimit(value: *mut usize, limit: c_uint) {
        get_limit(value, limit)
    }

    /// Sets a limit of the thread's device.
    pub fn cudaDeviceSetLimit(limit: c_uint, value: usize) {
        set_limit(limit, value)
    }

    /// Stores the preferred split between cache and shared memory.
    pub fn cudaDeviceGetCacheConfig(config: *mut c_uint) {
        get_cache_config(config)
    }

    /// Sets the preferred split between cache and shared memory, a hint that the driver only stores.
    pub fn cudaDeviceSetCacheConfig(config: c_uint) {
        set_cache_config(config)
    }

    /// Stores the width of shared memory's banks, a `cudaSharedMemConfig`.
    pub fn cudaDeviceGetSharedMemConfig(config: *mut c_uint) {
        process::enter()?;
        if config.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuCtxGetSharedMemConfig(config))
    }

    /// Sets the width of shared memory's banks, which the driver accepts without effect.
    pub fn cudaDeviceSetSharedMemConfig(config: c_uint) {
        process::enter()?;
        cu!(cuCtxSetSharedMemConfig(config))
    }

    /// Stores the least and the most urgent priority of streams.
    pub fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        process::enter()?;
        cu!(cuCtxGetStreamPriorityRange(least, greatest))
    }
}

// Names from before CUDA 4, which CUDA 12 still exports.
#[cfg(not(feature = "cuda13"))]
calls! {
    /// Waits until the thread's device has completed all work of this process ([`cudaDeviceSynchronize`]
    /// under its old name).
    pub fn cudaThreadSynchronize() {
        synchronize()
    }

    /// Resets the primary context of the thread's device ([`cudaDeviceReset`] under its old name).
    pub fn cudaThreadExit() {
        reset()
    }

    /// Stores a limit of the thread's device ([`cudaDeviceGetLimit`] under its old name).
    pub fn cudaThreadGetLimit(value: *mut usize, limit: c_uint) {
        get_limit(value, limit)
    }

    /// Sets a limit of the thread's device ([`cudaDeviceSetLimit`] under its old name).
    pub fn cudaThreadSetLimit(limit: c_uint, value: usize) {
        set_limit(limit, value)
    }

    /// Stores the preferred split between cache and shared memory ([`cudaDeviceGetCacheConfig`] under its old
    /// name).
    pub fn cudaThreadGetCacheConfig(config: *mut c_uint) {
        get_cache_config(config)
    }

    /// Sets the preferred split between cache and shared memory ([`cudaDeviceSetCacheConfig`] under its old
    /// name).
    pub fn cudaThreadSetCacheConfig(config: c_uint) {
        set_cache_config(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids of `cudaDeviceAttr` in the headers, by CUDA major. The last id is one above the last attribute.
    const HEADERS: [&str; 2] = [
        include_str!("../../tests/layouts/cudaDeviceAttr12.tsv"),
        include_str!("../../tests/layouts/cudaDeviceAttr13.tsv"),
    ];

    #[test]
    fn attributes_are_those_of_the_headers() {
        let text = HEADERS[usize::from(MAJOR == 13)];
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        let ids: Vec<(c_int, &str)> = rows
            .map(|line| line.split_once('\t').unwrap())
            .map(|(id, name)| (id.parse().unwrap(), name))
            .collect();
        for id in -1..200 {
            let expected = ids.iter().any(|&(known, name)| known == id && name != "cudaDevAttrMax");
            assert_eq!(is_attribute(id), expected, "attribute {id}");
        }
    }

    #[test]
    fn the_device_that_has_what_is_asked_for_scores_highest() {
        let properties = |memory: u64, major: u32, minor: u32| {
            let mut bytes = [0_u8; CHOICE_BYTES];
            bytes[288..296].copy_from_slice(&memory.to_le_bytes());
            bytes[360..364].copy_from_slice(&major.to_le_bytes());
            bytes[364..368].copy_from_slice(&minor.to_le_bytes());
            bytes
        };
        let wanted = properties(4 << 30, 7, 5);
        let scores: Vec<u32> = [(2, 6, 1), (8, 6, 1), (2, 7, 5), (4, 8, 0)]
            .map(|(gib, major, minor)| score(&wanted, &properties(gib << 30, major, minor)))
            .into();
        assert_eq!(scores, [0, 1, 2, 3]);
    }

    #[test]
    fn schedules_are_one_of_four() {
        let valid: Vec<c_uint> = (0..8).filter(|&flags| is_schedule(flags)).collect();
        assert_eq!(valid, [0, 1, 2, 4]);
    }
}
