//! Decodes random bytes as a graph's payload: the walks must end, and every record must lie within the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for record in vgpu_device::graph_nodes(bytes).chain(vgpu_device::graph_patches(bytes)) {
        assert!(record.message.tail.len() <= bytes.len());
    }
});
