//! Links modules: makes one text of several, in which the names that they share mean one thing.
//!
//! What one module declares as another's, and another defines, is left out. Of several weak definitions one
//! stays. A name that a module has for itself is changed where another has it too. Bodies are copied as they
//! are but for such names: what is wrong with them is found when a kernel is parsed.

mod cut;

use std::collections::{HashMap, HashSet};

use crate::effort::Effort;
use crate::error::PtxError;
use crate::lex::{Token, Tokens};
use crate::module::{Linkage, TEXT_MOST};
use cut::{Item, Parts, cut};

/// Functions that the device has, which no module defines.
const SYSTEM: [&[u8]; 4] = [b"vprintf", b"malloc", b"free", b"__assertfail"];

/// A text to be linked.
#[derive(Clone, Copy, Debug)]
pub struct Input<'t> {
    /// What messages call it.
    pub name: &'t str,
    /// PTX.
    pub text: &'t [u8],
}

/// Why texts cannot be linked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// A text is no module.
    #[error("{input}: {error}")]
    Ptx {
        /// Which.
        input: String,
        /// What is wrong with it.
        error: PtxError,
    },
    /// Two modules define one name.
    #[error("multiple definition of '{name}' in '{second}', first defined in '{first}'")]
    Twice {
        /// The name.
        name: String,
        /// The module that defines it first.
        first: String,
        /// The other.
        second: String,
    },
    /// No module defines a name that one uses.
    #[error("undefined reference to '{name}' in '{input}'")]
    Undefined {
        /// The name.
        name: String,
        /// The module that uses it.
        input: String,
    },
    /// There is nothing to link.
    #[error("there is no input")]
    Empty,
    /// The linked text is longer than a module's may be.
    #[error("the linked text has {0} bytes, more than a module may have")]
    TooLong(u64),
}

/// Makes one text of all inputs.
///
/// # Errors
/// Those of [`LinkError`].
pub fn link(inputs: &[Input<'_>], effort: &Effort) -> Result<Vec<u8>, LinkError> {
    let parts: Vec<Parts<'_>> = inputs.iter().map(|&input| cut(input, effort)).collect::<Result<_, _>>()?;
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

fn text_of(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// A directive: the index of its module, and its own there.
type Place = (usize, usize);

/// The definition of each name that modules share.
fn definitions<'t>(parts: &[Parts<'t>]) -> Result<HashMap<&'t [u8], Place>, LinkError> {
    let mut found: HashMap<&[u8], Place> = HashMap::new();
    let weak = |(module, item): Place| {
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

/// How many modules have each name.
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
    definitions: HashMap<&'t [u8], Place>,
    modules: HashMap<&'t [u8], usize>,
    effort: &'t Effort,
}

impl<'t> Linker<'t> {
    /// Refuses a module that uses what nobody defines.
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

    /// New names for what a module has for itself and another has too.
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

    /// Whether a directive is part of the linked module.
    fn stays(&self, item: &Item<'t>, place: Place, kept: &mut HashSet<&'t [u8]>) -> bool {
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
        item: &Item<'t>,
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

    /// Copies a directive, with new names.
    fn copy(
        &self,
        part: &Parts<'t>,
        item: &Item<'t>,
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
