//! Questions about addresses and memory.

use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::driver::{CallError, Driver, since, status};
use crate::mapping::Mapping;

/// Number of bytes of a GiB.
const GIB: usize = 1 << 30;
/// Number of bytes that are registered.
const REGISTERED: usize = 256 << 20;
/// Number of GiB whose release is measured at most.
const RELEASED: usize = 40;

/// Addresses that are asked for: 0 leaves the choice to the driver. The others lie below, among and above the
/// areas of the driver and those that Linux gives to a process's mappings.
const HINTS: [u64; 11] = [
    0,
    0x10_0000_0000,
    0x100_0000_0000,
    0x600_0000_0000,
    0x1000_0000_0000,
    0x1100_0000_0000,
    0x2000_0000_0000,
    0x3000_0000_0000,
    0x4000_0000_0000,
    0x5000_0000_0000,
    0x7000_0000_0000,
];

/// Reserves 64 GiB to 4 TiB at each hint. Every reservation is returned before the next.
pub(super) fn reservations(driver: &Driver) -> Result<Value, CallError> {
    let mut answers = Vec::new();
    for hint in HINTS {
        for gib in [64, 128, 256, 512, 1024, 4096] {
            let outcome = driver.reserve(gib * GIB, hint);
            let given = outcome.as_ref().ok().map(|address| format!("{address:#x}"));
            answers.push(json!({
                "hint": format!("{hint:#x}"), "gib": gib, "status": status(&outcome), "given": given,
            }));
            if let Ok(address) = outcome {
                driver.unreserve(address, gib * GIB)?;
            }
        }
    }
    Ok(json!({ "cuMemAddressReserve": answers }))
}

/// Registers 256 MiB of each kind of shared memory that a device process has for its window, and of a file on
/// a disk.
pub(super) fn registrations(driver: &Driver) -> Result<Value, CallError> {
    let kinds = [
        ("memfd_256_mib", Mapping::memfd(REGISTERED, false)),
        ("memfd_256_mib_of_large_pages", Mapping::memfd(REGISTERED, true)),
        ("file_on_tmpfs", Mapping::file(Path::new("/dev/shm"), REGISTERED)),
        ("file_on_disk", Mapping::file(Path::new("/var/tmp"), REGISTERED)),
    ];
    let mut answers = Map::new();
    for (kind, mapping) in kinds {
        let mut answer = |suffix: &str, value: Value| answers.insert(format!("{kind}{suffix}"), value);
        let mapping = match mapping {
            Ok(mapping) => mapping,
            Err(error) => {
                answer("", error.to_string().into());
                continue;
            }
        };
        let start = Instant::now();
        let outcome = driver.register(mapping);
        answer("_ms", since(start).into());
        answer("", status(&outcome));
        if outcome.is_ok() {
            let same = driver.device_pointer(mapping)? == mapping.address() as u64;
            let start = Instant::now();
            driver.unregister(mapping)?;
            answer("_unregister_ms", since(start).into());
            answers.insert("device_pointer_is_the_address".to_owned(), same.into());
        }
    }
    Ok(json!({ "cuMemHostRegister": answers }))
}

/// Creates and maps memory by the GiB until the driver refuses, at most 40 GiB. Returns the addresses and the
/// handles.
fn fill(driver: &Driver) -> Result<(u64, Vec<u64>), CallError> {
    let range = driver.reserve(RELEASED * GIB, 0)?;
    let mut handles = Vec::new();
    while handles.len() < RELEASED {
        // An error means that the memory is used up.
        let Ok(handle) = driver.create(GIB) else { break };
        driver.map(range + (handles.len() * GIB) as u64, GIB, handle)?;
        handles.push(handle);
    }
    Ok((range, handles))
}

/// Measures the release of up to 40 GiB, and the end of the context.
pub(super) fn teardown(driver: &Driver) -> Result<Value, CallError> {
    let start = Instant::now();
    let (range, handles) = fill(driver)?;
    let (count, create_ms) = (handles.len(), since(start));
    let start = Instant::now();
    for piece in 0..count {
        driver.unmap(range + (piece * GIB) as u64, GIB)?;
    }
    let unmap_ms = since(start);
    let start = Instant::now();
    handles.into_iter().try_for_each(|handle| driver.release(handle))?;
    let release_ms = since(start);
    let start = Instant::now();
    driver.destroy_context()?;
    Ok(json!({
        format!("cuMemCreate_and_map_{count}_gib_ms"): create_ms,
        format!("cuMemUnmap_{count}_gib_ms"): unmap_ms,
        format!("cuMemRelease_{count}_gib_ms"): release_ms,
        "cuCtxDestroy_ms": since(start),
    }))
}

/// Leaves up to 40 GiB to the end of the process, which the parent measures.
pub(super) fn end_with_memory(driver: &Driver) -> Result<Value, CallError> {
    let (_, handles) = fill(driver)?;
    Ok(json!({ "process_ends_with_gib": handles.len() }))
}
