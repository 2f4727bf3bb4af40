//! Declarations of variables: `.align 4 .b8 name[8][4]`, in a module or a kernel, and their initialisers.

use crate::error::PtxError;
use crate::ir::Ty;
use crate::lex::{Place, Token, Tokens};
use crate::literal::Literal;

/// The largest variable that is accepted: more than any device has memory.
pub const BYTES_MOST: u64 = 1 << 40;

/// A declaration without what stands before its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration<'t> {
    /// The variable's name.
    pub name: &'t [u8],
    /// Type of an element, of a vector's too.
    pub ty: Ty,
    /// Bytes; of `name[]` 0.
    pub bytes: u64,
    /// Bytes of an element, which is a vector where the type is one.
    pub element: u64,
    /// Alignment: a power of two.
    pub align: u64,
    /// Whether it is `name[]`.
    pub open: bool,
    /// Whether it has dimensions at all.
    pub array: bool,
}

/// What precedes the name, shared by the names of one declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    align: Option<u64>,
    ty: Ty,
    elements: u64,
}

/// The type that a modifier names (without its dot).
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

/// Reads a number that is not negative.
pub fn number(tokens: &mut Tokens<'_>, what: &str) -> Result<u64, PtxError> {
    if let Token::Word(word) = tokens.peek()
        && let Some(Literal::Integer(value)) = Literal::parse(word)
    {
        tokens.next()?;
        return Ok(value);
    }
    Err(tokens.expected(what))
}

/// Reads what stands between the state space and the name: `.align 16 .v4 .f32`, `.ptr .global .align 4`.
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
                // After `.ptr` it says how what is pointed to lies.
                if !pointer {
                    prefix.align = Some(align);
                }
                continue;
            }
            b"attribute" => {
                tokens.next()?;
                tokens.expect(b'(')?;
                while !tokens.take(b')')? {
                    if tokens.next()? == Token::End {
                        return Err(tokens.expected("`)`"));
                    }
                }
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

/// Reads a name and its dimensions.
pub fn declarator<'t>(tokens: &mut Tokens<'t>, prefix: Prefix) -> Result<Declaration<'t>, PtxError> {
    let name = name(tokens)?;
    let element = prefix.ty.bytes() as u64 * prefix.elements;
    let mut bytes = element;
    let (mut open, mut array) = (false, false);
    while tokens.take(b'[')? {
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

/// Reads a name: a word that is no number and no directive.
pub fn name<'t>(tokens: &mut Tokens<'t>) -> Result<&'t [u8], PtxError> {
    match tokens.peek() {
        Token::Word(word) if !word[0].is_ascii_digit() && !word.contains(&b'.') => {
            tokens.next()?;
            Ok(word)
        }
        _ => Err(tokens.expected("a name")),
    }
}

/// An address in an initialiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer<'t> {
    /// Where in the variable it goes.
    pub offset: u64,
    /// Of which variable.
    pub name: &'t [u8],
    /// Bytes to be added.
    pub addend: i64,
    /// Whether it is written `generic(name)`.
    pub generic: bool,
    /// Where the text says so.
    pub place: Place,
}

/// Reads `= value` or `= { ... }`, if it is there: the bytes and the addresses among them.
pub fn initialiser<'t>(
    tokens: &mut Tokens<'t>,
    declaration: &Declaration<'_>,
) -> Result<(Vec<u8>, Vec<Pointer<'t>>), PtxError> {
    let (mut data, mut pointers) = (Vec::new(), Vec::new());
    if !tokens.take(b'=')? {
        return Ok((data, pointers));
    }
    let size = declaration.ty.bytes() as usize;
    let most = if declaration.open { BYTES_MOST } else { declaration.bytes };
    let mut depth = 0_u32;
    loop {
        // Lists within lists are those of the inner dimensions. All elements of the inner ones must be
        // there, or their places would be unknown.
        while tokens.take(b'{')? {
            depth += 1;
        }
        if depth == 0 || tokens.peek() != Token::Mark(b'}') {
            if data.len() as u64 + size as u64 > most {
                return Err(tokens.error("more values than the variable has room for"));
            }
            match value(tokens, declaration.ty, data.len() as u64)? {
                Value::Bits(bits) => data.extend_from_slice(&bits.to_le_bytes()[..size]),
                Value::Pointer(pointer) => {
                    pointers.push(pointer);
                    data.extend_from_slice(&[0; 8]);
                }
            }
        }
        while depth > 0 && tokens.take(b'}')? {
            depth -= 1;
        }
        if depth == 0 {
            return Ok((data, pointers));
        }
        tokens.expect(b',')?;
    }
}

enum Value<'t> {
    Bits(u64),
    Pointer(Pointer<'t>),
}

fn value<'t>(tokens: &mut Tokens<'t>, ty: Ty, offset: u64) -> Result<Value<'t>, PtxError> {
    let negative = tokens.take(b'-')?;
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
        return Ok(Value::Bits(bits));
    }
    let place = tokens.place();
    if ty.bytes() != 8 || ty.float() {
        return Err(tokens.expected("a constant, for addresses need 64 bits"));
    }
    let (name, generic) = if tokens.take_word(b"generic")? {
        tokens.expect(b'(')?;
        let name = self::name(tokens)?;
        tokens.expect(b')')?;
        (name, true)
    } else {
        (self::name(tokens)?, false)
    };
    let addend = offset_after(tokens)?;
    Ok(Value::Pointer(Pointer { offset, name, addend, generic, place }))
}

/// Reads what follows the name of a variable whose elements have so many bytes: `[3]`, or `+ 24`, or nothing.
/// Returns bytes. ptxas counts elements in brackets.
pub fn index_after(tokens: &mut Tokens<'_>, element: u64) -> Result<i64, PtxError> {
    if !tokens.take(b'[')? {
        return offset_after(tokens);
    }
    let index = number(tokens, "an index")?;
    tokens.expect(b']')?;
    Ok(index.wrapping_mul(element) as i64)
}

/// Reads `+ 8`, `- 8`, `+ -8` after a name or a register, if it is there.
pub fn offset_after(tokens: &mut Tokens<'_>) -> Result<i64, PtxError> {
    let negative = if tokens.take(b'+')? {
        tokens.take(b'-')?
    } else if tokens.take(b'-')? {
        true
    } else {
        return Ok(0);
    };
    let value = number(tokens, "an offset")?;
    let value = if negative { value.wrapping_neg() } else { value } as i64;
    Ok(value)
}
