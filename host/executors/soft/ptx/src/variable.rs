//! Declarations of variables: `.align 4 .b8 name[8][4]`, in a module or a kernel, and their initialisers.

use crate::error::PtxError;
use crate::ir::Ty;
use crate::lex::{TextPosition, Token, Tokens};
use crate::literal::Literal;

/// Largest size of a variable, in bytes. It exceeds the memory of every device.
pub const BYTES_MOST: u64 = 1 << 40;

/// Declaration of a variable from its type on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration<'t> {
    /// Name of the variable in the text.
    pub name: &'t [u8],
    /// Type of an element, or of a vector's element.
    pub ty: Ty,
    /// Size in bytes. It is 0 for `name[]`.
    pub bytes: u64,
    /// Size in bytes of an element, which is a vector if the type is one.
    pub element: u64,
    /// Alignment in bytes, a power of two.
    pub align: u64,
    /// Whether the declaration is `name[]`, without a size.
    pub open: bool,
    /// Whether the declaration has dimensions, as in `name[8]`.
    pub array: bool,
}

/// Part of a declaration before the names, which share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    align: Option<u64>,
    ty: Ty,
    elements: u64,
}

/// Returns the type that a modifier names, without its dot.
pub fn ty(word: &[u8]) -> Option<Ty> {
    Some(match word {
        b"pred" => Ty::Pred,
        b"b8" => Ty::B8,
        b"b16" => Ty::B16,
        b"b32" => Ty::B32,
        b"b64" => Ty::B64,
        b"u8" => Ty::U8,
        b"u16" => Ty::U16,
        b"u32" => Ty::U32,
        b"u64" => Ty::U64,
        b"s8" => Ty::S8,
        b"s16" => Ty::S16,
        b"s32" => Ty::S32,
        b"s64" => Ty::S64,
        b"f16" => Ty::F16,
        b"f16x2" => Ty::F16x2,
        b"bf16" => Ty::Bf16,
        b"bf16x2" => Ty::Bf16x2,
        b"f32" => Ty::F32,
        b"f64" => Ty::F64,
        _ => return None,
    })
}

/// Reads a non-negative integer. `what` names it in the error.
pub fn number(tokens: &mut Tokens<'_>, what: &str) -> Result<u64, PtxError> {
    if let Token::Word(word) = tokens.peek()
        && let Some(Literal::Integer(value)) = Literal::parse(word)
    {
        tokens.next()?;
        return Ok(value);
    }
    Err(tokens.expected(what))
}

/// Reads the part between the state space and the name, such as `.align 16 .v4 .f32` or `.ptr .global .align
/// 4`.
pub fn prefix(tokens: &mut Tokens<'_>) -> Result<Prefix, PtxError> {
    let mut prefix = Prefix { align: None, ty: Ty::Pred, elements: 1 };
    let mut pointer = false;
    while let Token::Word(word) = tokens.peek() {
        let Some(modifier) = word.strip_prefix(b".") else { break };
        match modifier {
            b"align" => {
                tokens.next()?;
                let align = number(tokens, "an alignment")?;
                if !align.is_power_of_two() || align > 4096 {
                    return Err(tokens.error(format!("{align} is no alignment")));
                }
                // After `.ptr`, the alignment is that of the memory that the pointer refers to.
                if !pointer {
                    prefix.align = Some(align);
                }
                continue;
            }
            b"attribute" => {
                tokens.next()?;
                tokens.expect(b'(')?;
                tokens.skip_past(b')')?;
                continue;
            }
            b"v2" => prefix.elements = 2,
            b"v4" => prefix.elements = 4,
            b"ptr" => pointer = true,
            b"global" | b"const" | b"shared" | b"local" | b"param" if pointer => {}
            _ => match ty(modifier) {
                Some(ty) if prefix.ty == Ty::Pred && ty != Ty::Pred => prefix.ty = ty,
                _ => return Err(tokens.expected("a type")),
            },
        }
        tokens.next()?;
    }
    if prefix.ty == Ty::Pred {
        return Err(tokens.expected("a type"));
    }
    Ok(prefix)
}

/// Reads a name and its dimensions, such as `name[8][4]`, after its prefix.
pub fn declarator<'t>(tokens: &mut Tokens<'t>, prefix: Prefix) -> Result<Declaration<'t>, PtxError> {
    let name = name(tokens)?;
    let element = prefix.ty.bytes() as u64 * prefix.elements;
    let mut bytes = element;
    let (mut open, mut array) = (false, false);
    while tokens.accept(b'[')? {
        if !array && tokens.peek() == Token::Mark(b']') {
            open = true;
        } else {
            let count = number(tokens, "a dimension")?;
            bytes = bytes
                .checked_mul(count)
                .filter(|&bytes| bytes <= BYTES_MOST)
                .ok_or_else(|| tokens.limit("bytes in a variable", BYTES_MOST))?;
        }
        array = true;
        tokens.expect(b']')?;
    }
    let bytes = if open { 0 } else { bytes };
    let align = prefix.align.unwrap_or(element);
    Ok(Declaration { name, ty: prefix.ty, bytes, element, align, open, array })
}

/// Reads a name: a word that does not start with a digit and contains no dot.
pub fn name<'t>(tokens: &mut Tokens<'t>) -> Result<&'t [u8], PtxError> {
    match tokens.peek() {
        Token::Word(word) if !word[0].is_ascii_digit() && !word.contains(&b'.') => {
            tokens.next()?;
            Ok(word)
        }
        _ => Err(tokens.expected("a name")),
    }
}

/// Address in an initial value, before its name is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer<'t> {
    /// Offset in bytes of the address in the variable.
    pub offset: u64,
    /// Name of the variable whose address it is.
    pub name: &'t [u8],
    /// Number of bytes to be added to the address.
    pub addend: i64,
    /// Whether the text has the form `generic(name)`.
    pub generic: bool,
    /// Position in the text, for errors.
    pub place: TextPosition,
}

/// Reads an optional initial value, `= value` or `= { ... }`. Returns its bytes, without trailing elements
/// that the text leaves out, and the addresses in it.
pub fn initialiser<'t>(
    tokens: &mut Tokens<'t>,
    declaration: &Declaration<'_>,
) -> Result<(Vec<u8>, Vec<Pointer<'t>>), PtxError> {
    let (mut data, mut pointers) = (Vec::new(), Vec::new());
    if !tokens.accept(b'=')? {
        return Ok((data, pointers));
    }
    let size = declaration.ty.bytes() as usize;
    let most = if declaration.open { BYTES_MOST } else { declaration.bytes };
    let mut depth = 0_u32;
    loop {
        // Nested lists are those of the inner dimensions. All elements of inner lists must be present, or the
        // positions of later ones would be unknown.
        while tokens.accept(b'{')? {
            depth += 1;
        }
        if depth == 0 || tokens.peek() != Token::Mark(b'}') {
            if data.len() as u64 + size as u64 > most {
                return Err(tokens.error("more values than the variable has room for"));
            }
            match value(tokens, declaration.ty, data.len() as u64)? {
                InitialValue::Bits(bits) => data.extend_from_slice(&bits.to_le_bytes()[..size]),
                InitialValue::Pointer(pointer) => {
                    pointers.push(pointer);
                    data.extend_from_slice(&[0; 8]);
                }
            }
        }
        while depth > 0 && tokens.accept(b'}')? {
            depth -= 1;
        }
        if depth == 0 {
            return Ok((data, pointers));
        }
        tokens.expect(b',')?;
    }
}

enum InitialValue<'t> {
    Bits(u64),
    Pointer(Pointer<'t>),
}

fn value<'t>(tokens: &mut Tokens<'t>, ty: Ty, offset: u64) -> Result<InitialValue<'t>, PtxError> {
    let negative = tokens.accept(b'-')?;
    let Token::Word(word) = tokens.peek() else {
        return Err(tokens.expected("a constant"));
    };
    let literal = Literal::parse(word);
    if negative || literal.is_some() {
        let literal = literal.map(|literal| if negative { literal.negated() } else { literal });
        let Some(bits) = literal.and_then(|literal| literal.bits(ty)) else {
            return Err(tokens.expected("a constant of the variable's type"));
        };
        tokens.next()?;
        return Ok(InitialValue::Bits(bits));
    }
    let place = tokens.place();
    if ty.bytes() != 8 || ty.float() {
        return Err(tokens.expected("a constant, for addresses need 64 bits"));
    }
    let (name, generic) = if tokens.accept_word(b"generic")? {
        tokens.expect(b'(')?;
        let name = self::name(tokens)?;
        tokens.expect(b')')?;
        (name, true)
    } else {
        (self::name(tokens)?, false)
    };
    let addend = offset_after(tokens)?;
    Ok(InitialValue::Pointer(Pointer { offset, name, addend, generic, place }))
}

/// Reads the optional offset after the name of a variable, `[3]` or `+ 24`, and returns it in bytes. As in
/// ptxas, a number in brackets counts elements of the given size.
pub fn index_after(tokens: &mut Tokens<'_>, element: u64) -> Result<i64, PtxError> {
    if !tokens.accept(b'[')? {
        return offset_after(tokens);
    }
    let index = number(tokens, "an index")?;
    tokens.expect(b']')?;
    Ok(index.wrapping_mul(element) as i64)
}

/// Reads an optional offset in bytes after a name or a register: `+ 8`, `- 8` or `+ -8`.
pub fn offset_after(tokens: &mut Tokens<'_>) -> Result<i64, PtxError> {
    let negative = if tokens.accept(b'+')? {
        tokens.accept(b'-')?
    } else if tokens.accept(b'-')? {
        true
    } else {
        return Ok(0);
    };
    let value = number(tokens, "an offset")?;
    let value = if negative { value.wrapping_neg() } else { value } as i64;
    Ok(value)
}
