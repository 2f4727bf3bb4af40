//! Reads random bytes as the record of a process that has died. What is accepted keeps to the bounds on which
//! the next process relies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vgpu_vfio_user::record::{self, MAX_REGIONS};

/// Size of a record, and the offset and size of its two slots.
const BYTES: usize = 4096 + 2 * SLOT;
const SLOT: usize = 32 << 10;

fuzz_target!(|input: (u64, u64, &[u8])| {
    let (answering, process, image) = input;
    let mut bytes = vec![0; BYTES];
    bytes[..8].copy_from_slice(&0x5647_5055_5245_4301_u64.to_ne_bytes());
    bytes[8..16].copy_from_slice(&answering.to_ne_bytes());
    bytes[24..32].copy_from_slice(&process.to_ne_bytes());
    let image = &image[..image.len().min(SLOT - 16)];
    // Random bytes would not get past the checksum.
    let check = u64::from(crc32fast::hash(image)) << 32 | image.len() as u64;
    let words = [1, check].map(u64::to_ne_bytes);
    bytes[4096..4096 + 16].copy_from_slice(words.as_flattened());
    bytes[4096 + 16..4096 + 16 + image.len()].copy_from_slice(image);
    let Ok((recorded, 1)) = record::read(&bytes) else { return };
    assert!(recorded.processes.len() <= 1 && recorded.image.channels <= 64);
    let Some(connection) = recorded.image.connection else { return };
    assert!(connection.regions.len() <= MAX_REGIONS);
    for region in &connection.regions {
        assert!(region.bytes > 0 && region.address.checked_add(region.bytes - 1).is_some());
    }
    for pair in connection.regions.windows(2) {
        assert!(pair[0].address + (pair[0].bytes - 1) < pair[1].address);
    }
});
