//! Parsers of sizes, compute capabilities and UUIDs in the form that command lines use.

/// Parses a size such as "8G", "8GiB", "8Gi" or "65536". Units are powers of 1024, so that "8GB", which means a
/// power of 1000 elsewhere, is none.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let prefix = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('i')).unwrap_or(&unit);
    let shift = match prefix {
        "" if unit.is_empty() => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Parses a compute capability such as "6.1".
#[must_use]
pub fn parse_compute_capability(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Parses a UUID, with or without "GPU-" and hyphens.
#[must_use]
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u32> = text
        .strip_prefix("GPU-")
        .unwrap_or(text)
        .chars()
        .filter(|&c| c != '-')
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect();
    if digits.len() == 32 { bytes.try_into().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        assert_eq!(parse_bytes("8G"), Some(8 << 30));
        assert_eq!(parse_bytes("512MiB"), Some(512 << 20));
        assert_eq!(parse_bytes("64ki"), Some(64 << 10));
        assert_eq!(parse_bytes("65536"), Some(65536));
        for bad in
            ["", "G", "8X", "-1", "8GG", "8GB", "8iB", "8i", "8Gii", "99999999999999999999", "99999999T"]
        {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn uuids_and_capabilities_are_read() {
        let uuid = parse_uuid("GPU-00112233-4455-6677-8899-aabbccddeeff").unwrap();
        assert_eq!(uuid[..4], [0, 0x11, 0x22, 0x33]);
        assert_eq!(uuid[15], 0xff);
        assert_eq!(parse_uuid("0011"), None);
        assert_eq!(parse_uuid("GPU-zz112233-4455-6677-8899-aabbccddeeff"), None);
        assert_eq!(parse_compute_capability("12.0"), Some((12, 0)));
        assert_eq!(parse_compute_capability("12"), None);
    }
}
