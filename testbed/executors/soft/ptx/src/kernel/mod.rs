//! One kernel: from its text to [`Kernel`].

mod arithmetic;
mod call;
mod compare;
mod convert;
mod flow;
mod matrix;
mod memory;
mod operands;
mod spelling;
mod symbols;
mod warp;

use std::collections::HashMap;

use crate::error::PtxError;
use crate::ir::{Base, Class, Guard, Kernel, Op, Param, Space, Ty};
use crate::lex::{Place, Token, Tokens};
use crate::module;
use crate::variable::{self, Declaration};
use flow::{End, Flow, Target};
use spelling::{Spelling, class};
use symbols::{REGISTERS_MOST, Refused, SCOPES_MOST, Scopes, Symbol};

/// Bytes of a kernel's parameters: what CUDA 12.1 and later allow.
const PARAM_MOST: u64 = 32_764;
/// Bytes of a kernel's static shared memory: more than any device has.
const SHARED_MOST: u64 = 1 << 20;
/// Bytes of a thread's local memory: CUDA's limit.
const LOCAL_MOST: u64 = 512 << 10;

/// What is known of a kernel while it is read.
pub(crate) struct Parser<'t> {
    tokens: Tokens<'t>,
    module: &'t HashMap<Vec<u8>, module::Symbol>,
    scopes: Scopes<'t>,
    flow: Flow,
    /// Where the statement that is being read starts.
    place: Place,
    /// Its instruction.
    word: &'t [u8],
    params: Vec<Param>,
    param_bytes: u64,
    shared_bytes: u64,
    dynamic_align: u64,
    /// Where shared variables of the module lie, those that were used.
    module_shared: HashMap<Vec<u8>, i64>,
    local_bytes: u64,
    max_threads: Option<u32>,
    required_threads: Option<[u32; 3]>,
}

/// Parses the kernel whose name was just read.
pub(crate) fn parse<'t>(
    name: &str,
    tokens: Tokens<'t>,
    module: &'t HashMap<Vec<u8>, module::Symbol>,
) -> Result<Kernel, PtxError> {
    let mut parser = Parser {
        place: tokens.place(),
        tokens,
        module,
        scopes: Scopes::new(),
        flow: Flow::default(),
        word: b"",
        params: Vec::new(),
        param_bytes: 0,
        shared_bytes: 0,
        dynamic_align: 16,
        module_shared: HashMap::new(),
        local_bytes: 0,
        max_threads: None,
        required_threads: None,
    };
    parser.parameters()?;
    parser.performance()?;
    parser.tokens.expect(b'{')?;
    parser.body()?;
    parser.finish(name)
}

impl<'t> Parser<'t> {
    /// Reads `( .param .u64 a, .param .align 8 .b8 b[24] )`, if it is there.
    fn parameters(&mut self) -> Result<(), PtxError> {
        if !self.tokens.take(b'(')? || self.tokens.take(b')')? {
            return Ok(());
        }
        loop {
            if !self.tokens.take_word(b".param")? {
                return Err(self.tokens.expected("`.param`"));
            }
            let prefix = variable::prefix(&mut self.tokens)?;
            let Declaration { name, bytes, align, .. } = variable::declarator(&mut self.tokens, prefix)?;
            let offset = self.param_bytes.next_multiple_of(align);
            self.param_bytes = offset + bytes;
            if self.param_bytes > PARAM_MOST {
                return Err(self.tokens.limit("bytes of parameters", PARAM_MOST));
            }
            self.params.push(Param { offset: offset as u32, bytes: bytes as u32 });
            self.declare(
                name,
                Symbol::Variable { space: Space::Param, base: Base::Zero, offset: offset as i64 },
            )?;
            if !self.tokens.take(b',')? {
                return self.tokens.expect(b')');
            }
        }
    }

    /// Reads the directives between parameters and body.
    fn performance(&mut self) -> Result<(), PtxError> {
        while let Token::Word(word) = self.tokens.peek() {
            self.tokens.next()?;
            match word {
                b".maxntid" => {
                    let threads = self.sizes()?;
                    let product = threads.iter().map(|&axis| axis as u64).product::<u64>();
                    self.max_threads = Some(u32::try_from(product).unwrap_or(u32::MAX));
                }
                b".reqntid" => self.required_threads = Some(self.sizes()?),
                b".minnctapersm" | b".maxnctapersm" | b".maxnreg" => {
                    variable::number(&mut self.tokens, "a number")?;
                }
                b".pragma" => self.pragma()?,
                b".noreturn" => {}
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(self.tokens.error(format!("{word} of a kernel is not supported")));
                }
            }
        }
        Ok(())
    }

    /// Reads one to three sizes.
    fn sizes(&mut self) -> Result<[u32; 3], PtxError> {
        let mut sizes = [1; 3];
        for axis in 0..3 {
            let size = variable::number(&mut self.tokens, "a size")?;
            sizes[axis] = u32::try_from(size).map_err(|_| self.tokens.error(format!("{size} is no size")))?;
            if axis == 2 || !self.tokens.take(b',')? {
                break;
            }
        }
        Ok(sizes)
    }

    fn pragma(&mut self) -> Result<(), PtxError> {
        loop {
            let Token::Quoted(_) = self.tokens.peek() else {
                return Err(self.tokens.expected("a string"));
            };
            self.tokens.next()?;
            if !self.tokens.take(b',')? {
                return self.tokens.expect(b';');
            }
        }
    }

    /// Reads statements up to the brace that ends the body.
    fn body(&mut self) -> Result<(), PtxError> {
        loop {
            match self.tokens.peek() {
                Token::Mark(b'}') => {
                    if self.scopes.depth() == 1 {
                        return Ok(());
                    }
                    self.tokens.next()?;
                    self.scopes.close();
                }
                Token::Mark(b'{') => {
                    if self.scopes.depth() as u64 == SCOPES_MOST {
                        return Err(self.tokens.limit("nested scopes", SCOPES_MOST));
                    }
                    self.tokens.next()?;
                    self.scopes.open();
                }
                Token::Mark(b';') => {
                    self.tokens.next()?;
                }
                _ => self.statement()?,
            }
        }
    }

    fn statement(&mut self) -> Result<(), PtxError> {
        self.place = self.tokens.place();
        let guard = if self.tokens.take(b'@')? { Some(self.guard()?) } else { None };
        let word = self.tokens.word("an instruction")?;
        if word[0] == b'.' && guard.is_none() {
            return self.directive(word);
        }
        if guard.is_none() && self.tokens.take(b':')? {
            let block = self.flow.label(self.place.1);
            if !self.scopes.label(word, block) {
                let word = String::from_utf8_lossy(word);
                return Err(self.tokens.error_at(self.place, format!("there are two labels {word}")));
            }
            return Ok(());
        }
        self.word = word;
        self.instruction(Spelling::new(word), guard)?;
        self.tokens.expect(b';')
    }

    fn instruction(&mut self, mut spelling: Spelling<'t>, guard: Option<Guard>) -> Result<(), PtxError> {
        let (_, line) = self.place;
        let next = self.flow.open() + 1;
        if spelling.base == b"bra" {
            let uniform = spelling.take("uni");
            self.done(&spelling)?;
            let label = variable::name(&mut self.tokens)?;
            let target = Target::Label(self.scopes.refer(label, self.place));
            let end = match guard {
                None => End::Goto(target),
                Some(guard) => End::Branch { guard, uniform, then: target, otherwise: Target::Block(next) },
            };
            self.flow.close(end, line);
            return Ok(());
        }
        // Anything else that is guarded has a block of its own.
        if let Some(guard) = guard {
            let (then, otherwise) = (Target::Block(next), Target::Block(next + 1));
            self.flow.close(End::Branch { guard, uniform: false, then, otherwise }, line);
        }
        let end = match spelling.base {
            b"ret" => {
                spelling.take("uni");
                self.done(&spelling)?;
                Some(End::Return)
            }
            b"exit" => {
                self.done(&spelling)?;
                Some(End::Return)
            }
            b"trap" => {
                self.done(&spelling)?;
                Some(End::Trap)
            }
            b"call" => {
                self.call(spelling)?;
                None
            }
            b"prefetch" | b"prefetchu" => {
                self.prefetch(spelling)?;
                None
            }
            _ => {
                let op = self.operation(spelling)?;
                self.flow.push(op, line);
                None
            }
        };
        match end {
            Some(end) => self.flow.close(end, line),
            None if guard.is_some() => self.flow.close(End::Goto(Target::Block(next + 1)), line),
            None => {}
        }
        Ok(())
    }

    /// Reads an instruction that neither branches nor calls.
    fn operation(&mut self, spelling: Spelling<'t>) -> Result<Op, PtxError> {
        match spelling.base {
            b"mov" => self.mov(spelling),
            b"ld" | b"ldu" => self.load(spelling),
            b"st" => self.store(spelling),
            b"atom" => self.atomic(spelling, true),
            b"red" => self.atomic(spelling, false),
            b"membar" | b"fence" => self.fence(spelling),
            b"cvt" => self.convert(spelling),
            b"cvta" => self.convert_address(spelling),
            b"isspacep" => self.is_space(spelling),
            b"setp" => self.setp(spelling),
            b"set" => self.set(spelling),
            b"selp" => self.selp(spelling),
            b"bar" | b"barrier" => self.barrier(spelling),
            b"shfl" => self.shuffle(spelling),
            b"vote" => self.vote(spelling),
            b"activemask" => self.active_mask(spelling),
            b"match" => self.matching(spelling),
            b"redux" => self.reduce(spelling),
            b"mma" => self.mma(spelling),
            b"nanosleep" => self.nanosleep(spelling),
            _ => self.arithmetic(spelling),
        }
    }

    /// Reads a directive of a body. Its word was read.
    fn directive(&mut self, word: &'t [u8]) -> Result<(), PtxError> {
        match word {
            b".reg" => self.registers(),
            b".shared" | b".local" | b".param" => self.variables(word),
            // What follows stands on the same line. The line may be over already.
            b".loc" | b".file" => {
                if self.tokens.line() == self.place.1 {
                    self.tokens.skip_line()
                } else {
                    Ok(())
                }
            }
            b".pragma" => self.pragma(),
            b".extern" => Err(self.tokens.error_at(self.place, "a kernel cannot declare what is elsewhere")),
            _ => Err(self.unsupported_word(word)),
        }
    }

    /// Reads `.b32 a, b, %r<5>;`.
    fn registers(&mut self) -> Result<(), PtxError> {
        let Token::Word([b'.', name @ ..]) = self.tokens.peek() else {
            return Err(self.tokens.expected("a type"));
        };
        let Some(ty) = variable::ty(name) else {
            return Err(self.tokens.expected("a type of registers"));
        };
        self.tokens.next()?;
        loop {
            let name = variable::name(&mut self.tokens)?;
            let done = if self.tokens.take(b'<')? {
                let count = variable::number(&mut self.tokens, "a number of registers")?;
                self.tokens.expect(b'>')?;
                self.scopes.declare_range(name, count, class(ty))
            } else {
                self.scopes.declare_register(name, class(ty))
            };
            self.declared(name, done)?;
            if !self.tokens.take(b',')? {
                return self.tokens.expect(b';');
            }
        }
    }

    /// Reads the variables of a `.shared`, `.local` or `.param` declaration.
    fn variables(&mut self, space: &[u8]) -> Result<(), PtxError> {
        let prefix = variable::prefix(&mut self.tokens)?;
        loop {
            let declaration = variable::declarator(&mut self.tokens, prefix)?;
            let Declaration { name, bytes, align, ty, open, array } = declaration;
            if open {
                return Err(self.tokens.error_at(self.place, "a variable of a kernel needs a size"));
            }
            let symbol = match space {
                b".shared" => {
                    let offset = self.place_shared(bytes, align)?;
                    Symbol::Variable { space: Space::Shared, base: Base::Zero, offset }
                }
                b".local" => {
                    let offset = self.local_bytes.next_multiple_of(align);
                    self.local_bytes = offset.saturating_add(bytes);
                    if self.local_bytes > LOCAL_MOST {
                        return Err(self.tokens.limit("bytes of local memory", LOCAL_MOST));
                    }
                    Symbol::Variable { space: Space::Local, base: Base::Zero, offset: offset as i64 }
                }
                _ if array || ty.bytes() < 4 => {
                    return Err(self
                        .tokens
                        .error_at(self.place, "a call can only have parameters of 32 or 64 bits"));
                }
                _ => Symbol::CallParam(self.register(class(ty))?),
            };
            self.declare(name, symbol)?;
            if !self.tokens.take(b',')? {
                return self.tokens.expect(b';');
            }
        }
    }

    /// Finds room in static shared memory.
    fn place_shared(&mut self, bytes: u64, align: u64) -> Result<i64, PtxError> {
        let offset = self.shared_bytes.next_multiple_of(align);
        self.shared_bytes = offset.saturating_add(bytes);
        if self.shared_bytes > SHARED_MOST {
            return Err(self.tokens.limit("bytes of shared memory", SHARED_MOST));
        }
        Ok(offset as i64)
    }

    /// What a name of the module means here.
    fn module_symbol(&mut self, name: &[u8]) -> Result<Option<Symbol>, PtxError> {
        let (space, base, offset) = match self.module.get(name) {
            None => return Ok(None),
            Some(&module::Symbol::Global(index)) => (Space::Global, Base::Global(index), 0),
            Some(&module::Symbol::Dynamic { align }) => {
                self.dynamic_align = self.dynamic_align.max(align);
                (Space::Shared, Base::DynamicShared, 0)
            }
            Some(&module::Symbol::Shared { bytes, align }) => {
                let offset = match self.module_shared.get(name) {
                    Some(&offset) => offset,
                    None => {
                        let offset = self.place_shared(bytes, align)?;
                        self.module_shared.insert(name.to_vec(), offset);
                        offset
                    }
                };
                (Space::Shared, Base::Zero, offset)
            }
        };
        Ok(Some(Symbol::Variable { space, base, offset }))
    }

    fn declare(&mut self, name: &'t [u8], symbol: Symbol) -> Result<(), PtxError> {
        let done = self.scopes.declare(name, symbol);
        self.declared(name, done)
    }

    fn register(&mut self, class: Class) -> Result<crate::ir::Reg, PtxError> {
        let reg = self.scopes.register(class);
        reg.map_err(|_| self.tokens.limit("registers", REGISTERS_MOST))
    }

    fn declared(&self, name: &[u8], done: Result<(), Refused>) -> Result<(), PtxError> {
        match done {
            Ok(()) => Ok(()),
            Err(Refused::TooMany) => Err(self.tokens.limit("registers", REGISTERS_MOST)),
            Err(Refused::Twice) => {
                let name = String::from_utf8_lossy(name);
                Err(self.tokens.error_at(self.place, format!("{name} is declared twice")))
            }
        }
    }

    /// An error unless all modifiers were read.
    fn done(&self, spelling: &Spelling<'_>) -> Result<(), PtxError> {
        if spelling.done() { Ok(()) } else { Err(self.unsupported()) }
    }

    /// The error that says that there is no such instruction.
    fn unsupported(&self) -> PtxError {
        self.unsupported_word(self.word)
    }

    fn unsupported_word(&self, word: &[u8]) -> PtxError {
        self.tokens.unsupported(self.place, String::from_utf8_lossy(word))
    }

    /// The value that a modifier gave; none: there is no such instruction.
    fn known<T>(&self, value: Option<T>) -> Result<T, PtxError> {
        value.ok_or_else(|| self.unsupported())
    }

    /// Reads the last modifier, a type of these.
    fn last(&self, spelling: &mut Spelling<'_>, allowed: &[Ty]) -> Result<Ty, PtxError> {
        self.known(spelling.last(allowed))
    }

    fn finish(self, name: &str) -> Result<Kernel, PtxError> {
        let line = self.tokens.line();
        let (registers, labels) =
            self.scopes.finish().map_err(|(label, place)| self.tokens.undeclared(place, label))?;
        let (code, blocks) = self.flow.finish(&labels, line);
        Ok(Kernel {
            name: name.to_owned(),
            params: self.params,
            param_bytes: self.param_bytes as u32,
            registers,
            code,
            blocks,
            shared_bytes: self.shared_bytes as u32,
            dynamic_shared_offset: self.shared_bytes.next_multiple_of(self.dynamic_align) as u32,
            local_bytes: self.local_bytes as u32,
            max_threads: self.max_threads.unwrap_or(1024),
            required_threads: self.required_threads,
        })
    }
}
