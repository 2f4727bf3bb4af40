//! Tests the text form of PCI addresses: each address is parsed as it is displayed, and no other text is
//! accepted.

use proptest::prelude::*;
use vgpu_wire::pci::{AddressError, PciAddress};

proptest! {
    #[test]
    fn addresses_are_read_as_they_are_shown(domain: u32, bus: u8, device in 0u8..32, function in 0u8..8) {
        let address = PciAddress { domain, bus, device, function };
        prop_assert_eq!(address.to_string().parse(), Ok(address));
    }

    #[test]
    fn no_text_breaks_the_reader(text in "[0-9a-fx:. +\n-]{0,40}") {
        if let Ok(address) = text.parse::<PciAddress>() {
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,20}") {
        let _ = text.parse::<PciAddress>();
    }
}

#[test]
fn short_forms_and_nonsense_are_refused() {
    for bad in [
        "",
        "00:05.0",
        "0000:00:05",
        "0000:00:20.0",
        "0000:00:05.8",
        "0:0:0:0.0",
        "0000:100:05.0",
        "000:00:05.0",
        "000000000:00:05.0",
        "+0:00:05.0",
        "0x00:00:05.0",
        "0000:00:05.0 ",
        "::.",
    ] {
        assert_eq!(bad.parse::<PciAddress>(), Err(AddressError), "{bad}");
    }
    assert_eq!("10000:e1:1F.7".parse::<PciAddress>().unwrap().to_string(), "10000:e1:1f.7");
}
