//! Tests ranges of device addresses, and the words of the facts that hold them.

use vgpu_wire::AddressRange;
use vgpu_wire::facts::DeviceFacts;
use zerocopy::{FromZeros, IntoBytes};

#[test]
fn facts_carry_a_range_at_the_stated_offsets() {
    let mut facts = DeviceFacts::new_zeroed();
    assert_eq!(facts.addresses(), None);
    let range = AddressRange { base: 0x4000_0000_0000, bytes: 1 << 40 };
    facts.set_addresses(range);
    assert_eq!(facts.addresses(), Some(range));
    let bytes = facts.as_bytes();
    assert_eq!(bytes[384..392], range.base.to_le_bytes());
    assert_eq!(bytes[392..400], range.bytes.to_le_bytes());
    assert!(bytes[..384].iter().chain(&bytes[400..]).all(|&byte| byte == 0));
    assert!(range.is_possible());
    assert_eq!(range.to_string(), "0x400000000000 to 0x40ffffffffff");
}

#[test]
fn ranges_know_what_lies_in_them() {
    let range = AddressRange { base: 0x1000, bytes: 0x2000 };
    assert!(range.holds(0x1000, 0x2000) && range.holds(0x2fff, 1) && range.holds(0x3000, 0));
    for (address, bytes) in [(0xfff, 1), (0x1000, 0x2001), (0x3000, 1), (0x2000, u64::MAX), (u64::MAX, 1)] {
        assert!(!range.holds(address, bytes), "{address:#x} {bytes:#x}");
    }
    let other = |base, bytes| AddressRange { base, bytes };
    assert!(
        range.overlaps(&other(0x2fff, 1)) && range.overlaps(&other(0, u64::MAX)) && range.overlaps(&range)
    );
    assert!(!range.overlaps(&other(0x3000, 1)) && !range.overlaps(&other(0, 0x1000)));
}

#[test]
fn what_no_process_can_reserve_is_told() {
    for (base, bytes) in [
        (0, 0x1000),
        (0x1000, 0),
        (0x1001, 0x1000),
        (0x1000, 0x1001),
        (1 << 47, 0x1000),
        (0x1000, 1 << 47),
        (0x1000, u64::MAX - 0xfff),
        (u64::MAX - 0xfff, 0x1000),
    ] {
        assert!(!AddressRange { base, bytes }.is_possible(), "{base:#x} {bytes:#x}");
    }
    assert!(AddressRange { base: (1 << 47) - 0x1000, bytes: 0x1000 }.is_possible());
}
