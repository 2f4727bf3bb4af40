//! Decodes random bytes as a stream of version 1's frames, which arrives in two pieces. Frames must lie
//! within the received bytes, and calls within frames.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vgpu_device_v1::Frames;
use vgpu_wire::v1::frame::{Call, Outcome};

fuzz_target!(|input: (usize, &[u8])| {
    let (cut, bytes) = input;
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    let mut frames = Frames::default();
    for piece in [first, second] {
        frames.push(piece);
        while let Ok(Some((header, payload))) = frames.next_frame() {
            assert_eq!(payload.len(), header.bytes.get() as usize);
            if let Ok((call, data)) = Call::decode(payload) {
                assert_eq!(data.len(), call.data_len.get() as usize);
            }
            if let Ok((_, data)) = Outcome::decode(payload) {
                assert!(data.len() < payload.len());
            }
        }
    }
});
