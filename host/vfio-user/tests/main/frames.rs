//! Properties of the decoder: whatever a VMM can mean is decoded to that, and no bytes break it.

use proptest::collection::vec;
use proptest::prelude::*;
use vgpu_vfio_user::frame::{
    Access, Command, DmaMap, DmaUnmap, HEADER_BYTES, Header, Info, MAX_DATA, MAX_MESSAGE, RegionInfo,
    Request, SetIrqs, Version,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::vmm::NO_REPLY;

/// A request that is right: its command, payload and descriptors.
type Right = (Command, Vec<u8>, usize);

fn rights() -> impl Strategy<Value = Right> {
    let version = ("[^\0]{0,300}", any::<bool>()).prop_map(|(text, any)| {
        let mut payload = Version { major: 0, minor: 1 }.as_bytes().to_vec();
        if any {
            payload.extend(text.as_bytes());
            payload.push(0);
        }
        (Command::VERSION, payload, 0)
    });
    let map =
        (any::<[u64; 3]>(), any::<u32>(), 0usize..2).prop_map(|([offset, address, bytes], flags, files)| {
            (Command::DMA_MAP, DmaMap { argsz: 32, flags, offset, address, bytes }.as_bytes().to_vec(), files)
        });
    let unmap = (any::<[u64; 2]>(), 24u32.., any::<u32>()).prop_map(|([address, bytes], argsz, flags)| {
        let unmap = DmaUnmap { argsz, flags: flags & !1, address, bytes };
        (Command::DMA_UNMAP, unmap.as_bytes().to_vec(), 0)
    });
    let info = (any::<bool>(), 16u32.., 0u32..5).prop_map(|(irq, argsz, first)| {
        let command = if irq { Command::DEVICE_GET_IRQ_INFO } else { Command::DEVICE_GET_INFO };
        (command, Info { argsz, flags: 0, first, second: 0 }.as_bytes().to_vec(), 0)
    });
    let region = (32u32.., 0u32..9).prop_map(|(argsz, index)| {
        let info = RegionInfo { argsz, flags: 0, index, cap_offset: 0, size: 0, offset: 0 };
        (Command::DEVICE_GET_REGION_INFO, info.as_bytes().to_vec(), 0)
    });
    let irqs = (0u32..3, 0u32..3, 0u32..5, any::<u32>(), 0u32..16, any::<bool>()).prop_map(
        |(data, action, index, start, count, files)| {
            let bytes = if data == 1 { count } else { 0 };
            let set = SetIrqs {
                argsz: 20 + bytes,
                flags: 1 << data | 8 << action,
                index,
                start: start & 0xffff,
                count,
            };
            let payload = [set.as_bytes(), &vec![1; bytes as usize]].concat();
            (Command::DEVICE_SET_IRQS, payload, if files && data == 2 { count as usize } else { 0 })
        },
    );
    let place = (0u64..u64::MAX - u64::from(MAX_DATA), 0u32..9);
    let read = (place.clone(), 0..=MAX_DATA).prop_map(|((offset, region), count)| {
        (Command::REGION_READ, Access { offset, region, count }.as_bytes().to_vec(), 0)
    });
    let write = (place, vec(any::<u8>(), 0..=MAX_DATA as usize)).prop_map(|((offset, region), data)| {
        let access = Access { offset, region, count: data.len() as u32 };
        (Command::REGION_WRITE, [access.as_bytes(), &data].concat(), 0)
    });
    let reset = Just((Command::DEVICE_RESET, Vec::new(), 0));
    prop_oneof![version, map, unmap, info, region, irqs, read, write, reset]
}

/// Returns the bytes of a request.
fn encode(command: Command, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header { id: 7, command, bytes: (HEADER_BYTES + payload.len()) as u32, flags, error: 0 };
    [header.as_bytes(), payload].concat()
}

/// Returns the command and payload that a decoded request was made from, but for fields that are not used.
fn encoded_again(request: &Request<'_>) -> (Command, Vec<u8>) {
    match *request {
        Request::Version(version, text) => {
            let end: &[u8] = if text.is_empty() { &[] } else { &[0] };
            (Command::VERSION, [version.as_bytes(), text.as_bytes(), end].concat())
        }
        Request::DmaMap(map) => (Command::DMA_MAP, map.as_bytes().to_vec()),
        Request::DmaUnmap(unmap) => (Command::DMA_UNMAP, unmap.as_bytes().to_vec()),
        Request::DeviceInfo => (Command::DEVICE_GET_INFO, Vec::new()),
        Request::RegionInfo { index, argsz } => {
            let info = RegionInfo { argsz, flags: 0, index, cap_offset: 0, size: 0, offset: 0 };
            (Command::DEVICE_GET_REGION_INFO, info.as_bytes().to_vec())
        }
        Request::IrqInfo(index) => (Command::DEVICE_GET_IRQ_INFO, index.to_ne_bytes().to_vec()),
        Request::SetIrqs(set) => (Command::DEVICE_SET_IRQS, set.as_bytes().to_vec()),
        Request::Read(access) => (Command::REGION_READ, access.as_bytes().to_vec()),
        Request::Write(access, data) => (Command::REGION_WRITE, [access.as_bytes(), data].concat()),
        Request::Reset => (Command::DEVICE_RESET, Vec::new()),
    }
}

proptest! {
    #[test]
    fn a_right_request_is_decoded_to_what_it_means((command, payload, files) in rights(), quiet in any::<bool>()) {
        let bytes = encode(command, if quiet { NO_REPLY } else { 0 }, &payload);
        let header = Header::decode(&bytes).unwrap().unwrap();
        prop_assert_eq!((header.command, header.bytes as usize), (command, bytes.len()));
        prop_assert_eq!(header.wants_reply(), !quiet);
        let request = Request::decode(&header, &bytes[HEADER_BYTES..], files).unwrap();
        let (again, back) = encoded_again(&request);
        prop_assert_eq!(again, command);
        match request {
            // Only the index is used.
            Request::IrqInfo(_) => prop_assert_eq!(&back, &payload[8..12]),
            Request::DeviceInfo => {}
            // An empty text has an end or none.
            Request::Version(_, "") => prop_assert_eq!(&back, &payload[..4]),
            // The booleans are not used, because there are no interrupts.
            Request::SetIrqs(_) => prop_assert_eq!(&back, &payload[..20]),
            _ => prop_assert_eq!(&back, &payload),
        }
    }

    #[test]
    fn what_is_cut_waits_for_the_rest((command, payload, _) in rights(), cut in 0usize..HEADER_BYTES) {
        let bytes = encode(command, 0, &payload);
        prop_assert_eq!(Header::decode(&bytes[..cut]), Ok(None));
    }

    /// A payload that is not as long as its command's is refused, with one error and nothing else.
    #[test]
    fn what_is_too_short_is_refused((command, payload, files) in rights(), cut in any::<prop::sample::Index>()) {
        let cut = &payload[..cut.index(payload.len() + 1)];
        let bytes = encode(command, 0, cut);
        let header = Header::decode(&bytes).unwrap().unwrap();
        let decoded = Request::decode(&header, cut, files);
        if cut.len() < payload.len() {
            // Without its text, a version is whole.
            let version = command == Command::VERSION && cut.len() == size_of::<Version>();
            prop_assert_eq!(decoded.is_ok(), version, "{:?}", decoded);
        }
    }

    #[test]
    fn no_mutation_breaks_it(
        (command, payload, files) in rights(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        more in vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = [encode(command, 0, &payload), more].concat();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        is_bounded(&bytes, files)?;
    }

    #[test]
    fn no_bytes_break_it(bytes in vec(any::<u8>(), 0..200), command in 0u16..20, size in 0u32..300, files in 0usize..20) {
        is_bounded(&bytes, files)?;
        let mut likely = bytes;
        if likely.len() >= HEADER_BYTES {
            likely[2..4].copy_from_slice(&command.to_ne_bytes());
            likely[4..8].copy_from_slice(&size.to_ne_bytes());
            likely[8..12].fill(0);
        }
        is_bounded(&likely, files)?;
    }
}

/// Decodes bytes. What is accepted keeps to the bounds that the connection relies on.
fn is_bounded(bytes: &[u8], files: usize) -> Result<(), TestCaseError> {
    let Ok(Some(header)) = Header::decode(bytes) else { return Ok(()) };
    prop_assert!((HEADER_BYTES..=MAX_MESSAGE).contains(&(header.bytes as usize)));
    let Some(payload) = bytes.get(HEADER_BYTES..header.bytes as usize) else { return Ok(()) };
    match Request::decode(&header, payload, files) {
        Ok(Request::Read(Access { offset, region, count })) => {
            prop_assert!(count <= MAX_DATA && region < 9 && offset.checked_add(count.into()).is_some());
        }
        Ok(Request::Write(Access { offset, region, count }, data)) => {
            prop_assert!(region < 9 && offset.checked_add(count.into()).is_some());
            prop_assert_eq!(data.len(), count as usize);
        }
        Ok(Request::RegionInfo { index, .. }) => prop_assert!(index < 9),
        Ok(Request::IrqInfo(index)) => prop_assert!(index < 5),
        Ok(Request::DmaMap(_)) => prop_assert!(files <= 1),
        Ok(Request::Version(_, text)) => {
            prop_assert!(!text.contains('\0') && text.len() < payload.len().max(1));
        }
        Ok(_) => {}
        Err(refused) => {
            prop_assert_eq!(refused.command, header.command);
            let reply = Header::read_from_bytes(header.error(refused.errno).as_bytes()).unwrap();
            prop_assert_eq!((reply.id, reply.bytes, reply.flags), (header.id, 16, 0x21));
            prop_assert!(reply.error > 0);
        }
    }
    Ok(())
}
