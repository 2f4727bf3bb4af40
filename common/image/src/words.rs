//! Splits PTX text into words, and finds its comments without splitting it.

use memchr::memmem::{self, Finder};

/// Iterates over the words and the punctuation of a text. Blanks and comments are skipped.
pub struct Tokens<'a> {
    /// Text that has not been split yet.
    pub rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// Skips a quoted text whose opening mark was the last token.
    pub fn skip_text(&mut self) {
        let end = memchr::memchr2(b'"', b'\n', self.rest).map_or(self.rest.len(), |at| at + 1);
        self.rest = &self.rest[end..];
    }

    /// Skips a quoted text as [`Self::skip_text`] does. Returns whether every compiler sees its end there: it
    /// ends on its line, and no backslash precedes the end.
    pub fn skip_plain_text(&mut self) -> bool {
        let text = self.rest;
        self.skip_text();
        let skipped = &text[..text.len() - self.rest.len()];
        skipped.ends_with(b"\"") && !skipped.ends_with(b"\\\"")
    }

    /// Returns the next part of a word, or a punctuation: a directive or a modifier that follows another word
    /// without a blank is a part of its own, as in `.visible.global`.
    pub fn next_part(&mut self) -> Option<&'a [u8]> {
        let text = self.rest;
        let token = self.next()?;
        let part = token.iter().skip(1).position(|byte| *byte == b'.').map_or(token.len(), |at| at + 1);
        self.rest = &text[text.len() - self.rest.len() - (token.len() - part)..];
        Some(&token[..part])
    }

    /// Skips what is left of a word whose first part was the last token.
    pub fn skip_word(&mut self) {
        let end = self.rest.iter().position(|byte| !is_word(*byte)).unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            self.rest = self.rest.trim_ascii_start();
            let Some(rest) = after_comment(self.rest) else { break };
            self.rest = rest;
        }
        let word = self.rest.iter().position(|byte| !is_word(*byte)).unwrap_or(self.rest.len());
        let length = word.max(1).min(self.rest.len());
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }
}

/// Returns what follows the comment with which a text starts, or `None` if it starts with no comment.
pub fn after_comment(text: &[u8]) -> Option<&[u8]> {
    let end = match text {
        [b'/', b'/', ..] => memchr::memchr(b'\n', text),
        // The star that opens the comment does not close it, too.
        [b'/', b'*', rest @ ..] => memmem::find(rest, b"*/").map(|at| at + 4),
        _ => return None,
    };
    Some(&text[end.unwrap_or(text.len())..])
}

/// Position of the next match of a search. The text is searched again only once the position has been passed,
/// so that several searches together read the text once for each.
pub struct Upcoming<F> {
    find: F,
    at: Option<usize>,
}

impl<F: Fn(&[u8]) -> Option<usize>> Upcoming<F> {
    /// Wraps a function that finds the first match in a text. Nothing has been searched yet.
    pub const fn new(find: F) -> Self {
        Self { find, at: None }
    }

    /// Returns the position of the first match at or after `start`, which must ascend from call to call, or
    /// the end of the text.
    pub fn after(&mut self, text: &[u8], start: usize) -> usize {
        match self.at {
            Some(at) if at >= start => at,
            _ => *self.at.insert((self.find)(&text[start..]).map_or(text.len(), |at| start + at)),
        }
    }
}

/// Returns whether a byte can be part of a word.
pub const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

/// Converts bytes to a string, with a replacement for what is not UTF-8.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Parses a decimal number. Returns `None` for anything else, and above 32 bits.
pub fn number(bytes: &[u8]) -> Option<u32> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Tells whether positions are within comments. The positions must ascend.
pub struct Comments<'a> {
    ptx: &'a [u8],
    open: Finder<'static>,
    close: Finder<'static>,
    /// End of the last block comment before the current position.
    passed: usize,
    /// Start and end of the next block comment.
    next: Option<(usize, usize)>,
}

impl<'a> Comments<'a> {
    /// Starts at the beginning of the text.
    pub fn new(ptx: &'a [u8]) -> Self {
        let mut new =
            Self { ptx, open: Finder::new(b"/*"), close: Finder::new(b"*/"), passed: 0, next: None };
        new.next = new.from(0);
        new
    }

    /// Finds the first block comment at or after a position.
    fn from(&self, start: usize) -> Option<(usize, usize)> {
        let mut place = start;
        loop {
            let at = place + self.open.find(self.ptx.get(place..)?)?;
            if !line_comment(self.ptx, at, start) {
                let rest = &self.ptx[at + 2..];
                let end = self.close.find(rest).map_or(self.ptx.len(), |close| at + 2 + close + 2);
                return Some((at, end));
            }
            place = at + 2;
        }
    }

    /// Returns whether `at` is within a comment.
    pub fn hide(&mut self, at: usize) -> bool {
        while let Some((_, end)) = self.next
            && end <= at
        {
            self.passed = end;
            self.next = self.from(end);
        }
        self.next.is_some_and(|(begin, _)| begin < at) || line_comment(self.ptx, at, self.passed)
    }
}

/// Returns whether `//` precedes `at` on its line, at or after `floor`.
fn line_comment(ptx: &[u8], at: usize, floor: usize) -> bool {
    let line = memchr::memrchr(b'\n', &ptx[floor..at]).map_or(floor, |end| floor + end + 1);
    memmem::find(&ptx[line..at], b"//").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_ends_where_it_is_closed() {
        for (text, rest) in [
            ("/* one */two", Some("two")),
            ("/**/two", Some("two")),
            ("/*/ one */two", Some("two")),
            ("/*/", Some("")),
            ("// one\ntwo", Some("\ntwo")),
            ("// one", Some("")),
            ("/ one */", None),
        ] {
            assert_eq!(after_comment(text.as_bytes()), rest.map(str::as_bytes), "{text}");
        }
    }
}
