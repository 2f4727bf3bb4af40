//! Text that arrives in pieces of bytes, across which characters may be split.

/// Decodes the bytes of tokens to UTF-8 text.
#[derive(Debug, Default)]
pub struct Text {
    /// Start of a character whose remaining bytes have not arrived.
    held: Vec<u8>,
}

impl Text {
    /// Appends a piece and returns the text completed by it. Bytes that are not UTF-8 become U+FFFD.
    pub fn push(&mut self, piece: &[u8]) -> String {
        self.held.extend_from_slice(piece);
        let complete = self.held.len() - unfinished(&self.held);
        let rest = self.held.split_off(complete);
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held = rest;
        text
    }

    /// Returns the bytes that never formed a complete character, as text.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }
}

/// Returns the number of bytes at the end that start a character which more bytes may complete.
fn unfinished(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(_) => return 0,
            Err(error) => match error.error_len() {
                Some(wrong) => rest = &rest[error.valid_up_to() + wrong..],
                None => return rest.len() - error.valid_up_to(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_character_comes_with_its_last_byte() {
        let mut text = Text::default();
        let bytes = "a✅b".as_bytes();
        assert_eq!(text.push(&bytes[..2]), "a");
        assert_eq!(text.push(&bytes[2..3]), "");
        assert_eq!(text.push(&bytes[3..]), "✅b");
        assert_eq!(text.finish(), "");
    }

    #[test]
    fn what_is_no_text_is_marked() {
        let mut text = Text::default();
        assert_eq!(text.push(&[b'a', 0xff, b'b', 0xe2]), "a\u{fffd}b");
        assert_eq!(text.finish(), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn cutting_changes_nothing(whole in "\\PC{0,20}", cuts in prop::collection::vec(0usize..80, 0..8)) {
            let bytes = whole.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let (mut text, mut joined, mut start) = (Text::default(), String::new(), 0);
            for cut in cuts {
                joined += &text.push(&bytes[start..cut]);
                start = cut;
            }
            prop_assert_eq!(joined + &text.finish(), whole);
        }

        #[test]
        fn any_bytes_do(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 0..8)) {
            let mut text = Text::default();
            let joined: String = pieces.iter().map(|piece| text.push(piece)).collect();
            prop_assert_eq!(joined + &text.finish(), String::from_utf8_lossy(&pieces.concat()).into_owned());
        }
    }
}
