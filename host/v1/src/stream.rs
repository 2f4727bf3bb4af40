//! Frames on a stream socket, reassembled from the bytes that were received.

use vgpu_wire::v1::frame::{FrameError, Header};
use zerocopy::FromBytes;

/// Size of a frame's header in bytes.
const HEAD: usize = size_of::<Header>();

/// A frame's header and payload, and the bytes received after them.
type Next<'a> = (Header, &'a [u8], &'a [u8]);

/// Received bytes that have not been taken as frames. Memory is allocated for received bytes, not for the
/// length that a header states.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Number of those bytes that have been returned as frames.
    taken: usize,
}

impl Frames {
    /// Appends bytes that were received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the header and payload of the next whole frame. After an error the bytes are not frames, and
    /// nothing of the stream can be used.
    pub fn next_frame(&mut self) -> Result<Option<(Header, &[u8])>, FrameError> {
        Ok(self.next_of_all()?.map(|(header, payload, _)| (header, payload)))
    }

    /// Returns the next frame as [`Frames::next_frame`] does, with the bytes received after it.
    pub(super) fn next_of_all(&mut self) -> Result<Option<Next<'_>>, FrameError> {
        let Ok((header, rest)) = Header::read_from_prefix(&self.bytes[self.taken..]) else { return Ok(None) };
        header.check()?;
        let length = header.bytes.get() as usize;
        if rest.len() < length {
            return Ok(None);
        }
        let start = self.taken + HEAD;
        self.taken = start + length;
        let (payload, behind) = self.bytes[start..].split_at(length);
        Ok(Some((header, payload, behind)))
    }

    /// Drops all received bytes.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;

    proptest! {
        /// The same frames result however the stream is cut into pieces.
        #[test]
        fn frames_come_out_as_they_went_in(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6),
            cuts in prop::collection::vec(1_usize..200, 1..40),
        ) {
            let mut stream = Vec::new();
            for (index, payload) in payloads.iter().enumerate() {
                stream.extend_from_slice(Header::new(0x10, 3, index as u32, payload.len() as u32).as_bytes());
                stream.extend_from_slice(payload);
            }
            let (mut frames, mut found, mut rest) = (Frames::default(), Vec::new(), &stream[..]);
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                rest = later;
                frames.push(now);
                while let Some((header, payload)) = frames.next_frame().unwrap() {
                    prop_assert_eq!(header.request_id.get() as usize, found.len());
                    found.push(payload.to_vec());
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, payloads);
        }

        /// No bytes cause a panic, and every returned frame consists of received bytes.
        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut frames = Frames::default();
            frames.push(&bytes);
            while let Ok(Some((header, payload))) = frames.next_frame() {
                prop_assert_eq!(payload.len(), header.bytes.get() as usize);
            }
        }
    }

    #[test]
    fn what_promises_too_much_is_no_frame() {
        let mut frames = Frames::default();
        frames.push(Header::new(0x10, 0, 0, (8 << 20) + 89).as_bytes());
        assert_eq!(frames.next_frame(), Err(FrameError::Length((8 << 20) + 89)));
        frames.clear();
        frames.push(Header::new(0x10, 0, 0, (8 << 20) + 88).as_bytes());
        assert_eq!(frames.next_frame(), Ok(None));
    }
}
