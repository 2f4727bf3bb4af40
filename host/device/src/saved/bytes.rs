//! Bytes in the saved state, as hexadecimal digits.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that JSON carries as a string of hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HexBytes(pub Vec<u8>);

const DIGITS: &[u8; 16] = b"0123456789abcdef";

impl Serialize for HexBytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
        let text: String = self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        to.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Digits)
    }
}

struct Digits;

impl Visitor<'_> for Digits {
    type Value = HexBytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an even number of hexadecimal digits")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<HexBytes, E> {
        let (pairs, []) = text.as_bytes().as_chunks() else {
            return Err(E::invalid_length(text.len(), &self));
        };
        let nibble = |digit: u8| DIGITS.iter().position(|known| *known == digit).map(|value| value as u8);
        let byte = |&[high, low]: &[u8; 2]| Some(nibble(high)? << 4 | nibble(low)?);
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        bytes.map(HexBytes).ok_or_else(|| E::custom("a digit is not hexadecimal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_other_text_is_refused() {
        let all = HexBytes((0..=255).collect());
        let text = serde_json::to_string(&all).unwrap();
        assert!(text.starts_with("\"000102") && text.ends_with("fdfeff\""));
        assert_eq!(serde_json::from_str::<HexBytes>(&text).unwrap(), all);
        for wrong in ["\"0\"", "\"0g\"", "\"0A\"", "\"ää\"", "7"] {
            assert!(serde_json::from_str::<HexBytes>(wrong).is_err(), "{wrong}");
        }
    }
}
