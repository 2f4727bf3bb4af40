//! Decodes random bytes as a message: they are decoded or rejected, and decoded parts must lie within the
//! bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vgpu_wire::Message;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = Message::decode(bytes) {
        assert!(message.header.bytes as usize <= bytes.len());
        assert!(message.tail.len() < bytes.len());
    }
});
