//! Formats the facts that a device announces for people.

/// Decodes a text of the facts, which ends with a zero byte.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Formats a UUID as CUDA and NVML print it.
pub fn uuid(bytes: &[u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(*bytes));
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Formats a version of CUDA from the number of `cuDriverGetVersion`, which is 1000 * major + 10 * minor.
pub fn cuda_version(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_as_they_are_written() {
        assert_eq!(text(b"a name\0rest"), "a name");
        assert_eq!(text(b"no end"), "no end");
        let bytes = std::array::from_fn(|index| index as u8);
        assert_eq!(uuid(&bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
        assert_eq!((cuda_version(13_000).as_str(), cuda_version(12_080).as_str()), ("13.0", "12.8"));
    }
}
