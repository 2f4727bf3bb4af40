//! The text of a module, with its declarations and the positions of its kernels.
//!
//! The reader of a module skips the bodies of its kernels. A kernel is parsed alone, when it is requested.

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

/// Largest size of a module's text, in bytes. The largest known text has 11 MB.
pub const TEXT_MOST: u64 = 1 << 27;

/// Largest number of variables and kernels of a module. Each takes many times the memory of its text. GGML's
/// largest module has 13 variables and some thousand kernels.
const SYMBOLS_MOST: usize = 1 << 16;
/// Distance in bytes between the addresses of two functions. Nothing is stored at these addresses.
const FUNCTION_BYTES: u64 = 16;
/// Largest number of addresses in the initial values of all variables.
const POINTERS_MOST: usize = 1 << 20;

/// Visibility of a name to other modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// Only this module may use the name.
    Internal,
    /// Other modules may use the name: `.visible`.
    Visible,
    /// Other modules may define the name too, and the linker picks one definition: `.weak`.
    Weak,
    /// Modules that define the name share one variable: `.common`.
    Common,
    /// Another module defines the name: `.extern`.
    Extern,
}

/// An address within a variable's initial value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Offset in bytes in the variable of the address, which has 8 bytes.
    pub offset: u64,
    /// Variable whose address it is, as an index into [`Module::globals`].
    pub global: u32,
    /// Number of bytes to be added to the address.
    pub addend: i64,
    /// Whether the text has the form `generic(...)`. The generic address of device memory equals its address.
    pub generic: bool,
}

/// Variable in device memory, declared as `.global` or `.const`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Name of the variable in the text.
    pub name: String,
    /// Size in bytes. It is 0 for `.extern name[]`, whose size is unknown here.
    pub bytes: u64,
    /// Alignment in bytes, a power of two.
    pub align: u64,
    /// Whether the variable is `.const`.
    pub constant: bool,
    /// Visibility to other modules.
    pub linkage: Linkage,
    /// First bytes of the initial value. All others are zero.
    pub data: Vec<u8>,
    /// Addresses to be written into the initial value.
    pub relocations: Vec<Relocation>,
}

/// Position of a kernel's text, from which it is parsed when it is requested.
#[derive(Clone, Debug)]
struct KernelText {
    name: String,
    /// Offset of the first byte after the name. Its line is in `line`.
    at: usize,
    line: u32,
}

/// First target whose code may rely on the progress of each lane.
const INDEPENDENT_LANES: u32 = 70;

/// The text of a module, with its variables and the positions of its kernels.
#[derive(Clone, Debug)]
pub struct Module {
    /// The text that the caller passed. It is not copied, because memory for a copy of up to [`TEXT_MOST`]
    /// bytes may not be available.
    text: Arc<Vec<u8>>,
    version: (u32, u32),
    target: u32,
    entries: Vec<KernelText>,
    /// Index into `entries` of each kernel, by name.
    index: HashMap<String, usize>,
    globals: Vec<Global>,
    symbols: HashMap<Vec<u8>, ModuleSymbol>,
}

impl Module {
    /// Reads the declarations of a module. Bodies of kernels are skipped.
    pub fn parse(text: impl Into<Vec<u8>>) -> Result<Self, PtxError> {
        Self::parse_within(text, &Effort::unlimited(Interrupt::default()))
    }

    /// Reads the declarations as [`Self::parse`] does, within the limits of an effort.
    pub fn parse_within(text: impl Into<Vec<u8>>, effort: &Effort) -> Result<Self, PtxError> {
        let text: Arc<Vec<u8>> = Arc::new(text.into());
        let ModuleReader { version, target, entries, index, globals, symbols, .. } =
            ModuleReader::read(&text, effort, None)?;
        Ok(Self { text, version, target, entries, index, globals, symbols })
    }

    /// Returns the major and minor number of the PTX version.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Returns the number of the target architecture, such as 61 for `sm_61`. A suffix such as that of
    /// `sm_90a` is dropped.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Returns the variables in device memory, including those of other modules. Kernels name them by their
    /// index.
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// Returns the names of the kernels, in the order of the text.
    pub fn kernel_names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Parses the kernel with this name. Fails with [`PtxError::NoKernel`] if the module has none.
    pub fn kernel(&self, name: &str) -> Result<Kernel, PtxError> {
        self.kernel_within(name, &Effort::of_kernel(Interrupt::default()))
    }

    /// Parses one kernel as [`Self::kernel`] does, within the limits of an effort.
    pub fn kernel_within(&self, name: &str, effort: &Effort) -> Result<Kernel, PtxError> {
        let Some(&index) = self.index.get(name) else {
            return Err(PtxError::NoKernel(name.to_owned()));
        };
        let entry = &self.entries[index];
        let tokens = Tokens::new(&self.text, entry.at, entry.line, effort)?;
        let kernel = kernel::parse(name, tokens, &self.symbols)?;
        Ok(Kernel { independent_lanes: self.target >= INDEPENDENT_LANES, ..kernel })
    }
}

/// Directive that declares names, in the form that the linker uses.
#[derive(Clone, Debug)]
pub(crate) struct LinkItem<'t> {
    /// Offset in the text of the directive's first byte.
    pub start: usize,
    /// Offset in the text of the byte after the directive's last one.
    pub end: usize,
    /// Line of the directive's first byte, from 1.
    pub line: u32,
    /// Names that the directive declares.
    pub names: Vec<&'t [u8]>,
    /// Visibility of the names to other modules. Kernels are always visible.
    pub linkage: Linkage,
    /// Whether the directive has a body, or declares a variable of this module.
    pub defined: bool,
    /// Whether the directive declares dynamic shared memory, `.extern .shared`.
    pub dynamic: bool,
}

/// Version, target and directives of a module's text.
pub(crate) type LinkItems<'t> = ((u32, u32), u32, Vec<LinkItem<'t>>);

/// Reads the directives of a module for the linker.
pub(crate) fn link_items<'t>(text: &'t [u8], effort: &'t Effort) -> Result<LinkItems<'t>, PtxError> {
    let reader = ModuleReader::read(text, effort, Some(Vec::new()))?;
    Ok((reader.version, reader.target, reader.items.unwrap_or_default()))
}

/// Reader of the directives of a module.
struct ModuleReader<'t> {
    tokens: Tokens<'t>,
    /// PTX version, or `(0, 0)` until the directive is read.
    version: (u32, u32),
    /// Target architecture, or 0 until the directive is read.
    target: u32,
    /// Whether the directive `.address_size 64` was read.
    wide: bool,
    entries: Vec<KernelText>,
    index: HashMap<String, usize>,
    globals: Vec<Global>,
    symbols: HashMap<Vec<u8>, ModuleSymbol>,
    /// Addresses in initial values, with the index of their variable. They may name variables that are
    /// declared later.
    pointers: Vec<(u32, variable::Pointer<'t>)>,
    /// Number of functions that have a body.
    functions: u64,
    /// Directives that were read so far, if the linker needs them.
    items: Option<Vec<LinkItem<'t>>>,
}

impl<'t> ModuleReader<'t> {
    fn read(text: &'t [u8], effort: &'t Effort, items: Option<Vec<LinkItem<'t>>>) -> Result<Self, PtxError> {
        if text.len() as u64 > TEXT_MOST {
            return Err(PtxError::TooLarge {
                line: 1,
                text: String::new(),
                what: "bytes of text",
                most: TEXT_MOST,
            });
        }
        let mut reader = ModuleReader {
            tokens: Tokens::new(text, 0, 1, effort)?,
            version: (0, 0),
            target: 0,
            wide: false,
            entries: Vec::new(),
            index: HashMap::new(),
            globals: Vec::new(),
            symbols: HashMap::new(),
            pointers: Vec::new(),
            functions: 0,
            items,
        };
        while reader.tokens.peek() != Token::End {
            reader.directive()?;
        }
        reader.relocate()?;
        if reader.version == (0, 0) || reader.target == 0 {
            return Err(reader.tokens.error("the text has no .version or no .target"));
        }
        // The ISA's default is 32 bits.
        if !reader.wide {
            return Err(reader.tokens.error("the text has no .address_size 64"));
        }
        Ok(reader)
    }

    fn directive(&mut self) -> Result<(), PtxError> {
        let (start, line) = self.tokens.place();
        let mut linkage = Linkage::Internal;
        loop {
            let what = self.tokens.peek();
            match what {
                Token::Mark(b';') => return self.tokens.next().map(|_| ()),
                // Lines of DWARF in the old format start with `@@`.
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
                    return self.tokens.skip_past(b';');
                }
                b".section" => {
                    self.tokens.word("a section")?;
                    return self.tokens.skip_braces();
                }
                b".entry" | b".func" | b".global" | b".const" | b".shared" => {
                    let (names, defined) = self.declaration(word, linkage)?;
                    let Some(items) = &mut self.items else { return Ok(()) };
                    if names.is_empty() {
                        return Err(self.tokens.expected("a name"));
                    }
                    if word == b".entry" && linkage == Linkage::Internal {
                        linkage = Linkage::Visible;
                    }
                    let (dynamic, end) = (!defined && word == b".shared", self.tokens.place().0);
                    items.push(LinkItem { start, end, line, names, linkage, defined, dynamic });
                    return Ok(());
                }
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(self.tokens.error(format!("there is no directive {word} in a module")));
                }
            }
        }
    }

    /// Reads the rest of a directive that declares names. Returns the names, and whether the module defines
    /// them.
    fn declaration(&mut self, word: &[u8], linkage: Linkage) -> Result<(Vec<&'t [u8]>, bool), PtxError> {
        match word {
            b".entry" => self.entry(),
            b".func" => self.function(),
            b".shared" => Ok((self.shared(linkage)?, linkage != Linkage::Extern)),
            _ => Ok((self.variables(linkage, word == b".const")?, linkage != Linkage::Extern)),
        }
    }

    fn version(&mut self) -> Result<(), PtxError> {
        let word = self.tokens.word("a version")?;
        let text = std::str::from_utf8(word).unwrap_or_default();
        let parts = text.split_once('.').map(|(major, minor)| (major.parse().ok(), minor.parse().ok()));
        let Some((Some(major), Some(minor))) = parts else {
            return Err(self.tokens.error(format!("{text} is no version")));
        };
        self.version = (major, minor);
        Ok(())
    }

    fn target(&mut self) -> Result<(), PtxError> {
        loop {
            let word = self.tokens.word("a target")?;
            if let Some(number) = word.strip_prefix(b"sm_") {
                // The suffix of `sm_90a` stands for instructions of one architecture only.
                let digits = number.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(number.len());
                let number =
                    std::str::from_utf8(&number[..digits]).ok().and_then(|digits| digits.parse().ok());
                self.target = number.ok_or_else(|| self.tokens.error("expected a target"))?;
            }
            if !self.tokens.accept(b',')? {
                return Ok(());
            }
        }
    }

    fn entry(&mut self) -> Result<(Vec<&'t [u8]>, bool), PtxError> {
        let (at, line) = (self.tokens.after(), self.tokens.line());
        let word = variable::name(&mut self.tokens)?;
        // Parameters and performance directives precede the body.
        let defined = self.tokens.skip_to_body("the body of a kernel")?;
        if defined {
            let name = String::from_utf8_lossy(word).into_owned();
            if self.index.insert(name.clone(), self.entries.len()).is_some() {
                return Err(self.tokens.error(format!("there are two kernels {name}")));
            }
            self.bounded(self.entries.len(), SYMBOLS_MOST, "kernels")?;
            self.entries.push(KernelText { name, at, line });
            self.tokens.skip_braces()?;
        }
        Ok((vec![word], defined))
    }

    /// Records the position of a function, and skips its body. Each call that inlines it parses the body
    /// again.
    fn function(&mut self) -> Result<(Vec<&'t [u8]>, bool), PtxError> {
        let place = self.tokens.place();
        if self.tokens.accept(b'(')? {
            self.tokens.skip_past(b')')?;
        }
        let name = match self.tokens.peek() {
            Token::Word(word) if word[0] != b'.' => Some(variable::name(&mut self.tokens)?),
            _ => None,
        };
        let defined = self.tokens.skip_to_body("the body of a function")?;
        if defined {
            if let Some(name) = name {
                let address = window::CODE + FUNCTION_BYTES * (1 + self.functions);
                self.functions += 1;
                self.declare(name, ModuleSymbol::Function { place, address })?;
            }
            self.tokens.skip_braces()?;
        }
        Ok((name.into_iter().collect(), defined))
    }

    /// Reads the variables of one declaration and returns their names.
    fn variables(&mut self, linkage: Linkage, constant: bool) -> Result<Vec<&'t [u8]>, PtxError> {
        let prefix = variable::prefix(&mut self.tokens)?;
        let mut names = Vec::new();
        loop {
            let declaration = variable::declarator(&mut self.tokens, prefix)?;
            self.variable(linkage, constant, &declaration)?;
            names.push(declaration.name);
            if !self.tokens.accept(b',')? {
                return self.tokens.expect(b';').map(|()| names);
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

    fn shared(&mut self, linkage: Linkage) -> Result<Vec<&'t [u8]>, PtxError> {
        let prefix = variable::prefix(&mut self.tokens)?;
        let mut names = Vec::new();
        loop {
            let Declaration { name, bytes, element, align, open, .. } =
                variable::declarator(&mut self.tokens, prefix)?;
            let symbol = if linkage == Linkage::Extern || open {
                ModuleSymbol::Dynamic { element, align }
            } else {
                ModuleSymbol::Shared { bytes, element, align }
            };
            self.declare(name, symbol)?;
            names.push(name);
            if !self.tokens.accept(b',')? {
                return self.tokens.expect(b';').map(|()| names);
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

    /// Replaces names of variables in initial values with their indices, and names of functions with their
    /// addresses. Fails if the module has neither of a name.
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
