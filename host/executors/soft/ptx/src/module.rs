//! A module's text: what it declares and where its kernels are.
//!
//! Reading a module touches the bodies of its kernels only to find their ends. A kernel is parsed when it is
//! asked for, alone.

use std::collections::HashMap;
use std::sync::Arc;

use crate::effort::Effort;
use crate::error::PtxError;
use crate::interrupt::Interrupt;
use crate::ir::{Kernel, window};
use crate::kernel;
use crate::lex::{Token, Tokens};
use crate::symbol::ModuleSymbol;
use crate::variable::{self, Declaration};

/// Bytes of a module's text: the largest seen have 11 MB.
pub const TEXT_MOST: u64 = 1 << 27;

/// Variables of a module, and kernels: each takes memory many times its text. GGML's largest module has 13
/// variables and some thousand kernels.
const SYMBOLS_MOST: usize = 1 << 16;
/// Distance of the addresses of two functions.
const FUNCTION_BYTES: u64 = 16;
/// Addresses in initial values of all variables.
const POINTERS_MOST: usize = 1 << 20;

/// Who else may use a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// This module alone.
    Internal,
    /// `.visible`
    Visible,
    /// `.weak`
    Weak,
    /// `.common`
    Common,
    /// `.extern`: another module has it.
    Extern,
}

/// An address within a variable's initial value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Where in the variable the 8 bytes of the address are.
    pub offset: u64,
    /// Whose address: an index into [`Module::globals`].
    pub global: u32,
    /// Bytes to be added to it.
    pub addend: i64,
    /// Whether the text says `generic(...)`. Generic addresses of device memory are its addresses.
    pub generic: bool,
}

/// A variable in device memory: `.global` or `.const`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Its name, as the text has it.
    pub name: String,
    /// Its size. Of `.extern name[]` 0: not known here.
    pub bytes: u64,
    /// Its alignment: a power of two.
    pub align: u64,
    /// Whether it is `.const`.
    pub constant: bool,
    /// Who else may use it.
    pub linkage: Linkage,
    /// The first bytes of its initial value; the rest is zero.
    pub data: Vec<u8>,
    /// Addresses to be written into the initial value.
    pub relocations: Vec<Relocation>,
}

/// Where a kernel's text is.
#[derive(Clone, Debug)]
struct Entry {
    name: String,
    /// First byte after the name, and its line.
    at: usize,
    line: u32,
}

/// The text of a module, its globals and the places of its kernels.
#[derive(Clone, Debug)]
pub struct Module {
    /// As it was brought: a copy of up to [`TEXT_MOST`] bytes may not be had.
    text: Arc<Vec<u8>>,
    version: (u32, u32),
    target: u32,
    entries: Vec<Entry>,
    /// From names to indices into `entries`.
    index: HashMap<String, usize>,
    globals: Vec<Global>,
    symbols: HashMap<Vec<u8>, ModuleSymbol>,
}

impl Module {
    /// Reads what a module declares. Bodies of kernels are passed over.
    pub fn parse(text: impl Into<Vec<u8>>) -> Result<Self, PtxError> {
        Self::parse_within(text, &Effort::unlimited(Interrupt::default()))
    }

    /// The same, as far as the effort allows.
    pub fn parse_within(text: impl Into<Vec<u8>>, effort: &Effort) -> Result<Self, PtxError> {
        let text: Arc<Vec<u8>> = Arc::new(text.into());
        if text.len() as u64 > TEXT_MOST {
            return Err(PtxError::TooLarge {
                line: 1,
                text: String::new(),
                what: "bytes of text",
                most: TEXT_MOST,
            });
        }
        let mut reader = Reader {
            tokens: Tokens::new(&text, 0, 1, effort)?,
            version: None,
            target: None,
            wide: false,
            entries: Vec::new(),
            index: HashMap::new(),
            globals: Vec::new(),
            symbols: HashMap::new(),
            pointers: Vec::new(),
            functions: 0,
        };
        while reader.tokens.peek() != Token::End {
            reader.directive()?;
        }
        reader.relocate()?;
        let (Some(version), Some(target)) = (reader.version, reader.target) else {
            return Err(reader.tokens.error("the text has no .version or no .target"));
        };
        // The ISA's default is 32 bits.
        if !reader.wide {
            return Err(reader.tokens.error("the text has no .address_size 64"));
        }
        let Reader { entries, index, globals, symbols, .. } = reader;
        Ok(Self { text, version, target, entries, index, globals, symbols })
    }

    /// `.version 8.4`: major and minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// `.target sm_61`: 61.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Variables in device memory, those of other modules too. Kernels name them by their index.
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// Names of the kernels, in the order of the text.
    pub fn kernel_names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Parses one kernel.
    pub fn kernel(&self, name: &str) -> Result<Kernel, PtxError> {
        self.kernel_within(name, &Effort::of_kernel(Interrupt::default()))
    }

    /// The same, as far as the effort allows.
    pub fn kernel_within(&self, name: &str, effort: &Effort) -> Result<Kernel, PtxError> {
        let Some(&index) = self.index.get(name) else {
            return Err(PtxError::NoKernel(name.to_owned()));
        };
        let entry = &self.entries[index];
        let tokens = Tokens::new(&self.text, entry.at, entry.line, effort)?;
        kernel::parse(name, tokens, &self.symbols)
    }
}

/// Reads the directives of a module.
struct Reader<'t> {
    tokens: Tokens<'t>,
    version: Option<(u32, u32)>,
    target: Option<u32>,
    /// Whether addresses have 64 bits.
    wide: bool,
    entries: Vec<Entry>,
    index: HashMap<String, usize>,
    globals: Vec<Global>,
    symbols: HashMap<Vec<u8>, ModuleSymbol>,
    /// Addresses in initialisers, by global: they may name what comes later.
    pointers: Vec<(u32, variable::Pointer<'t>)>,
    /// Number of functions that have a body.
    functions: u64,
}

impl<'t> Reader<'t> {
    fn directive(&mut self) -> Result<(), PtxError> {
        let mut linkage = Linkage::Internal;
        loop {
            let what = self.tokens.peek();
            match what {
                Token::Mark(b';') => return self.tokens.next().map(|_| ()),
                // Lines of DWARF in the old way start with `@@`.
                Token::Mark(b'@') | Token::Word(b".file" | b".loc") => return self.tokens.skip_line(),
                Token::Word(_) => {}
                _ => return Err(self.tokens.expected("a directive")),
            }
            let word = self.tokens.word("a directive")?;
            match word {
                b".visible" => linkage = Linkage::Visible,
                b".weak" => linkage = Linkage::Weak,
                b".common" => linkage = Linkage::Common,
                b".extern" => linkage = Linkage::Extern,
                b".version" => return self.version(),
                b".target" => return self.target(),
                b".address_size" => {
                    let place = self.tokens.place();
                    let bits = variable::number(&mut self.tokens, "64")?;
                    if bits != 64 {
                        let message = format!("addresses of {bits} bits are not supported");
                        return Err(self.tokens.error_at(place, message));
                    }
                    self.wide = true;
                    return Ok(());
                }
                b".pragma" => {
                    while !self.tokens.take(b';')? {
                        if self.tokens.next()? == Token::End {
                            return Err(self.tokens.expected("`;`"));
                        }
                    }
                    return Ok(());
                }
                b".section" => {
                    self.tokens.word("a section")?;
                    return self.tokens.skip_braces();
                }
                b".entry" => return self.entry(),
                b".func" => return self.function(),
                b".global" => return self.variables(linkage, false),
                b".const" => return self.variables(linkage, true),
                b".shared" => return self.shared(linkage),
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(self.tokens.error(format!("there is no directive {word} in a module")));
                }
            }
        }
    }

    fn version(&mut self) -> Result<(), PtxError> {
        let word = self.tokens.word("a version")?;
        let text = std::str::from_utf8(word).unwrap_or_default();
        let parts = text.split_once('.').map(|(major, minor)| (major.parse().ok(), minor.parse().ok()));
        let Some((Some(major), Some(minor))) = parts else {
            return Err(self.tokens.error(format!("{text} is no version")));
        };
        self.version = Some((major, minor));
        Ok(())
    }

    fn target(&mut self) -> Result<(), PtxError> {
        loop {
            let word = self.tokens.word("a target")?;
            if let Some(number) = word.strip_prefix(b"sm_") {
                // `sm_90a`: instructions of one architecture alone.
                let digits = number.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(number.len());
                let number =
                    std::str::from_utf8(&number[..digits]).ok().and_then(|digits| digits.parse().ok());
                self.target = Some(number.ok_or_else(|| self.tokens.error("expected a target"))?);
            }
            if !self.tokens.take(b',')? {
                return Ok(());
            }
        }
    }

    fn entry(&mut self) -> Result<(), PtxError> {
        let (at, line) = (self.tokens.after(), self.tokens.line());
        let name = variable::name(&mut self.tokens)?;
        let name = String::from_utf8_lossy(name).into_owned();
        // Parameters and performance directives, then the body, or nothing.
        loop {
            match self.tokens.peek() {
                Token::Mark(b'{') => {
                    if self.index.insert(name.clone(), self.entries.len()).is_some() {
                        return Err(self.tokens.error(format!("there are two kernels {name}")));
                    }
                    self.bounded(self.entries.len(), SYMBOLS_MOST, "kernels")?;
                    self.entries.push(Entry { name, at, line });
                    return self.tokens.skip_braces();
                }
                Token::Mark(b';') => return self.tokens.next().map(|_| ()),
                Token::End => return Err(self.tokens.expected("the body of a kernel")),
                _ => self.tokens.next()?,
            };
        }
    }
    /// Notes where a function is, and passes over it. Calls of it take its body in.
    fn function(&mut self) -> Result<(), PtxError> {
        let place = self.tokens.place();
        if self.tokens.take(b'(')? {
            while !self.tokens.take(b')')? {
                if self.tokens.next()? == Token::End {
                    return Err(self.tokens.expected("`)`"));
                }
            }
        }
        let name = match self.tokens.peek() {
            Token::Word(word) if word[0] != b'.' => Some(variable::name(&mut self.tokens)?),
            _ => None,
        };
        loop {
            match self.tokens.peek() {
                Token::Mark(b'{') => {
                    if let Some(name) = name {
                        let address = window::CODE + FUNCTION_BYTES * (1 + self.functions);
                        self.functions += 1;
                        self.declare(name, ModuleSymbol::Function { place, address })?;
                    }
                    return self.tokens.skip_braces();
                }
                Token::Mark(b';') => return self.tokens.next().map(|_| ()),
                Token::End => return Err(self.tokens.expected("the body of a function")),
                _ => self.tokens.next()?,
            };
        }
    }

    /// The variables of one declaration.
    fn variables(&mut self, linkage: Linkage, constant: bool) -> Result<(), PtxError> {
        let prefix = variable::prefix(&mut self.tokens)?;
        loop {
            let declaration = variable::declarator(&mut self.tokens, prefix)?;
            self.variable(linkage, constant, &declaration)?;
            if !self.tokens.take(b',')? {
                return self.tokens.expect(b';');
            }
        }
    }

    fn variable(
        &mut self,
        linkage: Linkage,
        constant: bool,
        declaration: &Declaration<'t>,
    ) -> Result<(), PtxError> {
        let index = self.globals.len() as u32;
        let (data, pointers) = variable::initialiser(&mut self.tokens, declaration)?;
        let bytes = if declaration.open { data.len() as u64 } else { declaration.bytes };
        self.bounded(self.pointers.len() + pointers.len(), POINTERS_MOST, "addresses in initial values")?;
        self.pointers.extend(pointers.into_iter().map(|pointer| (index, pointer)));
        self.declare(declaration.name, ModuleSymbol::Global { index, element: declaration.element })?;
        self.globals.push(Global {
            name: String::from_utf8_lossy(declaration.name).into_owned(),
            bytes,
            align: declaration.align,
            constant,
            linkage,
            data,
            relocations: Vec::new(),
        });
        Ok(())
    }

    fn shared(&mut self, linkage: Linkage) -> Result<(), PtxError> {
        let prefix = variable::prefix(&mut self.tokens)?;
        loop {
            let Declaration { name, bytes, element, align, open, .. } =
                variable::declarator(&mut self.tokens, prefix)?;
            let symbol = if linkage == Linkage::Extern || open {
                ModuleSymbol::Dynamic { element, align }
            } else {
                ModuleSymbol::Shared { bytes, element, align }
            };
            self.declare(name, symbol)?;
            if !self.tokens.take(b',')? {
                return self.tokens.expect(b';');
            }
        }
    }

    fn bounded(&self, count: usize, most: usize, what: &'static str) -> Result<(), PtxError> {
        if count < most { Ok(()) } else { Err(self.tokens.too_large(what, most as u64)) }
    }

    fn declare(&mut self, name: &[u8], symbol: ModuleSymbol) -> Result<(), PtxError> {
        self.bounded(self.symbols.len(), SYMBOLS_MOST, "variables")?;
        if self.symbols.insert(name.to_vec(), symbol).is_none() {
            return Ok(());
        }
        let name = String::from_utf8_lossy(name);
        Err(self.tokens.error(format!("{name} is declared twice")))
    }

    /// Turns names in initialisers into indices.
    fn relocate(&mut self) -> Result<(), PtxError> {
        for &(global, pointer) in &self.pointers {
            let variable::Pointer { offset, addend, generic, .. } = pointer;
            let target = match self.symbols.get(pointer.name) {
                Some(&ModuleSymbol::Global { index, .. }) => index,
                Some(&ModuleSymbol::Function { address, .. }) => {
                    let value = address.wrapping_add_signed(addend);
                    let data = &mut self.globals[global as usize].data;
                    if let Some(place) = data.get_mut(offset as usize..offset as usize + 8) {
                        place.copy_from_slice(&value.to_le_bytes());
                    }
                    continue;
                }
                _ => return Err(self.tokens.undeclared(pointer.place, pointer.name)),
            };
            let relocation = Relocation { offset, global: target, addend, generic };
            self.globals[global as usize].relocations.push(relocation);
        }
        Ok(())
    }
}
