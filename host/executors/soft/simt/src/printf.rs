//! Formats of `printf`: parses conversions and renders arguments as C does.

use std::fmt::Write as _;

/// Maximum width and precision. Larger ones are clamped.
pub(crate) const WIDEST: usize = 1024;

/// A conversion in a format, such as `%-08.3lld`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversion {
    pub(crate) left: bool,
    plus: bool,
    space: bool,
    zero: bool,
    alternate: bool,
    pub(crate) width: Option<usize>,
    pub(crate) precision: Option<usize>,
    /// Size of an integer argument in bytes.
    pub(crate) bytes: u32,
    pub(crate) letter: u8,
}

/// A `*` in a conversion, which takes the width or the precision from an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Star {
    Width,
    Precision,
}

/// Parses the text after a `%`. Returns the conversion, its `*`s in their order, and the rest of the text.
pub(crate) fn parse(text: &[u8]) -> (Conversion, [Option<Star>; 2], &[u8]) {
    let mut conversion = Conversion { bytes: 4, ..Conversion::default() };
    let mut stars = [None; 2];
    let mut at = 0;
    let byte = |at: usize| text.get(at).copied().unwrap_or(0);
    loop {
        match byte(at) {
            b'-' => conversion.left = true,
            b'+' => conversion.plus = true,
            b' ' => conversion.space = true,
            b'0' => conversion.zero = true,
            b'#' => conversion.alternate = true,
            _ => break,
        }
        at += 1;
    }
    let number = |at: &mut usize| {
        let mut value = None;
        while byte(*at).is_ascii_digit() {
            value = Some((value.unwrap_or(0) * 10 + usize::from(byte(*at) - b'0')).min(WIDEST));
            *at += 1;
        }
        value
    };
    if byte(at) == b'*' {
        stars[0] = Some(Star::Width);
        at += 1;
    } else {
        conversion.width = number(&mut at);
    }
    if byte(at) == b'.' {
        at += 1;
        if byte(at) == b'*' {
            stars[1] = Some(Star::Precision);
            at += 1;
        } else {
            conversion.precision = Some(number(&mut at).unwrap_or(0));
        }
    }
    loop {
        match byte(at) {
            // long, long long, size_t, ptrdiff_t, intmax_t: all of 64 bits
            b'l' | b'z' | b't' | b'j' => conversion.bytes = 8,
            b'h' => conversion.bytes = if conversion.bytes == 2 { 1 } else { 2 },
            _ => break,
        }
        at += 1;
    }
    conversion.letter = byte(at);
    (conversion, stars, &text[(at + 1).min(text.len())..])
}

impl Conversion {
    /// Pads a text to the conversion's width. Zeros go after the first `sign` bytes, if the format asks for
    /// them and `zeros` allows it.
    pub(crate) fn pad(&self, mut text: Vec<u8>, sign: usize, zeros: bool) -> Vec<u8> {
        let missing = self.width.unwrap_or(0).saturating_sub(text.len());
        if self.left {
            text.resize(text.len() + missing, b' ');
        } else if self.zero && zeros {
            text.splice(sign..sign, std::iter::repeat_n(b'0', missing));
        } else {
            text.splice(0..0, std::iter::repeat_n(b' ', missing));
        }
        text
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    /// Renders an integer, given as its bits, as the conversion's letter, precision and width demand.
    pub(crate) fn integer(&self, bits: u64) -> String {
        let unused = 64 - 8 * self.bytes;
        let signed = (bits << unused).cast_signed() >> unused;
        let unsigned = bits << unused >> unused;
        let (prefix, digits) = match self.letter {
            b'd' | b'i' => (self.sign(signed < 0), signed.unsigned_abs().to_string()),
            b'x' => (if self.alternate && unsigned != 0 { "0x" } else { "" }, format!("{unsigned:x}")),
            b'X' => (if self.alternate && unsigned != 0 { "0X" } else { "" }, format!("{unsigned:X}")),
            b'o' => (if self.alternate { "0" } else { "" }, format!("{unsigned:o}")),
            _ => ("", unsigned.to_string()),
        };
        let digits = match self.precision {
            Some(0) if unsigned == 0 => String::new(),
            Some(precision) => format!("{digits:0>precision$}"),
            None => digits,
        };
        let text = format!("{prefix}{digits}").into_bytes();
        String::from_utf8(self.pad(text, prefix.len(), self.precision.is_none())).unwrap_or_default()
    }

    /// Renders a floating-point number, as the conversion's letter, precision and width demand.
    pub(crate) fn float(&self, value: f64) -> Vec<u8> {
        let sign = self.sign(value.is_sign_negative());
        let magnitude = value.abs();
        let mut text = sign.to_owned();
        if value.is_finite() {
            match self.letter.to_ascii_lowercase() {
                b'f' => text.push_str(&fixed(magnitude, self.precision.unwrap_or(6), self.alternate)),
                b'e' => text.push_str(&scientific(magnitude, self.precision.unwrap_or(6), self.alternate)),
                b'a' => text.push_str(&hexadecimal(magnitude, self.precision)),
                _ => text.push_str(&general(magnitude, self.precision.unwrap_or(6), self.alternate)),
            }
        } else {
            text.push_str(if value.is_nan() { "nan" } else { "inf" });
        }
        if self.letter.is_ascii_uppercase() {
            text.make_ascii_uppercase();
        }
        self.pad(text.into_bytes(), sign.len(), value.is_finite())
    }
}

fn fixed(value: f64, precision: usize, point: bool) -> String {
    let dot = if point && precision == 0 { "." } else { "" };
    format!("{value:.precision$}{dot}")
}

/// Renders `%e` as C does, whose exponent has a sign and at least two digits.
fn scientific(value: f64, precision: usize, point: bool) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let dot = if point && precision == 0 { "." } else { "" };
    format!("{digits}{dot}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn general(value: f64, precision: usize, keep_zeros: bool) -> String {
    let precision = precision.max(1);
    let text = format!("{value:.*e}", precision - 1);
    let exponent: i32 = text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let trim = |digits: &str| {
        if keep_zeros || !digits.contains('.') {
            digits.to_owned()
        } else {
            digits.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    };
    if exponent < -4 || exponent >= precision as i32 {
        let text = scientific(value, precision - 1, false);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
        return format!("{}e{exponent}", trim(digits));
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    trim(&format!("{value:.decimals$}"))
}

fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let bits = value.to_bits();
    let (mut fraction, biased) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
    let mut whole = u64::from(biased != 0);
    let exponent = if bits == 0 { 0 } else { biased.max(1) - 1023 };
    let mut digits = 13;
    if let Some(precision) = precision.filter(|&precision| precision < 13) {
        let drop = 52 - 4 * precision as u32;
        let significand = whole << 52 | fraction;
        let (kept, rest, half) = (significand >> drop, significand & ((1 << drop) - 1), 1 << (drop - 1));
        let rounded = (kept + u64::from(rest > half || rest == half && kept & 1 != 0)) << drop;
        whole = rounded >> 52;
        fraction = rounded & ((1 << 52) - 1);
        digits = precision;
    }
    let mut text = format!("{fraction:013x}");
    text.truncate(digits);
    match precision {
        None => text.truncate(text.trim_end_matches('0').len()),
        Some(precision) => text.extend(std::iter::repeat_n('0', precision.saturating_sub(13))),
    }
    let mut out = format!("0x{whole}");
    if !text.is_empty() {
        let _ = write!(out, ".{text}");
    }
    let _ = write!(out, "p{exponent:+}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(format: &str, bits: u64) -> String {
        parse(&format.as_bytes()[1..]).0.integer(bits)
    }

    fn float(format: &str, value: f64) -> String {
        String::from_utf8(parse(&format.as_bytes()[1..]).0.float(value)).unwrap()
    }

    #[test]
    fn integers_are_as_c_prints_them() {
        assert_eq!(integer("%d", 0xffff_ffff), "-1");
        assert_eq!(integer("%u", 0xffff_ffff), "4294967295");
        assert_eq!(integer("%lld", u64::MAX), "-1");
        assert_eq!(integer("%lu", u64::MAX), "18446744073709551615");
        assert_eq!(integer("%#x", 255), "0xff");
        assert_eq!(integer("%08X", 0xbeef), "0000BEEF");
        assert_eq!(integer("%-6d|", 42), "42    ");
        assert_eq!(integer("%+05d", 42), "+0042");
        assert_eq!(integer("%5.3d", 7), "  007");
        assert_eq!(integer("%hhd", 0x1ff), "-1");
    }

    #[test]
    fn floats_are_as_c_prints_them() {
        assert_eq!(float("%f", 1.5), "1.500000");
        assert_eq!(float("%8.2f", -2.53125), "   -2.53");
        assert_eq!(float("%08.2f", -2.53125), "-0002.53");
        assert_eq!(float("%e", 12345.678), "1.234568e+04");
        assert_eq!(float("%g", 0.0001), "0.0001");
        assert_eq!(float("%g", 1e-5), "1e-05");
        assert_eq!(float("%g", 123_456_789.0), "1.23457e+08");
        assert_eq!(float("%.3g", 2.0), "2");
        assert_eq!(float("%F", f64::INFINITY), "INF");
        assert_eq!(float("%a", 1.0), "0x1p+0");
    }
}
