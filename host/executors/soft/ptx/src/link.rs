//! Linker of modules, as `cuLinkComplete` needs it: makes one text of several modules, in which a shared name
//! has one meaning.
//!
//! An external declaration is left out if another module defines the name. One of several weak definitions
//! stays. An internal name is changed if another module has the same name. Apart from these names, bodies are
//! copied unchanged, and their errors are found when a kernel is parsed.

use std::collections::{HashMap, HashSet};

use crate::effort::Effort;
use crate::error::PtxError;
use crate::lex::{Token, Tokens};
use crate::module::{LinkItem, Linkage, TEXT_MOST, link_items};

/// Functions that the device provides, and that no module defines.
const SYSTEM: [&[u8]; 4] = [b"vprintf", b"malloc", b"free", b"__assertfail"];

/// Text of one module to be linked.
#[derive(Clone, Copy, Debug)]
pub struct Input<'t> {
    /// Name of the module in errors.
    pub name: &'t str,
    /// Text of the module, in PTX.
    pub text: &'t [u8],
}

/// Reason for which texts cannot be linked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// A text is not a valid module.
    #[error("{input}: {error}")]
    Ptx {
        /// Name of the module whose text is invalid.
        input: String,
        /// Error that the parser reports.
        error: PtxError,
    },
    /// Two modules define the same name.
    #[error("multiple definition of '{name}' in '{second}', first defined in '{first}'")]
    Twice {
        /// Name that both modules define.
        name: String,
        /// Name of the first module that defines it.
        first: String,
        /// Name of the other module that defines it.
        second: String,
    },
    /// A module uses a name that no module defines.
    #[error("undefined reference to '{name}' in '{input}'")]
    Undefined {
        /// Name that no module defines.
        name: String,
        /// Name of the module that uses it.
        input: String,
    },
    /// There is no text to link.
    #[error("there is no input")]
    Empty,
    /// The linked text has this number of bytes, which is more than a module may have.
    #[error("the linked text has {0} bytes, more than a module may have")]
    TooLong(u64),
}

/// Links all inputs to one text.
///
/// # Errors
/// The errors are those of [`LinkError`].
pub fn link(inputs: &[Input<'_>], effort: &Effort) -> Result<Vec<u8>, LinkError> {
    let parts: Vec<Parts<'_>> =
        inputs.iter().map(|&input| Parts::read(input, effort)).collect::<Result<_, _>>()?;
    let version = parts.iter().map(|part| part.version).max().ok_or(LinkError::Empty)?;
    let target = parts.iter().map(|part| part.target).max().unwrap_or_default();
    let linker = Linker { definitions: definitions(&parts)?, modules: modules(&parts), effort };
    let head = format!(".version {}.{}\n.target sm_{target}\n.address_size 64\n", version.0, version.1);
    let (mut text, mut kept) = (head.into_bytes(), HashSet::new());
    for (module, part) in parts.iter().enumerate() {
        linker.complete(part)?;
        let names = linker.renamed(part, module);
        for (at, item) in part.items.iter().enumerate() {
            if linker.stays(item, (module, at), &mut kept) {
                linker.copy(part, item, &names, &mut text)?;
            }
        }
    }
    if text.len() as u64 > TEXT_MOST {
        return Err(LinkError::TooLong(text.len() as u64));
    }
    Ok(text)
}

/// A module, divided into the directives that declare names. All other directives are left out: the linked
/// module has its own version, target and address size, pragmas are hints, and there is no debugger for
/// sections.
struct Parts<'t> {
    input: Input<'t>,
    version: (u32, u32),
    target: u32,
    items: Vec<LinkItem<'t>>,
}

impl<'t> Parts<'t> {
    fn read(input: Input<'t>, effort: &'t Effort) -> Result<Self, LinkError> {
        let wrong = |error| LinkError::Ptx { input: input.name.to_owned(), error };
        let (version, target, items) = link_items(input.text, effort).map_err(wrong)?;
        Ok(Self { input, version, target, items })
    }
}

fn text_of(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Index of a directive: that of its module, and its own in the module.
type ItemIndex = (usize, usize);

/// Finds the definition of each shared name. Fails with [`LinkError::Twice`] if two of them are not weak.
fn definitions<'t>(parts: &[Parts<'t>]) -> Result<HashMap<&'t [u8], ItemIndex>, LinkError> {
    let mut found: HashMap<&[u8], ItemIndex> = HashMap::new();
    let weak = |(module, item): ItemIndex| {
        let parts: &Parts<'_> = &parts[module];
        matches!(parts.items[item].linkage, Linkage::Weak | Linkage::Common)
    };
    for (module, part) in parts.iter().enumerate() {
        for (at, item) in part.items.iter().enumerate() {
            if !item.defined || item.linkage == Linkage::Internal {
                continue;
            }
            for &name in &item.names {
                match found.get(name).copied() {
                    Some(first) if !weak(first) && !weak((module, at)) => {
                        let [first, second] = [first.0, module].map(|at| parts[at].input.name.to_owned());
                        return Err(LinkError::Twice { name: text_of(name), first, second });
                    }
                    Some(first) if !weak(first) || weak((module, at)) => {}
                    _ => drop(found.insert(name, (module, at))),
                }
            }
        }
    }
    Ok(found)
}

/// Counts, for each name, the modules that declare it.
fn modules<'t>(parts: &[Parts<'t>]) -> HashMap<&'t [u8], usize> {
    let mut counts = HashMap::new();
    for part in parts {
        let names: HashSet<&[u8]> = part.items.iter().flat_map(|item| item.names.iter().copied()).collect();
        for name in names {
            *counts.entry(name).or_default() += 1;
        }
    }
    counts
}

struct Linker<'t> {
    definitions: HashMap<&'t [u8], ItemIndex>,
    modules: HashMap<&'t [u8], usize>,
    effort: &'t Effort,
}

impl<'t> Linker<'t> {
    /// Fails with [`LinkError::Undefined`] if a module uses a name that nothing defines.
    fn complete(&self, part: &Parts<'t>) -> Result<(), LinkError> {
        let own: HashSet<&[u8]> = part
            .items
            .iter()
            .filter(|item| item.defined)
            .flat_map(|item| item.names.iter().copied())
            .collect();
        let missing: HashSet<&[u8]> = part
            .items
            .iter()
            .filter(|item| !item.defined && !item.dynamic)
            .flat_map(|item| item.names.iter().copied())
            .filter(|name| {
                !own.contains(name) && !self.definitions.contains_key(name) && !SYSTEM.contains(name)
            })
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        for item in part.items.iter().filter(|item| item.defined) {
            let mut used = None;
            self.words(part, item, |_, word| {
                used = used.or(Some(word).filter(|word| missing.contains(word)));
            })?;
            if let Some(name) = used {
                let input = part.input.name.to_owned();
                return Err(LinkError::Undefined { name: text_of(name), input });
            }
        }
        Ok(())
    }

    /// Returns new names for the internal names of a module that other modules have too, such as `name__2_0`.
    fn renamed(&self, part: &Parts<'t>, module: usize) -> HashMap<&'t [u8], Vec<u8>> {
        let own = part.items.iter().filter(|item| item.linkage == Linkage::Internal);
        let shared = own
            .flat_map(|item| item.names.iter().copied())
            .filter(|name| self.modules.get(name).is_some_and(|&count| count > 1));
        let mut names = HashMap::new();
        for name in shared {
            let new = (0..).map(|try_number: u32| {
                let mut new = name.to_vec();
                new.extend_from_slice(format!("__{}_{try_number}", module + 1).as_bytes());
                new
            });
            let free = new.into_iter().find(|new| !self.modules.contains_key(&new[..]));
            names.extend(free.map(|new| (name, new)));
        }
        names
    }

    /// Returns whether a directive is part of the linked module: the chosen definition of a name, or the
    /// first declaration of one that no module defines.
    fn stays(&self, item: &LinkItem<'t>, place: ItemIndex, kept: &mut HashSet<&'t [u8]>) -> bool {
        if item.defined {
            return item.linkage == Linkage::Internal
                || item.names.iter().any(|name| self.definitions.get(name) == Some(&place));
        }
        let wanted = item.dynamic || item.names.iter().any(|name| SYSTEM.contains(name));
        if !wanted {
            return false;
        }
        let before = kept.len();
        kept.extend(&item.names);
        kept.len() > before
    }

    /// Calls `act` with each word of a directive and the byte at which it starts.
    fn words(
        &self,
        part: &Parts<'t>,
        item: &LinkItem<'t>,
        mut act: impl FnMut(usize, &'t [u8]),
    ) -> Result<(), LinkError> {
        let wrong = |error| LinkError::Ptx { input: part.input.name.to_owned(), error };
        let text = &part.input.text[..item.end];
        let mut tokens = Tokens::new(text, item.start, item.line, self.effort).map_err(wrong)?;
        loop {
            let at = tokens.place().0;
            match tokens.next().map_err(wrong)? {
                Token::End => return Ok(()),
                Token::Word(word) => act(at, word),
                _ => {}
            }
        }
    }

    /// Copies a directive to the linked text, and replaces names that have new ones.
    fn copy(
        &self,
        part: &Parts<'t>,
        item: &LinkItem<'t>,
        names: &HashMap<&'t [u8], Vec<u8>>,
        to: &mut Vec<u8>,
    ) -> Result<(), LinkError> {
        let (text, mut from) = (part.input.text, item.start);
        if !names.is_empty() {
            self.words(part, item, |at, word| {
                if let Some(new) = names.get(word) {
                    to.extend_from_slice(&text[from..at]);
                    to.extend_from_slice(new);
                    from = at + word.len();
                }
            })?;
        }
        to.extend_from_slice(&text[from..item.end]);
        to.push(b'\n');
        Ok(())
    }
}
