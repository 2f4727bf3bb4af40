//! Frames on a byte stream: length (32 bits, little endian, of what follows), kind (a byte), payload.

use std::io::{self, Read, Write};

/// Largest length of a frame's payload in bytes.
pub const PAYLOAD_MAX: usize = 1 << 20;

/// A message between agent and host, as it is framed on the serial port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Kind of the message; `message.rs` defines the values.
    pub kind: u8,
    /// Content of the message.
    pub payload: Vec<u8>,
}

/// Writes a frame with a single write.
///
/// # Errors
/// Fails if the payload is too long or the stream fails.
pub fn write(stream: &mut impl Write, kind: u8, payload: &[u8]) -> io::Result<()> {
    if payload.len() > PAYLOAD_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::with_capacity(5 + payload.len());
    bytes.extend_from_slice(&(payload.len() as u32 + 1).to_le_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(payload);
    stream.write_all(&bytes)?;
    stream.flush()
}

/// Reads a frame. Returns `None` if the stream ends before one begins.
///
/// # Errors
/// Fails if the stream ends within a frame, if the frame is empty or too long, or if the stream fails.
pub fn read(stream: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut length = [0; 4];
    let mut have = 0;
    while have < length.len() {
        match stream.read(&mut length[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let length = u32::from_le_bytes(length) as usize;
    if length == 0 || length > PAYLOAD_MAX + 1 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    let mut payload = vec![0; length - 1];
    stream.read_exact(&mut payload)?;
    Ok(Some(Frame { kind: kind[0], payload }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A stream that returns one byte per read.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            self.0 = rest;
            buffer[0] = *first;
            Ok(1)
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(frames in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..200)), 0..5)) {
            let mut bytes = Vec::new();
            for (kind, payload) in &frames {
                write(&mut bytes, *kind, payload).unwrap();
            }
            let mut stream = Slow(&bytes);
            for (kind, payload) in frames {
                prop_assert_eq!(read(&mut stream).unwrap(), Some(Frame { kind, payload }));
            }
            prop_assert_eq!(read(&mut stream).unwrap(), None);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut stream = &bytes[..];
            while let Ok(Some(frame)) = read(&mut stream) {
                prop_assert!(frame.payload.len() < bytes.len());
            }
        }
    }

    #[test]
    fn a_cut_frame_is_no_end() {
        let mut bytes = Vec::new();
        write(&mut bytes, 1, b"abc").unwrap();
        for cut in 1..bytes.len() {
            assert_eq!(read(&mut &bytes[..cut]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{cut}");
        }
        assert!(write(&mut Vec::new(), 1, &vec![0; PAYLOAD_MAX + 1]).is_err());
        assert!(read(&mut &u32::MAX.to_le_bytes()[..]).is_err());
    }
}
