//! Cuts a module's text into its directives.

use super::{Input, LinkError};
use crate::effort::Effort;
use crate::error::PtxError;
use crate::lex::{Token, Tokens};
use crate::module::{Linkage, Module};
use crate::variable;

/// A directive that declares something.
#[derive(Clone, Debug)]
pub(super) struct Item<'t> {
    /// Its bytes in the text, and the line on which they start.
    pub start: usize,
    pub end: usize,
    pub line: u32,
    /// The names that it declares.
    pub names: Vec<&'t [u8]>,
    /// Who else may use them. Kernels are always visible.
    pub linkage: Linkage,
    /// Whether it has a body, or is a variable of this module's.
    pub defined: bool,
    /// Whether it is `.extern .shared`: dynamic shared memory.
    pub dynamic: bool,
}

/// A module cut into directives.
pub(super) struct Parts<'t> {
    pub input: Input<'t>,
    pub version: (u32, u32),
    pub target: u32,
    pub items: Vec<Item<'t>>,
}

/// Reads a module's directives.
pub(super) fn cut<'t>(input: Input<'t>, effort: &'t Effort) -> Result<Parts<'t>, LinkError> {
    let wrong = |error| LinkError::Ptx { input: input.name.to_owned(), error };
    // The module's own reader says what is wrong with one, and has the limits.
    let module = Module::parse_within(input.text, effort).map_err(wrong)?;
    let mut tokens = Tokens::new(input.text, 0, 1, effort).map_err(wrong)?;
    let mut items = Vec::new();
    while tokens.peek() != Token::End {
        items.extend(directive(&mut tokens).map_err(wrong)?);
    }
    Ok(Parts { input, version: module.version(), target: module.target(), items })
}

/// Reads one directive; `None` for one that declares nothing. Version, target and size of addresses are those
/// of the linked module, pragmas are hints, and there is no debugger for sections.
fn directive<'t>(tokens: &mut Tokens<'t>) -> Result<Option<Item<'t>>, PtxError> {
    let (start, line) = tokens.place();
    let mut linkage = Linkage::Internal;
    loop {
        match tokens.peek() {
            Token::Mark(b'@') | Token::Word(b".file" | b".loc") => return tokens.skip_line().map(|()| None),
            Token::Mark(_) => return tokens.next().map(|_| None),
            _ => {}
        }
        let word = tokens.word("a directive")?;
        match word {
            b".visible" => linkage = Linkage::Visible,
            b".weak" => linkage = Linkage::Weak,
            b".common" => linkage = Linkage::Common,
            b".extern" => linkage = Linkage::Extern,
            b".version" => return tokens.word("a version").map(|_| None),
            b".address_size" => return variable::number(tokens, "64").map(|_| None),
            b".target" => {
                tokens.word("a target")?;
                while tokens.take(b',')? {
                    tokens.word("a target")?;
                }
                return Ok(None);
            }
            b".pragma" => return pass(tokens, b';').map(|()| None),
            b".section" => {
                tokens.word("a section")?;
                return tokens.skip_braces().map(|()| None);
            }
            b".entry" | b".func" => {
                // In front of a function's name stands what it returns.
                if tokens.peek() == Token::Mark(b'(') {
                    pass(tokens, b')')?;
                }
                let names = vec![variable::name(tokens)?];
                let defined = body(tokens)?;
                let kernel = word == b".entry" && linkage == Linkage::Internal;
                let linkage = if kernel { Linkage::Visible } else { linkage };
                let end = tokens.place().0;
                return Ok(Some(Item { start, end, line, names, linkage, defined, dynamic: false }));
            }
            b".global" | b".const" | b".shared" => {
                let names = variables(tokens)?;
                let defined = linkage != Linkage::Extern;
                let (dynamic, end) = (!defined && word == b".shared", tokens.place().0);
                return Ok(Some(Item { start, end, line, names, linkage, defined, dynamic }));
            }
            _ => {
                let word = String::from_utf8_lossy(word);
                return Err(tokens.error(format!("there is no directive {word} in a module")));
            }
        }
    }
}

/// Passes over everything up to a mark, and over it.
fn pass(tokens: &mut Tokens<'_>, mark: u8) -> Result<(), PtxError> {
    while !tokens.take(mark)? {
        if tokens.next()? == Token::End {
            return Err(tokens.expected(&format!("`{}`", char::from(mark))));
        }
    }
    Ok(())
}

/// Passes over what follows a function's name: whether there is a body.
fn body(tokens: &mut Tokens<'_>) -> Result<bool, PtxError> {
    loop {
        match tokens.peek() {
            Token::Mark(b'{') => return tokens.skip_braces().map(|()| true),
            Token::Mark(b';') => return tokens.next().map(|_| false),
            Token::End => return Err(tokens.expected("the body of a function")),
            _ => tokens.next()?,
        };
    }
}

/// Passes over the variables of a declaration: their names.
fn variables<'t>(tokens: &mut Tokens<'t>) -> Result<Vec<&'t [u8]>, PtxError> {
    let prefix = variable::prefix(tokens)?;
    let mut names = Vec::new();
    loop {
        let declaration = variable::declarator(tokens, prefix)?;
        variable::initialiser(tokens, &declaration)?;
        names.push(declaration.name);
        if !tokens.take(b',')? {
            return tokens.expect(b';').map(|()| names);
        }
    }
}
