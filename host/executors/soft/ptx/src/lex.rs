//! The lexer: splits a text into words and marks.
//!
//! A word consists of letters, digits and `_ $ % .`: names, numbers, directives and whole instructions with
//! their modifiers (also `ld.global.L1::no_allocate.f32`). Directives that follow each other without a blank
//! are words of their own (`.reg.b32`). Everything else is a mark of one byte. Comments and blanks are
//! skipped.

use crate::effort::Effort;
use crate::error::{PtxError, line_at};

/// A token of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'t> {
    /// A name, number, directive or instruction.
    Word(&'t [u8]),
    /// A string, without its quotes.
    Quoted(&'t [u8]),
    /// A mark: one byte of punctuation.
    Mark(u8),
    /// The end of the text, or a null byte.
    End,
}

impl Token<'_> {
    /// Formats the token for an error.
    fn show(self) -> String {
        match self {
            Self::Word(word) => format!("`{}`", String::from_utf8_lossy(&word[..word.len().min(100)])),
            Self::Quoted(_) => "a string".to_owned(),
            Self::Mark(mark) => format!("`{}`", mark.escape_ascii()),
            Self::End => "the end of the text".to_owned(),
        }
    }
}

/// Indexed by byte: whether it can be part of a word.
static WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let b = byte as u8;
        table[byte] = b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'%' | b'.');
        byte += 1;
    }
    table
};

/// Offset in the text and line number, for errors.
pub type TextPosition = (usize, u32);

/// Position in a text, with the token there.
#[derive(Clone, Debug)]
pub struct Tokens<'t> {
    text: &'t [u8],
    /// Offset of the start of `token`. Its end is in `end`.
    start: usize,
    end: usize,
    /// The line of `token`, from 1.
    line: u32,
    token: Token<'t>,
    effort: &'t Effort,
}

impl<'t> Tokens<'t> {
    /// Makes a lexer that starts at byte `at` of the text, which is on line `line`.
    pub fn new(text: &'t [u8], at: usize, line: u32, effort: &'t Effort) -> Result<Self, PtxError> {
        let mut tokens = Self { text, start: at, end: at, line, token: Token::End, effort };
        tokens.next()?;
        Ok(tokens)
    }

    /// Returns the effort against which the tokens are counted.
    pub const fn effort(&self) -> &'t Effort {
        self.effort
    }

    /// Returns a lexer for the same text that starts at another position.
    pub fn elsewhere(&self, (at, line): TextPosition) -> Result<Self, PtxError> {
        Self::new(self.text, at, line, self.effort)
    }

    /// Returns the next token without taking it.
    pub fn peek(&self) -> Token<'t> {
        self.token
    }

    /// Returns the line number of the next token, from 1.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Returns the offset in bytes of the end of the next token.
    pub fn after(&self) -> usize {
        self.end
    }

    /// Returns the offset in bytes and the line of the start of the next token.
    pub fn place(&self) -> TextPosition {
        (self.start, self.line)
    }

    /// Takes the next token. Fails if the one after it is malformed, or if the effort is spent.
    pub fn next(&mut self) -> Result<Token<'t>, PtxError> {
        self.effort.spend(1)?;
        let token = self.token;
        let blanks = self.skip_blanks()?;
        self.start = blanks;
        let rest = &self.text[blanks..];
        (self.token, self.end) = match rest.first() {
            // A text may be a C string, which ends with a null byte.
            None | Some(0) => (Token::End, blanks),
            Some(&byte) if WORD[byte as usize] => {
                let length = word_length(rest);
                (Token::Word(&rest[..length]), blanks + length)
            }
            Some(b'"') => {
                let length =
                    memchr::memchr2(b'"', b'\n', &rest[1..]).filter(|&length| rest[length + 1] == b'"');
                let Some(length) = length else {
                    self.token = Token::Mark(b'"');
                    return Err(self.error("a string has no end"));
                };
                (Token::Quoted(&rest[1..=length]), blanks + length + 2)
            }
            Some(&mark) => (Token::Mark(mark), blanks + 1),
        };
        Ok(token)
    }

    /// Returns the offset of the first byte after the current token that is neither blank nor comment.
    fn skip_blanks(&mut self) -> Result<usize, PtxError> {
        let mut at = self.end;
        loop {
            match self.text.get(at) {
                Some(b'\n') => {
                    self.line += 1;
                    at += 1;
                }
                Some(b' ' | b'\t' | b'\r') => at += 1,
                Some(b'/') => match self.text.get(at + 1) {
                    Some(b'/') => {
                        at = memchr::memchr(b'\n', &self.text[at..]).map_or(self.text.len(), |end| at + end);
                    }
                    Some(b'*') => {
                        let body = &self.text[at + 2..];
                        let Some(length) = memchr::memmem::find(body, b"*/") else {
                            self.start = at;
                            self.token = Token::Mark(b'/');
                            return Err(self.error("a comment has no end"));
                        };
                        self.line += memchr::memchr_iter(b'\n', &body[..length]).count() as u32;
                        at += length + 4;
                    }
                    _ => return Ok(at),
                },
                _ => return Ok(at),
            }
        }
    }

    /// Takes the next token if it is this mark. Returns whether it was.
    pub fn accept(&mut self, mark: u8) -> Result<bool, PtxError> {
        let is = self.token == Token::Mark(mark);
        if is {
            self.next()?;
        }
        Ok(is)
    }

    /// Takes the next token, which must be this mark.
    pub fn expect(&mut self, mark: u8) -> Result<(), PtxError> {
        if self.accept(mark)? { Ok(()) } else { Err(self.expected(&format!("`{}`", char::from(mark)))) }
    }

    /// Takes the next token if it is this word. Returns whether it was.
    pub fn accept_word(&mut self, word: &[u8]) -> Result<bool, PtxError> {
        let is = self.token == Token::Word(word);
        if is {
            self.next()?;
        }
        Ok(is)
    }

    /// Takes the next token, which must be a word. `what` names the expected kind in the error.
    pub fn word(&mut self, what: &str) -> Result<&'t [u8], PtxError> {
        let Token::Word(word) = self.token else {
            return Err(self.expected(what));
        };
        self.next()?;
        Ok(word)
    }

    /// Skips the tokens on the line of the next token.
    pub fn skip_line(&mut self) -> Result<(), PtxError> {
        self.end =
            memchr::memchr(b'\n', &self.text[self.start..]).map_or(self.text.len(), |end| self.start + end);
        self.next().map(|_| ())
    }

    /// Takes all tokens up to and including the next one that is this mark.
    pub fn skip_past(&mut self, mark: u8) -> Result<(), PtxError> {
        while !self.accept(mark)? {
            if self.next()? == Token::End {
                return Err(self.expected(&format!("`{}`", char::from(mark))));
            }
        }
        Ok(())
    }

    /// Skips from a name to its body. Returns whether there is a body: then its `{` is the next token,
    /// otherwise the final `;` has been taken. `what` names the body in the error.
    pub fn skip_to_body(&mut self, what: &str) -> Result<bool, PtxError> {
        loop {
            match self.token {
                Token::Mark(b'{') => return Ok(true),
                Token::Mark(b';') => return self.next().map(|_| false),
                Token::End => return Err(self.expected(what)),
                _ => self.next()?,
            };
        }
    }

    /// Skips a body in braces, whatever it contains. The next token must be the `{`.
    pub fn skip_braces(&mut self) -> Result<(), PtxError> {
        if self.token != Token::Mark(b'{') {
            return Err(self.expected("`{`"));
        }
        let Some(end) = braces(self.text, self.start) else {
            return Err(self.error("a `{` has no `}`"));
        };
        self.line += memchr::memchr_iter(b'\n', &self.text[self.start..end]).count() as u32;
        self.end = end;
        self.next().map(|_| ())
    }

    /// Makes an error at the next token.
    pub fn error(&self, message: impl Into<String>) -> PtxError {
        PtxError::Syntax { line: self.line, text: line_at(self.text, self.start), message: message.into() }
    }

    /// Makes the error that the next token is not the expected one.
    pub fn expected(&self, what: &str) -> PtxError {
        self.error(format!("expected {what}, found {}", self.token.show()))
    }

    /// Makes an error at the given position.
    pub fn error_at(&self, (at, line): TextPosition, message: impl Into<String>) -> PtxError {
        PtxError::Syntax { line, text: line_at(self.text, at), message: message.into() }
    }

    /// Makes the error that a name is not declared.
    pub fn undeclared(&self, (at, line): TextPosition, name: &[u8]) -> PtxError {
        let name = String::from_utf8_lossy(name).into_owned();
        PtxError::Undeclared { line, text: line_at(self.text, at), name }
    }

    /// Makes the error that there is no such instruction. The position is the start of the statement.
    pub fn unsupported(&self, (at, line): TextPosition, spelling: impl Into<String>) -> PtxError {
        PtxError::Unsupported { line, text: line_at(self.text, at), spelling: spelling.into() }
    }

    /// Makes the error that a number exceeds a limit of the language or of every GPU.
    pub fn limit(&self, what: &'static str, most: u64) -> PtxError {
        PtxError::Limit { line: self.line, text: line_at(self.text, self.start), what, most }
    }

    /// Makes the error that a number exceeds a limit of this device.
    pub fn too_large(&self, what: &'static str, most: u64) -> PtxError {
        PtxError::TooLarge { line: self.line, text: line_at(self.text, self.start), what, most }
    }
}

/// Returns the length of the word at the start of the text, in bytes.
fn word_length(text: &[u8]) -> usize {
    if text[0] == b'.' {
        let end = |&byte: &u8| byte == b'.' || !WORD[byte as usize];
        return text[1..].iter().position(end).map_or(text.len(), |length| 1 + length);
    }
    let run =
        |from: usize| text[from..].iter().position(|&byte| !WORD[byte as usize]).unwrap_or(text.len() - from);
    let mut length = run(0);
    loop {
        let rest = &text[length..];
        // `L1::no_allocate` in an instruction; a label has one colon.
        let scope = rest.len() > 2 && rest[..2] == *b"::" && WORD[rest[2] as usize];
        // The sign in `1.0e-5` is part of the word. The hexadecimal forms may end in `e` too, and have no
        // sign.
        let exponent = matches!(rest, [b'+' | b'-', digit, ..] if digit.is_ascii_digit())
            && matches!(text[length - 1], b'e' | b'E')
            && text[0].is_ascii_digit()
            && text[1..length - 1].iter().all(|&byte| byte.is_ascii_digit() || byte == b'.');
        if scope {
            length += 2 + run(length + 2);
        } else if exponent {
            length += 1 + run(length + 1);
        } else {
            return length;
        }
    }
}

/// Returns the offset of the end of the body in braces that starts at `open`. Braces in comments and strings
/// do not count.
fn braces(text: &[u8], open: usize) -> Option<usize> {
    /// Number of bytes that one iteration examines.
    const STEP: usize = 32;
    let special = |byte: u8| matches!(byte, b'{' | b'}' | b'/' | b'"');
    let mut depth = 0_usize;
    let mut at = open;
    loop {
        // Most chunks of a body have none of the four bytes. The compiler vectorises this loop.
        while let Some(chunk) = text.get(at..at + STEP) {
            if chunk.iter().fold(false, |any, &byte| any | special(byte)) {
                break;
            }
            at += STEP;
        }
        at += text[at..].iter().position(|&byte| special(byte))?;
        match text[at] {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b'"' => at += 1 + memchr::memchr2(b'"', b'\n', &text[at + 1..])?,
            _ if text.get(at + 1) == Some(&b'/') => at += memchr::memchr(b'\n', &text[at..])?,
            _ if text.get(at + 1) == Some(&b'*') => at += 3 + memchr::memmem::find(&text[at + 2..], b"*/")?,
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupt;
    use proptest::prelude::*;

    fn all(text: &str) -> Vec<Token<'_>> {
        let effort = Box::leak(Box::new(Effort::unlimited(Interrupt::default())));
        let mut tokens = Tokens::new(text.as_bytes(), 0, 1, effort).unwrap();
        let mut all = Vec::new();
        while tokens.peek() != Token::End {
            all.push(tokens.next().unwrap());
        }
        all
    }

    #[test]
    fn words_and_marks() {
        use Token::{Mark, Quoted, Word};
        assert_eq!(
            all("$L_1: ld.global.L1::no_allocate.u32 /* a\n */ %r1, [%rd2+-4]; // x"),
            [
                Word(b"$L_1"),
                Mark(b':'),
                Word(b"ld.global.L1::no_allocate.u32"),
                Word(b"%r1"),
                Mark(b','),
                Mark(b'['),
                Word(b"%rd2"),
                Mark(b'+'),
                Mark(b'-'),
                Word(b"4"),
                Mark(b']'),
                Mark(b';'),
            ]
        );
        assert_eq!(all(".pragma \"no//unroll\";"), [Word(b".pragma"), Quoted(b"no//unroll"), Mark(b';')]);
        assert_eq!(all("{.reg.b32 %r1"), [Mark(b'{'), Word(b".reg"), Word(b".b32"), Word(b"%r1")]);
        assert_eq!(all("1.5e-3 0f3E-1"), [Word(b"1.5e-3"), Word(b"0f3E"), Mark(b'-'), Word(b"1")]);
    }

    #[test]
    fn lines_are_counted() {
        let effort = Effort::unlimited(Interrupt::default());
        let mut tokens = Tokens::new(b"\n a /*\n\n*/ {\n\"}\" // }\n {} }\n b", 0, 1, &effort).unwrap();
        assert_eq!((tokens.next().unwrap(), tokens.line()), (Token::Word(b"a"), 4));
        tokens.skip_braces().unwrap();
        assert_eq!((tokens.peek(), tokens.line()), (Token::Word(b"b"), 7));
    }

    #[test]
    fn errors_say_where() {
        let effort = Effort::unlimited(Interrupt::default());
        let mut tokens = Tokens::new(b"a;\n  b c ;\n", 0, 1, &effort).unwrap();
        tokens.next().unwrap();
        tokens.next().unwrap();
        let error = tokens.expect(b',').unwrap_err();
        assert_eq!(error.to_string(), "line 2: `b c ;`: expected `,`, found `b`");
    }

    /// Does the same as `braces`, one byte at a time, for comparison.
    fn braces_slowly(text: &[u8]) -> Option<usize> {
        let mut depth = 0;
        let mut at = 0;
        while at < text.len() {
            match text[at] {
                b'{' => depth += 1,
                b'}' if depth == 1 => return Some(at + 1),
                b'}' => depth -= 1,
                b'"' => {
                    at += 1;
                    while !matches!(text.get(at)?, b'"' | b'\n') {
                        at += 1;
                    }
                }
                b'/' if text.get(at + 1) == Some(&b'/') => {
                    while *text.get(at)? != b'\n' {
                        at += 1;
                    }
                }
                b'/' if text.get(at + 1) == Some(&b'*') => {
                    at += 2;
                    while text.get(at..at + 2)? != b"*/" {
                        at += 1;
                    }
                    at += 1;
                }
                _ => {}
            }
            at += 1;
        }
        None
    }

    proptest! {
        #[test]
        fn braces_are_found(body in prop::collection::vec(prop_oneof![
            8 => Just(&b"a"[..]), 2 => Just(&b"{"[..]), 3 => Just(&b"}"[..]), 1 => Just(&b"//"[..]),
            1 => Just(&b"/*"[..]), 1 => Just(&b"*/"[..]), 2 => Just(&b"\n"[..]), 1 => Just(&b"\""[..]),
            1 => Just(&b"0123456789012345678901234567890123456789"[..]),
        ], 0..60)) {
            let text = [b"{".as_slice(), &body.concat()].concat();
            prop_assert_eq!(braces(&text, 0), braces_slowly(&text));
        }
    }
}
