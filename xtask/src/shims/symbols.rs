//! The symbol lists of `common/abi/symbols`: which names a library exports, and what each
//! returns. Their format is described in the README beside them.

/// Return type of a function, as far as a stub depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// A status code, which is also assumed for undeclared functions.
    Status,
    /// No value, or one that fits into an integer register.
    Word,
    /// One or two floating point numbers, in vector registers.
    Float,
    /// A structure of this many bytes, returned by value.
    Struct(usize),
}

/// Kind of an exported symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A function, which becomes a stub unless the shim defines it.
    Function(Returns),
    /// An object of this many bytes.
    Data(usize),
}

/// An entry of a symbol list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Exported name, without a version node.
    pub name: String,
    /// Whether the symbol is a function or data.
    pub kind: Kind,
}

/// Error for a line that violates the format.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {problem}")]
pub struct ParseError {
    /// Line number, counted from one.
    pub line: usize,
    /// Description of the mistake in the line.
    pub problem: String,
}

/// Parses a list. Names must be sorted bytewise and unique, so that two people who add the same name get a
/// merge conflict.
pub fn parse(text: &str) -> Result<Vec<Symbol>, ParseError> {
    let mut symbols: Vec<Symbol> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let fail = |problem: String| ParseError { line: index + 1, problem };
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            || name.starts_with(|first: char| first.is_ascii_digit())
        {
            return Err(fail(format!("`{name}` is not a name")));
        }
        let mut kind = Kind::Function(Returns::Status);
        for word in words {
            let value = word.strip_prefix("ret=").ok_or_else(|| fail(format!("unknown field `{word}`")))?;
            kind = parse_kind(value).ok_or_else(|| fail(format!("unknown kind `{value}`")))?;
        }
        if let Some(last) = symbols.last()
            && last.name.as_bytes() >= name.as_bytes()
        {
            return Err(fail(format!("`{name}` does not sort behind `{}`", last.name)));
        }
        symbols.push(Symbol { name: name.to_owned(), kind });
    }
    Ok(symbols)
}

fn parse_kind(text: &str) -> Option<Kind> {
    let size = |text: &str| text.parse().ok().filter(|size| *size > 0);
    if let Some(bytes) = text.strip_prefix("data:") {
        return size(bytes).map(Kind::Data);
    }
    if let Some(bytes) = text.strip_prefix("struct:") {
        return size(bytes).map(|bytes| Kind::Function(Returns::Struct(bytes)));
    }
    Some(Kind::Function(match text {
        "?" => Returns::Status,
        "void" | "ptr" | "size" | "i8" | "i32" | "u32" => Returns::Word,
        "f32" | "f64" | "c32" | "c64" => Returns::Float,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[A-C_0-9#= \n\t]{0,60}|.{0,40}") {
            if let Ok(symbols) = parse(&text) {
                prop_assert!(symbols.is_sorted_by(|one, other| one.name < other.name));
            }
        }

        #[test]
        fn what_is_written_is_read(
            names in proptest::collection::btree_set("[A-Za-z_][A-Za-z0-9_]{0,9}", 0..9),
            kind in prop_oneof![Just(String::new()), (1..5000_usize).prop_map(|bytes| format!(" ret=data:{bytes}"))],
        ) {
            let text = names.iter().map(|name| format!("{name}{kind}\n")).collect::<Vec<_>>().concat();
            let read: Vec<String> = parse(&text).unwrap().into_iter().map(|symbol| symbol.name).collect();
            prop_assert_eq!(read, names.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn reads_every_kind() {
        let list = "# SONAME: x\n\nA\nB ret=?\nC ret=void\nD ret=c64\nE ret=struct:20\nF ret=data:4096\n_G ret=u32\n";
        let kinds: Vec<_> = parse(list).unwrap().into_iter().map(|symbol| symbol.kind).collect();
        assert_eq!(
            kinds,
            [
                Kind::Function(Returns::Status),
                Kind::Function(Returns::Status),
                Kind::Function(Returns::Word),
                Kind::Function(Returns::Float),
                Kind::Function(Returns::Struct(20)),
                Kind::Data(4096),
                Kind::Function(Returns::Word),
            ]
        );
    }

    #[test]
    fn rejects_what_it_does_not_know() {
        for (list, line) in [
            ("A\nA\n", 2),
            ("B\n# c\nA\n", 3),
            ("A ret=bool\n", 1),
            ("A node=x\n", 1),
            ("A ret=data:0\n", 1),
            ("A ret=struct:many\n", 1),
            ("1A\n", 1),
            ("A;B\n", 1),
        ] {
            assert_eq!(parse(list).unwrap_err().line, line, "{list:?}");
        }
    }
}
