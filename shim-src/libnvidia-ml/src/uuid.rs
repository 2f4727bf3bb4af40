//! UUIDs as text: `GPU-` and 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12.

use std::fmt::Write as _;

const PREFIX: &str = "GPU-";
/// Indices of the bytes that follow a hyphen.
const GROUPS: [usize; 4] = [4, 6, 8, 10];

/// Returns the text of a UUID.
pub fn text(uuid: &[u8; 16]) -> String {
    let mut text = String::from(PREFIX);
    for (position, byte) in uuid.iter().enumerate() {
        if GROUPS.contains(&position) {
            text.push('-');
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Parses a UUID. Upper-case digits are accepted.
pub fn parse(text: &[u8]) -> Option<[u8; 16]> {
    let mut digits = text.strip_prefix(PREFIX.as_bytes())?.iter();
    let mut uuid = [0; 16];
    for (position, byte) in uuid.iter_mut().enumerate() {
        if GROUPS.contains(&position) && digits.next() != Some(&b'-') {
            return None;
        }
        let mut digit = || char::from(*digits.next()?).to_digit(16);
        *byte = (digit()? << 4 | digit()?) as u8;
    }
    digits.next().is_none().then_some(uuid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn example() {
        let uuid = [0xab, 0xcd, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xff];
        assert_eq!(text(&uuid), "GPU-abcdef01-0203-0405-0607-08090a0b0cff");
        assert_eq!(parse(b"GPU-ABCDEF01-0203-0405-0607-08090A0B0CFF"), Some(uuid));
        for wrong in
            ["", "GPU-", "abcdef01-0203-0405-0607-08090a0b0cff", "GPU-abcdef01-0203-0405-0607-08090a0b0cf"]
        {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(parse(b"GPU-abcdef01-0203-0405-0607-08090a0b0cff0"), None);
        assert_eq!(parse(b"GPU-abcdef0102030405060708090a0b0cff"), None);
    }

    proptest! {
        #[test]
        fn every_uuid_survives(uuid: [u8; 16]) {
            prop_assert_eq!(parse(text(&uuid).as_bytes()), Some(uuid));
        }

        #[test]
        fn a_text_is_refused_or_a_uuids_own(bytes: Vec<u8>) {
            if let Some(uuid) = parse(&bytes) {
                prop_assert_eq!(text(&uuid).into_bytes(), bytes.to_ascii_lowercase());
            }
        }

        #[test]
        fn one_wrong_character_is_noticed(uuid: [u8; 16], position in 0usize..40, wrong in "[g-z/:]") {
            let mut bytes = text(&uuid).into_bytes();
            bytes[position] = wrong.as_bytes()[0];
            prop_assert_eq!(parse(&bytes), None);
        }
    }
}
