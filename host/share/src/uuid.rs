//! The UUID of a GPU, as NVIDIA's tools write it.

use std::fmt;
use std::str::FromStr;

/// UUID of a GPU. As text it is what `nvidia-smi -L` prints, such as
/// `GPU-00112233-4455-6677-8899-aabbccddeeff`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuUuid(pub [u8; 16]);

impl GpuUuid {
    /// Returns the UUID as two words of shared memory.
    pub(crate) fn words(self) -> [u64; 2] {
        let value = u128::from_le_bytes(self.0);
        [value as u64, (value >> 64) as u64]
    }

    /// Returns the UUID that two words of shared memory hold.
    pub(crate) fn from_words([low, high]: [u64; 2]) -> Self {
        Self((u128::from(high) << 64 | u128::from(low)).to_le_bytes())
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 0 | 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// The text is not a UUID in the form in which it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a GPU's UUID, such as GPU-00112233-4455-6677-8899-aabbccddeeff")]
pub struct NotUuid;

impl FromStr for GpuUuid {
    type Err = NotUuid;

    fn from_str(text: &str) -> Result<Self, NotUuid> {
        let digits: String = text.strip_prefix("GPU-").ok_or(NotUuid)?.split('-').collect();
        let value = u128::from_str_radix(&digits, 16).map_err(|_| NotUuid)?;
        let uuid = Self(value.to_be_bytes());
        // One GPU has one name, so that it has one file.
        if uuid.to_string() == text { Ok(uuid) } else { Err(NotUuid) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_one_spelling() {
        let text = "GPU-00112233-4455-6677-8899-aabbccddeeff";
        let uuid: GpuUuid = text.parse().unwrap();
        assert_eq!(GpuUuid::from_words(uuid.words()), uuid);
        assert_eq!((uuid.to_string().as_str(), uuid.0[0], uuid.0[15]), (text, 0, 0xff));
        for other in ["00112233-4455-6677-8899-aabbccddeeff", &text.to_uppercase(), &text[..39], "GPU-+1", ""]
        {
            assert_eq!(other.parse::<GpuUuid>(), Err(NotUuid), "{other}");
        }
    }
}
