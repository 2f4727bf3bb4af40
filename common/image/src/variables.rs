//! Reads from PTX text how much device memory its variables take. A cubin states it in its sections
//! ([`crate::cubin::variable_bytes`]).
//!
//! Source: NVIDIA's PTX ISA, "Variables": a declaration has a space, attributes, an alignment, a type, and
//! names with the dimensions of arrays and initial values.

use memchr::memmem::Finder;

use crate::ptx::type_bytes;
use crate::words::{Tokens, Upcoming, is_word, text};

/// Why the size of a text's variables cannot be determined. The compiler may read the text in another way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// The text states the size of this variable in an unknown form.
    #[error("the size of variable {0} cannot be told")]
    UnknownSize(String),
    /// A quoted text may end at more than one position, so that what follows it is unclear.
    #[error("a quoted text does not end on its line, or ends with a backslash")]
    UnclearQuote,
}

/// Returns an upper bound of the number of bytes of device memory that the variables of a text take: those of
/// the spaces `.global` and `.const` that it defines.
pub fn variable_bytes(ptx: &[u8]) -> Result<u64, VariableError> {
    let mut marks = Marks::new(ptx);
    variable_bytes_at(ptx, |at| marks.after(at))
}

/// Counts bytes as [`variable_bytes`] does. `next_mark` returns the first mark at or after a position.
fn variable_bytes_at(ptx: &[u8], mut next_mark: impl FnMut(usize) -> usize) -> Result<u64, VariableError> {
    let mut sum = 0_u64;
    let mut tokens = Tokens { rest: ptx };
    // The list of names after `.target` has no end mark, and a directive may follow a name without a blank.
    let (mut before, mut in_target): (&[u8], _) = (b"", false);
    // Most statements are instructions, which declare nothing. Only statements with a mark are split into
    // words.
    let mut mark = None;
    loop {
        let at = ptx.len() - tokens.rest.len();
        if !in_target && mark.is_none_or(|mark| mark < at) {
            let next = next_mark(at);
            if let Some(end) = memchr::memrchr3(b';', b'{', b'}', &ptx[at..next]) {
                (before, tokens.rest) = (b"", &ptx[at + end + 1..]);
            }
            mark = Some(next);
        }
        let Some(part) = tokens.next_part() else { break };
        match part {
            b"\"" => skip_text(&mut tokens)?,
            // In a list of parameters the space is what a pointer points to, and another module defines an
            // external variable.
            b".global" | b".const" if !matches!(before, b".ptr" | b".extern") => {
                sum = sum.saturating_add(variables(&mut tokens)?);
            }
            // A name that starts with a letter is that of an instruction, and its modifiers belong to it.
            _ if part[0].is_ascii_alphabetic() && !in_target => tokens.skip_word(),
            _ => {}
        }
        in_target = part == b".target" || in_target && (part == b"," || matches!(before, b"," | b".target"));
        before = part;
    }
    Ok(sum)
}

/// Positions in a text where a variable may be declared, or after which the text is read in another way: the
/// start of a quoted text or of a comment, the spaces of variables, and `.target`.
struct Marks<'a> {
    ptx: &'a [u8],
    kinds: [Upcoming<Find>; 4],
}

/// Finds the first mark of one kind in a text.
type Find = Box<dyn Fn(&[u8]) -> Option<usize>>;

impl<'a> Marks<'a> {
    fn new(ptx: &'a [u8]) -> Self {
        let word = |word: &str| -> Find {
            let finder = Finder::new(word).into_owned();
            Box::new(move |text| finder.find(text))
        };
        let quote = Box::new(|text: &[u8]| memchr::memchr2(b'"', b'/', text));
        let kinds: [Find; 4] = [quote, word(".global"), word(".const"), word(".target")];
        Self { ptx, kinds: kinds.map(Upcoming::new) }
    }

    /// Returns the first mark at or after a position between two parts, or the end of the text. A modifier of
    /// an instruction, as in `ld.global`, is no mark.
    fn after(&mut self, mut at: usize) -> usize {
        loop {
            let next = self.kinds.iter_mut().map(|kind| kind.after(self.ptx, at)).min();
            let mark = next.unwrap_or(self.ptx.len());
            let before = &self.ptx[at..mark];
            let word =
                before.iter().rposition(|byte| !is_word(*byte)).map_or(before, |end| &before[end + 1..]);
            if self.ptx.get(mark) != Some(&b'.') || !word.first().is_some_and(u8::is_ascii_alphabetic) {
                return mark;
            }
            let mut name = Tokens { rest: &self.ptx[mark..] };
            name.skip_word();
            at = self.ptx.len() - name.rest.len();
        }
    }
}

/// Skips a quoted text whose opening mark was the last token.
fn skip_text(tokens: &mut Tokens<'_>) -> Result<(), VariableError> {
    if tokens.skip_plain_text() { Ok(()) } else { Err(VariableError::UnclearQuote) }
}

/// Returns the number of bytes of the variables of one declaration, whose space was the last part.
fn variables(tokens: &mut Tokens<'_>) -> Result<u64, VariableError> {
    let unknown = |name: &[u8]| VariableError::UnknownSize(text(name));
    let (mut align, mut element, mut vector) = (1, None, 1);
    let mut name: &[u8] = b"";
    while let Some(token) = tokens.next_part() {
        match token {
            b".v2" => vector = 2,
            b".v4" => vector = 4,
            b".align" => align = tokens.next_part().and_then(constant).ok_or_else(|| unknown(token))?,
            _ if token[0] == b'.' => element = element.or(type_bytes(token)),
            _ if is_word(token[0]) && !token[0].is_ascii_digit() => {
                name = token;
                break;
            }
            // The numbers and the punctuation of `.attribute(...)`.
            _ => {}
        }
    }
    let element = element.ok_or_else(|| unknown(name))?;
    let (element, align) = (u64::from(element) * vector, align.max(u64::from(element) * vector));
    let mut sum = 0_u64;
    let mut token = tokens.next_part();
    loop {
        let (mut bytes, mut open) = (element, false);
        while let Some(bracket @ (b"[" | b"<")) = token {
            let size = tokens.next_part().ok_or_else(|| unknown(name))?;
            if (bracket, size) == (b"[", b"]") {
                open = true;
            } else {
                bytes =
                    constant(size).and_then(|size| bytes.checked_mul(size)).ok_or_else(|| unknown(name))?;
                tokens.next_part().filter(|end| matches!(end, [b']' | b'>'])).ok_or_else(|| unknown(name))?;
            }
            token = tokens.next_part();
        }
        let mut rows = 1;
        if token == Some(b"=") {
            (rows, token) = skip_value(tokens)?;
        }
        let bytes = if open { bytes.checked_mul(rows) } else { Some(bytes) };
        let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(align));
        sum = bytes.and_then(|bytes| sum.checked_add(bytes)).ok_or_else(|| unknown(name))?;
        match token {
            Some(b",") => name = tokens.next_part().unwrap_or_default(),
            Some(b";") => return Ok(sum),
            _ => return Err(unknown(name)),
        }
        token = tokens.next_part();
    }
}

/// Skips the initial value of a variable. Returns the number of its outermost elements, and the token after
/// it.
fn skip_value<'a>(tokens: &mut Tokens<'a>) -> Result<(u64, Option<&'a [u8]>), VariableError> {
    let (mut depth, mut rows) = (0_u32, 1);
    while let Some(token) = tokens.next_part() {
        match token {
            b"{" | b"(" => depth += 1,
            b"}" | b")" => depth = depth.saturating_sub(1),
            b"," if depth == 1 => rows += 1,
            b"," | b";" if depth == 0 => return Ok((rows, Some(token))),
            b"\"" => skip_text(tokens)?,
            _ => {}
        }
    }
    Ok((rows, None))
}

/// Parses an integer constant of PTX.
fn constant(word: &[u8]) -> Option<u64> {
    let word = std::str::from_utf8(word).ok()?.trim_end_matches('U');
    let (digits, radix) = match word.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&word[2..], 16),
        [b'0', b'b' | b'B', ..] => (&word[2..], 2),
        [b'0', _, ..] => (&word[1..], 8),
        _ => (word, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn variables_are_counted() {
        let of = |rest: &str| variable_bytes(format!(".version 8.0\n.target sm_80\n{rest}").as_bytes());
        for (text, bytes) in [
            ("", 0),
            (".visible .global .align 4 .b8 table[16] = {1, 2};", 16),
            (".global .align 8 .b8 odd[17];\n.const .f32 scale = 0f3F800000;", 24 + 4),
            (".visible .global .u64 grid[2][3] = {{1, 2, 3}, {4, 5, 6}};", 48),
            (".global .attribute(.unified(1, 2)) .v4 .f32 a, b[0x10], c[4U];", 16 + 256 + 64),
            (".global .b32 rows[][4] = {{1}, {2}, {3, 4}};.global .u8 word[] = {1,2,3};", 48 + 3),
            (".global .u64 many<10>; .global .texref picture;", 80 + 8),
            (".extern .global .align 1 .b8 other[];", 0),
            ("// .global .b8 a[9];\n/* .const .b8 b[9]; */ .global .b8 c[9];", 9),
            (".entry k(.param .u64 .ptr .global .align 16 p) { ld.global.u32 %r, [p]; ret; }", 0),
            (".global .u64 address = generic(table) + 4;", 8),
            (".global .b8 huge[1099511627776];", 1 << 40),
            ("@%p ld.global.nc.L2::128B.v4.f32 {%a}, [%b]; cp.async.cg.shared.global [%c], [%d], 16;", 0),
            (".file 1 \"a.global.b8\"\n.loc 1 2 3\nst.global.u32 [%a], %b;", 0),
            (".func f(.param .u64 .ptr.global.align 16 p);", 0),
            // Texts that hide a variable from a reader that splits them in another way than the compiler.
            ("// .extern\n.global .b8 v[9];", 9),
            ("// .ptr\n.global .b8 v[9];", 9),
            ("/* .extern */ .const .b8 v[9];", 9),
            (".file 1 \"/*\"\n.global .b8 v[9];", 9),
            (".file 1 \"/*\"\n.global .b8 v[9];\n.file 2 \"*/\"", 9),
            (".pragma \"//\"; .global .b8 v[9];", 9),
            (".pragma \"x\".global .b8 v[9];", 9),
            (".visible.global.align 4 .b8 v[9];", 12),
            (".visible.const.v2.f32 v;", 8),
            (".extern.global .b8 v[9]; .weak.global .b8 w[9];", 9),
            ("}.global .b8 v[9];", 9),
            ("label:.global .b8 v[9];", 9),
            (".address_size 64.global .b8 v[9];", 9),
            (".target sm_80.global .b8 v[9];", 9),
            (".target sm_80, debug.const .b8 v[9];", 9),
        ] {
            assert_eq!(of(text), Ok(bytes), "{text}");
        }
        for wrong in [
            ".global .b8 x[1<<30];",
            ".global .b8 x[4",
            ".global x[4];",
            ".global .b64 x[4611686018427387904];",
            ".global .b8 x[4] .b8",
            ".global",
            ".pragma \"a\n\" .global .b8 v[9];",
            ".pragma \"a\\\" .global .b8 v[9]; .pragma \"b\";",
            ".pragma \"a",
            ".global .b8 x[4] = \"a\\\"; .global .b8 y[4] = \"\";",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn variables_are_found_without_reading_all_words(
            text in "(\\.global|\\.const|\\.target|\\.extern|\\.ptr|\\.b8 v|\\.x|ld|%r|sm_8|1|\\[8\\]|\\{|\\}|;|,|;|\"|/|//|/\\*|\\*/| | |\n){0,30}"
        ) {
            // With a mark everywhere, every word is read.
            prop_assert_eq!(variable_bytes(text.as_bytes()), variable_bytes_at(text.as_bytes(), |at| at));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "(\\.global|\\.const|\\.align|\\.u32|k|[0-9]|\\{|\\}|\\[|\\]|<|>|=|,|;|\"| |\n){0,40}") {
            let _ = variable_bytes(text.as_bytes());
        }
    }
}
