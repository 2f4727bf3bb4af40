//! Reads from PTX text what the guest needs: version and target, and the parameter lists of the kernels.
//! Compiling the text is the host's work.
//!
//! Source: NVIDIA's PTX ISA, "Kernel Function Parameters": parameters follow each other, each aligned to its
//! own `.align` or to its type; the `.align` behind `.ptr` is that of what is pointed to.

use memchr::memmem::{self, Finder};

use crate::layout::{Layout, LayoutError};
use crate::words::{Comments, Tokens, Upcoming, after_comment, is_word, number, text};

/// The directives at the head of a PTX text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Major and minor number of `.version`.
    pub version: (u32, u32),
    /// Number in `.target sm_NUMBER`.
    pub sm: u32,
    /// Which other architectures can run the code.
    pub specific: Specific,
}

/// Which architectures can run the code, among those that are not older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Specific {
    /// The architecture and all later ones.
    No,
    /// The family of the architecture, as `sm_100f`.
    Family,
    /// The architecture alone, as `sm_90a`.
    Architecture,
}

/// Driver versions, in the form of `cuDriverGetVersion`, and the newest PTX that each compiles.
///
/// Source: "PTX ISA", release history.
const VERSIONS: &[(u32, (u32, u32))] = &[
    (11_000, (7, 0)),
    (11_010, (7, 1)),
    (11_020, (7, 2)),
    (11_030, (7, 3)),
    (11_040, (7, 4)),
    (11_050, (7, 5)),
    (11_060, (7, 6)),
    (11_070, (7, 7)),
    (11_080, (7, 8)),
    (12_000, (8, 0)),
    (12_010, (8, 1)),
    (12_020, (8, 2)),
    (12_030, (8, 3)),
    (12_040, (8, 4)),
    (12_050, (8, 5)),
    (12_070, (8, 6)),
    (12_080, (8, 7)),
    (12_090, (8, 8)),
    (13_000, (9, 0)),
    (13_010, (9, 1)),
    (13_020, (9, 2)),
    (13_030, (9, 3)),
    (13_040, (9, 4)),
    (13_050, (9, 5)),
];

/// Returns the newest PTX version that a driver with this CUDA version compiles. A driver compiles the
/// versions of its own release and older ones, even if it serves newer runtimes.
pub fn newest(driver: u32) -> (u32, u32) {
    let known = VERSIONS.iter().rev().find(|(version, _)| *version <= driver);
    known.map_or(VERSIONS[0].1, |&(_, version)| version)
}

/// Why a text is not usable PTX.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PtxError {
    /// The text does not start with `.version`, so it is not PTX.
    #[error("the text is no PTX: it does not begin with .version")]
    Begin,
    /// The token after the head is no directive, or braces do not match.
    #[error("the text is no whole PTX: {0}")]
    Outline(&'static str),
    /// `.version` or `.target` is missing at the start.
    #[error("the text has no {0} directive")]
    Head(&'static str),
    /// A parameter list is malformed.
    #[error("failed to read the parameters of kernel {kernel}: {what}")]
    Params {
        /// Mangled name of the kernel.
        kernel: String,
        /// What the parser expected.
        what: &'static str,
    },
    /// The parameters of a kernel break a rule of their layout.
    #[error("kernel {kernel} has unusable parameters")]
    Layout {
        /// Mangled name of the kernel.
        kernel: String,
        /// Rule of the layout that the parameters break.
        #[source]
        source: LayoutError,
    },
}

/// Reads the head of a complete text. Checks that the token after it, if there is one, starts a directive,
/// and that braces match, so that a text which is not PTX is rejected before its kernels are compiled.
pub fn outline(ptx: &[u8]) -> Result<Head, PtxError> {
    let mut tokens = Tokens { rest: ptx };
    let head = read_head(&mut tokens)?;
    let mut token = tokens.next();
    // The target may have options: `.target sm_61, texmode_independent`.
    while token == Some(b",") {
        tokens.next();
        token = tokens.next();
    }
    if !token.is_none_or(|token| matches!(token[0], b'.' | b'@')) {
        return Err(PtxError::Outline("what follows its head is no directive"));
    }
    match_braces(tokens.rest)?;
    Ok(head)
}

/// Checks that the braces of a text match, outside of comments and quoted texts.
fn match_braces(text: &[u8]) -> Result<(), PtxError> {
    let mut mark = Upcoming::new(|text| memchr::memchr3(b'{', b'}', b'"', text));
    let mut slash = Upcoming::new(|text| memchr::memchr(b'/', text));
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        let place = mark.after(text, at).min(slash.after(text, at));
        let Some((byte, mut rest)) = text[place..].split_first() else { break };
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth =
                    depth.checked_sub(1).ok_or(PtxError::Outline("a brace closes that was not opened"))?;
            }
            b'"' => {
                let mut quoted = Tokens { rest };
                quoted.skip_text();
                rest = quoted.rest;
            }
            _ => rest = after_comment(&text[place..]).unwrap_or(rest),
        }
        at = text.len() - rest.len();
    }
    if depth == 0 { Ok(()) } else { Err(PtxError::Outline("it ends within braces")) }
}

/// Reads `.version` and `.target`, which are the first two directives.
pub fn head(ptx: &[u8]) -> Result<Head, PtxError> {
    read_head(&mut Tokens { rest: ptx })
}

fn read_head(tokens: &mut Tokens<'_>) -> Result<Head, PtxError> {
    let version = || PtxError::Head(".version");
    if tokens.next() != Some(b".version") {
        return Err(PtxError::Begin);
    }
    let mut parts = tokens.next().ok_or_else(version)?.split(|&byte| byte == b'.');
    let mut part = || parts.next().and_then(number);
    let version = part().zip(part()).ok_or_else(version)?;
    let target = || PtxError::Head(".target");
    if tokens.next() != Some(b".target") {
        return Err(target());
    }
    let name = tokens.next().and_then(|name| name.strip_prefix(b"sm_")).ok_or_else(target)?;
    let (name, specific) = match name.split_last() {
        Some((b'a', rest)) => (rest, Specific::Architecture),
        Some((b'f', rest)) => (rest, Specific::Family),
        _ => (name, Specific::No),
    };
    Ok(Head { version, sm: number(name).ok_or_else(target)?, specific })
}

/// Returns the kernels of a text with their parameters.
pub fn kernels(ptx: &[u8]) -> Result<Vec<(String, Layout)>, PtxError> {
    let mut kernels = Vec::new();
    let mut comments = Comments::new(ptx);
    for at in Finder::new(b".entry").find_iter(ptx) {
        let before = at.checked_sub(1).map_or(b' ', |index| ptx[index]);
        let after = ptx.get(at + 6).copied().unwrap_or(b' ');
        if is_word(before) || is_word(after) || comments.hide(at) {
            continue;
        }
        let mut tokens = Tokens { rest: &ptx[at + 6..] };
        let Some(name) = tokens.next().filter(|name| is_word(name[0])) else {
            return Err(PtxError::Params { kernel: String::new(), what: "a name" });
        };
        let layout = params(&mut tokens, name)?;
        kernels.push((text(name), layout));
    }
    Ok(kernels)
}

/// Returns the name of the first variable that is shared by host and kernels (`__managed__`), if there is
/// one.
pub fn managed(ptx: &[u8]) -> Option<String> {
    const ATTRIBUTE: &[u8] = b".managed";
    // Most code has none, which one search shows.
    memmem::find(ptx, ATTRIBUTE)?;
    let mut comments = Comments::new(ptx);
    let mut places = memmem::find_iter(ptx, ATTRIBUTE);
    // `.attribute(.managed)`, or one of several attributes.
    let at = places.find(|&at| {
        let before = ptx[..at].trim_ascii_end().last();
        matches!(before, Some(b'(' | b',')) && !comments.hide(at)
    })?;
    // The rest of the attributes, space, alignment and type stand before the name.
    let mut tokens = Tokens { rest: &ptx[at + ATTRIBUTE.len()..] }.skip_while(|token| *token != b")").skip(1);
    let name = tokens.find(|token| is_word(token[0]) && token[0] != b'.' && !token[0].is_ascii_digit());
    Some(name.map(text).unwrap_or_default())
}

/// Reads the parameter list `( .param ..., .param ... )`. Without a parenthesis the list is empty.
fn params(tokens: &mut Tokens<'_>, kernel: &[u8]) -> Result<Layout, PtxError> {
    let wrong = |what| PtxError::Params { kernel: text(kernel), what };
    let mut layout = Layout::default();
    let mut token = tokens.next();
    if token != Some(b"(") {
        return Ok(layout);
    }
    loop {
        token = tokens.next();
        match token {
            Some(b")") if layout.params.is_empty() => return Ok(layout),
            Some(b".param") => {}
            _ => return Err(wrong("`.param`")),
        }
        let mut align = None;
        let mut size = None;
        let mut pointer = false;
        // Attributes and type, up to the name.
        loop {
            let word = tokens.next().ok_or_else(|| wrong("a type"))?;
            match word {
                b".ptr" => pointer = true,
                b".align" => {
                    let value = tokens.next().and_then(number).filter(|value| value.is_power_of_two());
                    let value = value.ok_or_else(|| wrong("an alignment"))?;
                    if !pointer {
                        align = Some(value);
                    }
                }
                // The alignment after `.ptr` is that of the memory that the pointer points to.
                b".global" | b".const" | b".shared" | b".local" | b".param" if pointer => {}
                _ if word[0] == b'.' => {
                    let bytes = type_bytes(word).ok_or_else(|| wrong("a type that is known"))?;
                    if size.replace(bytes).is_some() {
                        return Err(wrong("one type"));
                    }
                }
                _ if is_word(word[0]) => break,
                _ => return Err(wrong("a name")),
            }
        }
        let element = size.ok_or_else(|| wrong("a type"))?;
        let mut bytes = element;
        token = tokens.next();
        while token == Some(b"[") {
            let count = tokens.next().and_then(number).ok_or_else(|| wrong("an array's size"))?;
            let too_large = || PtxError::Layout { kernel: text(kernel), source: LayoutError::TooLarge };
            bytes = bytes.checked_mul(count).ok_or_else(too_large)?;
            if tokens.next() != Some(b"]") {
                return Err(wrong("`]`"));
            }
            token = tokens.next();
        }
        layout
            .push(bytes, align.unwrap_or(element))
            .map_err(|source| PtxError::Layout { kernel: text(kernel), source })?;
        match token {
            Some(b")") => return Ok(layout),
            Some(b",") => {}
            _ => return Err(wrong("`,` or `)`")),
        }
    }
}

/// Returns the size in bytes of a fundamental type, or of an opaque type as a parameter.
pub(crate) fn type_bytes(word: &[u8]) -> Option<u32> {
    Some(match word {
        b".b8" | b".u8" | b".s8" | b".e4m3" | b".e5m2" => 1,
        b".b16" | b".u16" | b".s16" | b".f16" | b".bf16" | b".e4m3x2" | b".e5m2x2" => 2,
        b".b32" | b".u32" | b".s32" | b".f32" | b".f16x2" | b".bf16x2" => 4,
        b".b64" | b".u64" | b".s64" | b".f64" | b".texref" | b".samplerref" | b".surfref" => 8,
        b".b128" => 16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offsets(ptx: &str) -> Vec<(u32, u32)> {
        let mut kernels = kernels(ptx.as_bytes()).unwrap();
        assert_eq!(kernels.len(), 1, "{ptx}");
        kernels.remove(0).1.params.iter().map(|param| (param.offset, param.size)).collect()
    }

    #[test]
    fn the_head_is_read() {
        let head = |text: &str| super::head(text.as_bytes());
        let expected = Head { version: (8, 4), sm: 61, specific: Specific::No };
        assert_eq!(head("//\n// Generated by a compiler\n//\n\n.version 8.4\n.target sm_61\n"), Ok(expected));
        assert_eq!(head(".version 8.5\n.target sm_90a, debug\n").unwrap().specific, Specific::Architecture);
        assert_eq!(head(".version 8.8 .target sm_100f").unwrap().specific, Specific::Family);
        assert_eq!(head(".target sm_61"), Err(PtxError::Begin));
        assert_eq!(head(".version 8"), Err(PtxError::Head(".version")));
        assert_eq!(head(".version 8.4\n.target compute_61"), Err(PtxError::Head(".target")));
        assert_eq!(head(".version 8.4\n.target sm_"), Err(PtxError::Head(".target")));
        assert_eq!(head(""), Err(PtxError::Begin));
    }

    /// Checks that a text which is not PTX is rejected by its outline.
    #[test]
    fn the_outline_of_a_text_is_looked_at() {
        let outline =
            |rest: &str| super::outline(format!(".version 8.4\n.target sm_61, debug\n{rest}").as_bytes());
        for right in [
            "",
            ".address_size 64\n.visible .entry k() { ret; }",
            "// words } and more\n/* { */ .file 1 \"a { b\"\n@@DWARF .byte 0\n.func f() { { } }",
        ] {
            assert!(outline(right).is_ok(), "{right}");
        }
        for wrong in ["hello", "64", "{ }", ".entry k() { ret;", ".entry k() { } }", ".func } {"] {
            assert!(matches!(outline(wrong), Err(PtxError::Outline(_))), "{wrong}");
        }
        assert_eq!(super::outline(b"hello"), Err(PtxError::Begin));
    }

    #[test]
    fn parameters_have_their_places() {
        let list = ".visible .entry k(\n\t.param .u64 k_param_0,\n\t.param .u32 k_param_1,\n\
            \t.param .align 8 .b8 k_param_2[24],\n\t.param .u8 k_param_3, .param .f64 k_param_4\n)\n{ ret; }";
        // As ptxas 13.0 lays them out for sm_90.
        assert_eq!(offsets(list), [(0, 8), (8, 4), (16, 24), (40, 1), (48, 8)]);
        assert_eq!(
            offsets(".entry k(.param .align 4 .b8 a[20000], .param .u64 z) {}"),
            [(0, 20000), (20000, 8)]
        );
        assert_eq!(
            offsets(".entry k(.param .u64 .ptr .global .align 16 p, .param .u16 h){}"),
            [(0, 8), (8, 2)]
        );
        assert_eq!(offsets(".entry k(.param .u8 c, .param .align 16 .b32 a[2][3]){}"), [(0, 1), (16, 24)]);
        assert_eq!(offsets(".entry k (.param/* x */.b64 // y\n name){}"), [(0, 8)]);
    }

    #[test]
    fn kernels_without_parameters() {
        assert_eq!(offsets(".entry k()\n{ ret; }"), []);
        assert_eq!(offsets(".entry k\n{ ret; }"), []);
        assert_eq!(offsets(".visible .entry k .maxntid 128, 1, 1 { }"), []);
    }

    #[test]
    fn comments_hide_kernels() {
        let ptx = "// .entry a(\n.entry b()\n{} /* .entry c(\n // */ .entry d() {} // /* \n.entry e() {}\n\
            .entryx f() {} x.entry g() {} /* .entry h()";
        let names: Vec<String> =
            kernels(ptx.as_bytes()).unwrap().into_iter().map(|kernel| kernel.0).collect();
        assert_eq!(names, ["b", "d", "e"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for ptx in [
            ".entry",
            ".entry (",
            ".entry k(",
            ".entry k(.u32 a)",
            ".entry k(.param)",
            ".entry k(.param a)",
            ".entry k(.param .u32 .u64 a)",
            ".entry k(.param .nonsense a)",
            ".entry k(.param .align 3 .u32 a)",
            ".entry k(.param .u32 a[)",
            ".entry k(.param .u32 a[4)",
            ".entry k(.param .u32 a; )",
            ".entry k(.param .u32 a[4294967295])",
            ".entry k(.param .b8 a[32765])",
            ".entry k(.param .u32 a,)",
        ] {
            assert!(kernels(ptx.as_bytes()).is_err(), "{ptx}");
        }
    }

    fn param() -> impl Strategy<Value = (String, u32, u32)> {
        let types = [("u8", 1), ("s16", 2), ("f32", 4), ("b64", 8), ("b128", 16)];
        (prop::sample::select(types.to_vec()), prop::option::of(0_u32..5), prop::option::of(1_u32..40))
            .prop_map(|((name, size), align, count)| {
                let attribute = align.map_or(String::new(), |log| format!(".align {} ", 1 << log));
                let array = count.map_or(String::new(), |count| format!("[{count}]"));
                let declared = format!(".param {attribute}.{name} p{array}");
                (declared, size * count.unwrap_or(1), align.map_or(size, |log| 1 << log))
            })
    }

    /// Checks the braces of a text word by word.
    fn match_braces_of_words(text: &[u8]) -> Result<(), PtxError> {
        let (mut tokens, mut depth) = (Tokens { rest: text }, 0_usize);
        while let Some(word) = tokens.next() {
            match word {
                b"{" => depth += 1,
                b"}" => {
                    depth = depth
                        .checked_sub(1)
                        .ok_or(PtxError::Outline("a brace closes that was not opened"))?;
                }
                b"\"" => tokens.skip_text(),
                _ => {}
            }
        }
        if depth == 0 { Ok(()) } else { Err(PtxError::Outline("it ends within braces")) }
    }

    proptest! {
        #[test]
        fn braces_are_found_without_reading_words(text in "(\\{|\\}|\"|/|//|/\\*|\\*/|\\*| |\n|\\.x|k){0,30}") {
            prop_assert_eq!(match_braces(text.as_bytes()), match_braces_of_words(text.as_bytes()));
        }

        #[test]
        fn lists_are_laid_out_as_declared(params in prop::collection::vec(param(), 0..20)) {
            let list: Vec<&str> = params.iter().map(|param| &*param.0).collect();
            let ptx = format!(".visible .entry k(\n{}\n)\n{{ ret; }}", list.join(",\n"));
            let mut expected = Layout::default();
            for (_, size, align) in &params {
                expected.push(*size, *align).unwrap();
            }
            prop_assert_eq!(kernels(ptx.as_bytes()).unwrap(), vec![("k".to_owned(), expected)]);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = head(&bytes);
            let _ = outline(&bytes);
            let _ = kernels(&bytes);
        }

        #[test]
        fn near_ptx_is_read_without_a_panic(text in "(\\.entry|\\.param|\\.align|\\.u32|k|[0-9]|\\(|\\)|\\[|\\]|,|//|/\\*|\\*/| |\n){0,40}") {
            let _ = kernels(text.as_bytes());
            let _ = outline(format!(".version 8.4 .target sm_61 {text}").as_bytes());
        }
    }

    #[test]
    fn managed_variables_are_found() {
        let of = |rest: &str| managed(format!(".version 8.0\n.target sm_80\n{rest}").as_bytes());
        let found = |name: &str| Some(name.to_owned());
        assert_eq!(of(".visible .global .attribute(.managed) .align 4 .u32 counter;"), found("counter"));
        assert_eq!(
            of(".global .align 4 .u32 a;\n.global .attribute( .managed ) .u64 b[2] = {1, 2};"),
            found("b")
        );
        assert_eq!(of(".global .attribute(.unified(1, 2), .managed) .f32 c;"), found("c"));
        assert_eq!(of(".global .align 4 .u32 managed;"), None);
        assert_eq!(of("// .attribute(.managed) .u32 x;\n/* (.managed) */ .global .u32 y;"), None);
        assert_eq!(of(".entry k() { ret; } .file 1 \"a.managed.cu\""), None);
    }
}
