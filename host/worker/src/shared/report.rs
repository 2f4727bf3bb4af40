//! Reports of a worker to the device's process. Each is one packet of the socket.
//!
//! The device's process believes none of it: kinds, lengths and texts are checked here, and numbers where
//! their range is known.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Length of the longest text in bytes.
pub(crate) const TEXT_MAX: usize = 1024;
/// Size of the longest packet in bytes.
pub(crate) const REPORT_MAX: usize = size_of::<FrameHead>() + TEXT_MAX;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FrameHead {
    kind: u32,
    /// Number of bytes of text that follow the head.
    text: u32,
    number: u64,
}

/// A report of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkerReport {
    /// The amount of device memory has changed. The status page has the new amount.
    Memory,
    /// The executor has worked. The status page has the time.
    Worked,
    /// Work that was asked about is complete. The status page has the number of its newest message.
    Complete,
    /// Nothing refers any more to the memory that was retired under this number.
    Retired(u64),
    /// The executor needs this number of bytes of device memory, and waits for the answer.
    Reserve(u64),
    /// The guest broke the contract with the message of this number.
    Violation(u64, String),
    /// The executor lost the session at the message of this number, or at no message if it is 0.
    Lost(u64, String),
}

/// Reason for which a packet is not a report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadReport {
    /// The packet is too short, too long, or differs from the length that it states.
    #[error("a packet of {0} bytes")]
    Length(usize),
    /// The packet has an unknown kind.
    #[error("a packet of kind {0}")]
    Kind(u32),
    /// The text is not UTF-8, or belongs to a kind without text.
    #[error("a packet whose text is not UTF-8 or does not belong to its kind")]
    Text,
}

impl WorkerReport {
    /// Encodes the report as a packet. A text that is too long is truncated.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, number, text) = match self {
            Self::Memory => (1, 0, ""),
            Self::Retired(id) => (2, *id, ""),
            Self::Violation(number, text) => (3, *number, text.as_str()),
            Self::Lost(number, text) => (4, *number, text.as_str()),
            Self::Worked => (5, 0, ""),
            Self::Complete => (6, 0, ""),
            Self::Reserve(bytes) => (7, *bytes, ""),
        };
        let text = &text.as_bytes()[..text.floor_char_boundary(TEXT_MAX)];
        let mut packet = FrameHead { kind, text: text.len() as u32, number }.as_bytes().to_vec();
        packet.extend_from_slice(text);
        packet
    }

    /// Decodes a packet. Control characters in the text are escaped, because the text is logged.
    pub(crate) fn decode(packet: &[u8]) -> Result<Self, BadReport> {
        let length = || BadReport::Length(packet.len());
        let (head, text) = FrameHead::read_from_prefix(packet).map_err(|_| length())?;
        if packet.len() > REPORT_MAX || text.len() != head.text as usize {
            return Err(length());
        }
        if !text.is_empty() && !matches!(head.kind, 3 | 4) {
            return Err(BadReport::Text);
        }
        let text = || {
            let text = std::str::from_utf8(text).map_err(|_| BadReport::Text)?;
            Ok(text
                .chars()
                .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
                .collect())
        };
        Ok(match head.kind {
            1 => Self::Memory,
            2 => Self::Retired(head.number),
            3 => Self::Violation(head.number, text()?),
            4 => Self::Lost(head.number, text()?),
            5 => Self::Worked,
            6 => Self::Complete,
            7 => Self::Reserve(head.number),
            kind => return Err(BadReport::Kind(kind)),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_packet_is_a_record_or_refused(packet in prop::collection::vec(any::<u8>(), 0..64), kind in 0u32..9) {
            let _ = WorkerReport::decode(&packet);
            // The same packet with a plausible head.
            let mut likely = kind.to_le_bytes().to_vec();
            likely.extend_from_slice(&(packet.len().saturating_sub(8) as u32).to_le_bytes());
            likely.extend_from_slice(&packet);
            if let Ok(record) = WorkerReport::decode(&likely) {
                prop_assert_eq!(WorkerReport::decode(&record.encode()).unwrap(), record);
            }
        }
    }

    #[test]
    fn records_arrive_as_they_were() {
        for record in [
            WorkerReport::Memory,
            WorkerReport::Worked,
            WorkerReport::Complete,
            WorkerReport::Retired(u64::MAX),
            WorkerReport::Reserve(2 << 20),
            WorkerReport::Violation(7, "segment 0x5 is not the session's".to_owned()),
            WorkerReport::Lost(0, String::new()),
        ] {
            assert_eq!(WorkerReport::decode(&record.encode()), Ok(record));
        }
        let long = WorkerReport::Lost(1, "ä".repeat(TEXT_MAX)).encode();
        assert_eq!(WorkerReport::decode(&long), Ok(WorkerReport::Lost(1, "ä".repeat(TEXT_MAX / 2))));
    }

    #[test]
    fn rubbish_is_named_and_texts_cannot_forge_lines() {
        let mut packet = WorkerReport::Lost(1, "a\nb\u{1b}[2J".to_owned()).encode();
        assert_eq!(WorkerReport::decode(&packet), Ok(WorkerReport::Lost(1, "a\\nb\\u{1b}[2J".to_owned())));
        packet[16] = 0xff;
        assert_eq!(WorkerReport::decode(&packet), Err(BadReport::Text));
        packet[0] = 2;
        assert_eq!(WorkerReport::decode(&packet), Err(BadReport::Text));
        packet.pop();
        assert_eq!(WorkerReport::decode(&packet), Err(BadReport::Length(packet.len())));
        let mut packet = WorkerReport::Memory.encode();
        packet[0] = 9;
        assert_eq!(WorkerReport::decode(&packet), Err(BadReport::Kind(9)));
        assert_eq!(WorkerReport::decode(&[]), Err(BadReport::Length(0)));
    }
}
