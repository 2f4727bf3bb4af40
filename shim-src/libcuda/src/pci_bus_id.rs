//! PCI addresses as `cuDeviceGetByPCIBusId` accepts them.

use vgpu_transport::PciAddress;

/// Parses a PCI address with or without its domain and its function.
pub fn parse(text: &str) -> Option<PciAddress> {
    let (text, function) = match text.split_once('.') {
        Some((text, function)) => (text, hex(function, 7)?),
        None => (text, 0),
    };
    let mut parts = text.rsplit(':');
    let device = hex(parts.next()?, 31)?;
    let bus = hex(parts.next()?, 255)?;
    let domain = parts.next().map_or(Some(0), |domain| hex(domain, u32::MAX))?;
    parts.next().is_none().then_some(PciAddress {
        domain,
        bus: bus as u8,
        device: device as u8,
        function: function as u8,
    })
}

fn hex(text: &str, most: u32) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(text, 16).ok().filter(|&value| value <= most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_in_all_their_forms() {
        let expected = PciAddress { domain: 0, bus: 0x1a, device: 5, function: 0 };
        for text in ["0000:1a:05.0", "0:1A:5.0", "1a:05.0", "1a:05", "0000:1a:05"] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for text in
            ["", ":", "1a", "0000:1a:05.8", "0000:1a:20.0", "0000:100:05.0", "x:1a:05.0", "0:0:0:0.0", "+1:2"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_found(domain: u32, bus: u8, device in 0_u8..32, function in 0_u8..8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(parse(&address.to_string()), Some(address));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,24}") {
            let _ = parse(&text);
        }
    }
}
