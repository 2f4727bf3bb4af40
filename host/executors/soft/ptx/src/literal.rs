//! Numeric constants of the text: integers, floats and doubles (PTX ISA, section "Constants").

use crate::ir::Ty;

/// Numeric constant of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Literal {
    /// An integer of 64 bits, modulo 2^64.
    Integer(u64),
    /// The bits of a float, as in `0f3F800000`.
    Single(u32),
    /// The bits of a double, as in `0d3FF0000000000000`, or of a decimal fraction.
    Double(u64),
}

impl Literal {
    /// Parses a constant. Returns `None` if the word is not one.
    pub fn parse(word: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(word).ok()?;
        if !text.as_bytes().first()?.is_ascii_digit() {
            return None;
        }
        let hexadecimal = |digits: &str, count: usize| {
            (digits.len() == count && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
                .then(|| u64::from_str_radix(digits, 16).ok())
                .flatten()
        };
        match text.as_bytes().get(..2) {
            Some(b"0f" | b"0F") => return hexadecimal(&text[2..], 8).map(|bits| Self::Single(bits as u32)),
            Some(b"0d" | b"0D") => return hexadecimal(&text[2..], 16).map(Self::Double),
            _ => {}
        }
        let digits = text.strip_suffix('U').unwrap_or(text);
        let (digits, radix) = match digits.as_bytes() {
            [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
            [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
            [b'0', _, ..] if !digits.contains(['.', 'e', 'E']) => (&digits[1..], 8),
            _ => (digits, 10),
        };
        // A sign is a separate token, but the standard library would accept one here.
        if digits.starts_with(['+', '-']) {
            return None;
        }
        if let Ok(value) = u64::from_str_radix(digits, radix) {
            return Some(Self::Integer(value));
        }
        let fraction = radix == 10
            && text.contains(['.', 'e', 'E'])
            && text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
        fraction.then(|| text.parse::<f64>().ok().map(|value| Self::Double(value.to_bits()))).flatten()
    }

    /// Returns the constant with its sign changed.
    pub fn negated(self) -> Self {
        match self {
            Self::Integer(value) => Self::Integer(value.wrapping_neg()),
            Self::Single(bits) => Self::Single(bits ^ (1 << 31)),
            Self::Double(bits) => Self::Double(bits ^ (1 << 63)),
        }
    }

    /// Returns the constant's bits as an operand of this type, or `None` if the type has no such constant.
    /// Bits above the width are zero. Integers are truncated to the width, as the ISA defines.
    pub fn bits(self, ty: Ty) -> Option<u64> {
        match (self, ty) {
            (_, Ty::Pred) => None,
            (Self::Integer(value), _) if !ty.float() => Some(value & mask(ty)),
            (Self::Single(bits), Ty::F32 | Ty::B32 | Ty::U32 | Ty::S32) => Some(bits as u64),
            (Self::Single(bits), Ty::F64) => Some(f64::from(f32::from_bits(bits)).to_bits()),
            (Self::Double(bits), Ty::F64 | Ty::B64 | Ty::U64 | Ty::S64) => Some(bits),
            (Self::Double(bits), Ty::F32) => Some((f64::from_bits(bits) as f32).to_bits() as u64),
            _ => None,
        }
    }
}

/// Returns a mask of the bits of a value of the type.
fn mask(ty: Ty) -> u64 {
    u64::MAX >> (64 - 8 * ty.bytes().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms() {
        use Literal::{Double, Integer, Single};
        for (text, value) in [
            ("0", Some(Integer(0))),
            ("42U", Some(Integer(42))),
            ("0x1F", Some(Integer(31))),
            ("0b101", Some(Integer(5))),
            ("017", Some(Integer(15))),
            ("18446744073709551615", Some(Integer(u64::MAX))),
            ("18446744073709551616", None),
            ("0f3F800000", Some(Single(0x3F80_0000))),
            ("0f3F80000", None),
            ("0dFFF0000000000000", Some(Double(0xFFF0_0000_0000_0000))),
            ("1.5", Some(Double(1.5_f64.to_bits()))),
            ("1e3", Some(Double(1000_f64.to_bits()))),
            ("0.5", Some(Double(0.5_f64.to_bits()))),
            ("08", None),
            ("0x", None),
            ("1x", None),
            ("x1", None),
            ("", None),
        ] {
            assert_eq!(Literal::parse(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn widths() {
        assert_eq!(Literal::Integer(5).negated().bits(Ty::S16), Some(0xFFFB));
        assert_eq!(Literal::Integer(300).bits(Ty::U8), Some(44));
        assert_eq!(Literal::Integer(1).bits(Ty::F32), None);
        assert_eq!(Literal::Single(0x3F80_0000).negated().bits(Ty::B32), Some(0xBF80_0000));
        assert_eq!(Literal::Single(0x3F80_0000).bits(Ty::F64), Some(1_f64.to_bits()));
        assert_eq!(Literal::Double(1_f64.to_bits()).bits(Ty::F32), Some(0x3F80_0000));
        assert_eq!(Literal::Single(0).bits(Ty::S64), None);
    }

    proptest! {
        #[test]
        fn any_word_is_read_without_a_panic(word in prop::collection::vec(any::<u8>(), 0..20)) {
            let _ = Literal::parse(&word);
        }

        #[test]
        fn integers_come_back(value: u64) {
            prop_assert_eq!(Literal::parse(value.to_string().as_bytes()), Some(Literal::Integer(value)));
            prop_assert_eq!(Literal::parse(format!("0x{value:x}").as_bytes()), Some(Literal::Integer(value)));
        }
    }
}
