//! What a worker says to the device's process, a packet of the socket each. The device's process believes
//! none of it: kinds, lengths and texts are checked here, and numbers by whoever knows what they may be.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The longest text.
pub(crate) const TEXT_MAX: usize = 1024;
/// The longest packet.
pub(crate) const RECORD_MAX: usize = size_of::<Head>() + TEXT_MAX;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    kind: u32,
    /// Bytes of text that follow.
    text: u32,
    number: u64,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Device memory was taken or given back; how much there is says the board.
    Memory,
    /// The executor has worked; for how long says the board.
    Worked,
    /// Nothing refers any more to the memory that was retired by this number.
    Retired(u64),
    /// The guest broke the contract with the message of this number.
    Violation(u64, String),
    /// The executor lost the session at the message of this number; 0: at none.
    Lost(u64, String),
}

/// Why a packet is no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRecord {
    /// It is too short, too long, or not as long as it says.
    #[error("a packet of {0} bytes")]
    Length(usize),
    /// There is no such kind.
    #[error("a packet of kind {0}")]
    Kind(u32),
    /// Its text is not UTF-8, or is where there is none.
    #[error("a packet with a text that is none")]
    Text,
}

impl Record {
    /// The packet. A text that is too long is cut.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, number, text) = match self {
            Self::Memory => (1, 0, ""),
            Self::Retired(id) => (2, *id, ""),
            Self::Violation(number, text) => (3, *number, text.as_str()),
            Self::Lost(number, text) => (4, *number, text.as_str()),
            Self::Worked => (5, 0, ""),
        };
        let text = &text.as_bytes()[..text.floor_char_boundary(TEXT_MAX)];
        let mut packet = Head { kind, text: text.len() as u32, number }.as_bytes().to_vec();
        packet.extend_from_slice(text);
        packet
    }

    /// Reads a packet. Control characters of the text, which is for a log, are written as escapes.
    pub(crate) fn decode(packet: &[u8]) -> Result<Self, NoRecord> {
        let length = || NoRecord::Length(packet.len());
        let (head, text) = Head::read_from_prefix(packet).map_err(|_| length())?;
        if packet.len() > RECORD_MAX || text.len() != head.text as usize {
            return Err(length());
        }
        if !text.is_empty() && !matches!(head.kind, 3 | 4) {
            return Err(NoRecord::Text);
        }
        let text = || {
            let text = std::str::from_utf8(text).map_err(|_| NoRecord::Text)?;
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
            kind => return Err(NoRecord::Kind(kind)),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_packet_is_a_record_or_refused(packet in prop::collection::vec(any::<u8>(), 0..64), kind in 0u32..7) {
            let _ = Record::decode(&packet);
            // The same with a head that could be one.
            let mut likely = kind.to_le_bytes().to_vec();
            likely.extend_from_slice(&(packet.len().saturating_sub(8) as u32).to_le_bytes());
            likely.extend_from_slice(&packet);
            if let Ok(record) = Record::decode(&likely) {
                prop_assert_eq!(Record::decode(&record.encode()).unwrap(), record);
            }
        }
    }

    #[test]
    fn records_arrive_as_they_were() {
        for record in [
            Record::Memory,
            Record::Worked,
            Record::Retired(u64::MAX),
            Record::Violation(7, "segment 0x5 is not the session's".to_owned()),
            Record::Lost(0, String::new()),
        ] {
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
        let long = Record::Lost(1, "ä".repeat(TEXT_MAX)).encode();
        assert_eq!(Record::decode(&long), Ok(Record::Lost(1, "ä".repeat(TEXT_MAX / 2))));
    }

    #[test]
    fn rubbish_is_named_and_texts_cannot_forge_lines() {
        let mut packet = Record::Lost(1, "a\nb\u{1b}[2J".to_owned()).encode();
        assert_eq!(Record::decode(&packet), Ok(Record::Lost(1, "a\\nb\\u{1b}[2J".to_owned())));
        packet[16] = 0xff;
        assert_eq!(Record::decode(&packet), Err(NoRecord::Text));
        packet[0] = 2;
        assert_eq!(Record::decode(&packet), Err(NoRecord::Text));
        packet.pop();
        assert_eq!(Record::decode(&packet), Err(NoRecord::Length(packet.len())));
        let mut packet = Record::Memory.encode();
        packet[0] = 9;
        assert_eq!(Record::decode(&packet), Err(NoRecord::Kind(9)));
        assert_eq!(Record::decode(&[]), Err(NoRecord::Length(0)));
    }
}
