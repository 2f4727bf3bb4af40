//! Decodes random bytes as the requests of a VMM, one after the other. What is accepted keeps to the bounds on
//! which the connection relies, and what is refused can be answered.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vgpu_vfio_user::Limits;
use vgpu_vfio_user::frame::{HEADER_BYTES, Header, MAX_DATA, MAX_MESSAGE, Request};

fuzz_target!(|input: (u8, &[u8])| {
    let (files, mut bytes) = input;
    while let Ok(Some(header)) = Header::decode(bytes) {
        let size = header.bytes as usize;
        assert!((HEADER_BYTES..=MAX_MESSAGE).contains(&size));
        let Some(payload) = bytes.get(HEADER_BYTES..size) else { return };
        match Request::decode(&header, payload, files.into()) {
            Ok(Request::Read(access)) => assert!(access.count <= MAX_DATA && access.region < 9),
            Ok(Request::Write(access, data)) => {
                assert!(access.count as usize == data.len() && access.region < 9);
                assert!(access.offset.checked_add(data.len() as u64).is_some());
            }
            Ok(Request::Version(_, text)) => drop(Limits::parse(text)),
            Ok(_) => {}
            Err(refused) => assert_eq!(header.error(refused.errno).bytes as usize, HEADER_BYTES),
        }
        bytes = &bytes[size..];
    }
});
