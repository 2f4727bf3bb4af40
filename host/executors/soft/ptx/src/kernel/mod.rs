//! Parser of one kernel, from its text to a [`Kernel`].

mod arithmetic;
mod branch;
mod call;
mod carry;
mod compare;
mod convert;
mod copy;
mod declarations;
mod flow;
mod frames;
mod matrix;
mod mbarrier;
mod memory;
mod operands;
mod routine;
mod routines;
mod spelling;
mod stack;
mod symbols;
mod synthetic;
mod warp;
mod wmma;

use std::collections::HashMap;

use crate::error::PtxError;
use crate::ir::{Guard, Kernel, Op, Param, Reg, Ty};
use crate::lex::{TextPosition, Token, Tokens};
use crate::symbol::ModuleSymbol;
use flow::{BranchTarget, End, Flow};
use routines::Routines;
use spelling::Spelling;
use symbols::{SCOPES_MOST, Scopes};

/// Largest number of blocks of a kernel. `LIVE_MOST` limits the bits of all sets of registers, one set for
/// each block. Analyses need time and memory for both. The largest real kernels have 2,244 blocks and 96
/// million bits.
const BLOCKS_MOST: u64 = 1 << 13;
const LIVE_MOST: u64 = 1 << 27;

/// The state of parsing a kernel.
pub(crate) struct Parser<'t> {
    tokens: Tokens<'t>,
    module: &'t HashMap<Vec<u8>, ModuleSymbol>,
    scopes: Scopes<'t>,
    /// Functions whose bodies are being parsed, the innermost last.
    calls: Vec<&'t [u8]>,
    /// Number of times that each function was inlined.
    copies: HashMap<&'t [u8], u32>,
    /// Functions that have a separate body in the kernel, and their calls.
    routines: Routines<'t>,
    /// Predicate register of the carry (`CC.CF`), once an instruction has used it.
    carry: Option<Reg>,
    /// Number of open scopes at the end of the body that is being parsed.
    base: usize,
    flow: Flow,
    /// Position of the start of the current statement.
    place: TextPosition,
    /// Name of the instruction with its modifiers, as it is written.
    word: &'t [u8],
    params: Vec<Param>,
    param_bytes: u64,
    shared_bytes: u64,
    dynamic_align: u64,
    /// Offsets of the module's shared variables that the kernel uses.
    module_shared: HashMap<Vec<u8>, i64>,
    local_bytes: u64,
    max_threads: Option<u32>,
    required_threads: Option<[u32; 3]>,
}

/// Parses the kernel whose name was just read.
pub(crate) fn parse<'t>(
    name: &str,
    tokens: Tokens<'t>,
    module: &'t HashMap<Vec<u8>, ModuleSymbol>,
) -> Result<Kernel, PtxError> {
    let mut parser = Parser {
        place: tokens.place(),
        tokens,
        module,
        scopes: Scopes::new(),
        calls: Vec::new(),
        copies: HashMap::new(),
        routines: Routines::default(),
        carry: None,
        base: 1,
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
    parser.read_routines()?;
    parser.finish(name)
}

impl<'t> Parser<'t> {
    fn pragma(&mut self) -> Result<(), PtxError> {
        loop {
            let Token::Quoted(_) = self.tokens.peek() else {
                return Err(self.tokens.expected("a string"));
            };
            self.tokens.next()?;
            if !self.tokens.accept(b',')? {
                return self.tokens.expect(b';');
            }
        }
    }

    /// Parses statements up to the brace that ends the body. The brace is the next token then.
    fn body(&mut self) -> Result<(), PtxError> {
        loop {
            match self.tokens.peek() {
                Token::Mark(b'}') => {
                    if self.scopes.depth() == self.base {
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
                _ => {
                    self.statement()?;
                    self.account()?;
                }
            }
        }
    }

    /// Counts the effort of a statement that its tokens do not cover: look-ups of names, and the memory of
    /// instructions, blocks and names.
    fn account(&mut self) -> Result<(), PtxError> {
        let effort = self.tokens.effort();
        effort.spend(self.scopes.take_work())?;
        Ok(effort.hold(self.flow.bytes() + self.scopes.bytes())?)
    }

    fn statement(&mut self) -> Result<(), PtxError> {
        self.place = self.tokens.place();
        let guard = if self.tokens.accept(b'@')? { Some(self.guard()?) } else { None };
        let word = self.tokens.word("an instruction")?;
        if word[0] == b'.' && guard.is_none() {
            return self.directive(word);
        }
        if guard.is_none() && self.tokens.accept(b':')? {
            let block = self.flow.label(self.place.1);
            if !self.scopes.label(word, block) {
                let word = String::from_utf8_lossy(word);
                return Err(self.tokens.error_at(self.place, format!("there are two labels {word}")));
            }
            return self.call_label(word).map(|_| ());
        }
        self.word = word;
        self.instruction(Spelling::new(word), guard)?;
        self.tokens.expect(b';')
    }

    fn instruction(&mut self, mut spelling: Spelling<'t>, guard: Option<Guard>) -> Result<(), PtxError> {
        let (_, line) = self.place;
        let next = self.flow.open() + 1;
        match spelling.base {
            b"bra" | b"brx" => return self.branch(spelling, guard),
            b"call" => return self.call(spelling, guard),
            _ => {}
        }
        // Every other guarded instruction gets its own block. Two more follow if it is a wait that may sleep.
        let after = next + if self.word.starts_with(b"mbarrier.try_wait") { 3 } else { 1 };
        if let Some(guard) = guard {
            let (then, otherwise) = (BranchTarget::Block(next), BranchTarget::Block(after));
            self.flow.close(End::Branch { guard, uniform: false, then, otherwise }, line);
        }
        let end = match spelling.base {
            b"ret" => {
                spelling.accept("uni");
                self.done(&spelling)?;
                Some(self.end_of_body())
            }
            b"exit" => {
                self.done(&spelling)?;
                Some(End::Return)
            }
            b"trap" => {
                self.done(&spelling)?;
                Some(End::Trap)
            }
            b"prefetch" | b"prefetchu" | b"applypriority" | b"discard" => {
                self.cache_hint(spelling)?;
                None
            }
            b"wmma" => {
                self.wmma(spelling)?;
                None
            }
            b"mbarrier" => {
                self.mbarrier(spelling)?;
                None
            }
            b"griddepcontrol" => {
                self.grid_dependency(spelling)?;
                None
            }
            b"cp" => {
                if let Some(op) = self.copy_async(spelling)? {
                    self.flow.push(op, line);
                }
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
            None if guard.is_some() => self.flow.close(End::Goto(BranchTarget::Block(after)), line),
            None => {}
        }
        Ok(())
    }

    /// Reads an instruction that neither branches nor calls, and that becomes one instruction here.
    fn operation(&mut self, mut spelling: Spelling<'t>) -> Result<Op, PtxError> {
        if let Some(op) = self.with_carry(&mut spelling)? {
            return Ok(op);
        }
        match spelling.base {
            b"mov" => self.mov(spelling),
            b"ld" | b"ldu" => self.load(spelling),
            b"st" => self.store(spelling),
            b"atom" => self.atomic(spelling, true),
            b"red" => self.atomic(spelling, false),
            b"membar" | b"fence" => self.fence(spelling),
            b"createpolicy" => self.create_policy(spelling),
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
            b"ldmatrix" => self.load_matrices(spelling),
            b"stmatrix" => self.store_matrices(spelling),
            b"movmatrix" => self.move_matrix(spelling),
            b"nanosleep" => self.nanosleep(spelling),
            _ => self.arithmetic(spelling),
        }
    }

    /// Reads a directive of a body, whose word has been taken.
    fn directive(&mut self, word: &'t [u8]) -> Result<(), PtxError> {
        match word {
            b".reg" => self.registers(),
            b".shared" | b".local" | b".param" => self.variables(word),
            // The arguments are on the same line, which may have ended already.
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

    /// Adds an instruction at the line of the current statement.
    fn push(&mut self, op: Op) {
        self.flow.push(op, self.place.1);
    }

    /// Fails with [`PtxError::Unsupported`] if modifiers remain that were not read.
    fn done(&self, spelling: &Spelling<'_>) -> Result<(), PtxError> {
        self.require(spelling.done())
    }

    /// Fails with [`PtxError::Unsupported`] if `exists` is false.
    fn require(&self, exists: bool) -> Result<(), PtxError> {
        if exists { Ok(()) } else { Err(self.unsupported()) }
    }

    /// Makes the error that the ISA or this front end has no such instruction. It shows the current
    /// statement.
    fn unsupported(&self) -> PtxError {
        self.unsupported_word(self.word)
    }

    fn unsupported_word(&self, word: &[u8]) -> PtxError {
        self.tokens.unsupported(self.place, String::from_utf8_lossy(word))
    }

    /// Returns the value of a modifier. Fails with [`PtxError::Unsupported`] if it is `None`.
    fn known<T>(&self, value: Option<T>) -> Result<T, PtxError> {
        value.ok_or_else(|| self.unsupported())
    }

    /// Reads the last modifier, which must be a type of this list.
    fn last(&self, spelling: &mut Spelling<'_>, allowed: &[Ty]) -> Result<Ty, PtxError> {
        self.last_of(spelling, &[allowed])
    }

    /// Reads the last modifier, which must be a type of one of these lists.
    fn last_of(&self, spelling: &mut Spelling<'_>, allowed: &[&[Ty]]) -> Result<Ty, PtxError> {
        self.known(spelling.last(allowed))
    }

    fn finish(self, name: &str) -> Result<Kernel, PtxError> {
        let line = self.tokens.line();
        let (mut registers, labels) =
            self.scopes.finish().map_err(|(label, place)| self.tokens.undeclared(place, label))?;
        let (mut flow, mut local_bytes) = (self.flow, self.local_bytes);
        let stack = self.routines.frame.zip(self.routines.link).filter(|_| !self.routines.sites.is_empty());
        if let Some(stack) = stack {
            if flow.blocks.len() as u64 + self.routines.blocks() > BLOCKS_MOST {
                return Err(self.tokens.too_large("blocks", BLOCKS_MOST));
            }
            if flow.blocks.len() as u64 * registers.len() as u64 > LIVE_MOST {
                return Err(self.tokens.too_large("registers times blocks", LIVE_MOST));
            }
            let effort = self.tokens.effort();
            let expanded =
                stack::expand(&flow, &labels, &self.routines, stack, local_bytes, &mut registers, effort)?;
            (flow, local_bytes) = (expanded.flow, expanded.local_bytes);
        }
        let (code, blocks) = flow.finish(&labels, line);
        if blocks.len() as u64 > BLOCKS_MOST {
            return Err(self.tokens.too_large("blocks", BLOCKS_MOST));
        }
        if blocks.len() as u64 * registers.len() as u64 > LIVE_MOST {
            return Err(self.tokens.too_large("registers times blocks", LIVE_MOST));
        }
        Ok(Kernel {
            name: name.to_owned(),
            params: self.params,
            param_bytes: self.param_bytes as u32,
            registers,
            code,
            blocks,
            shared_bytes: self.shared_bytes as u32,
            dynamic_shared_offset: self.shared_bytes.next_multiple_of(self.dynamic_align) as u32,
            local_bytes: local_bytes as u32,
            calls: stack.is_some(),
            max_threads: self.max_threads.unwrap_or(1024),
            independent_lanes: false,
            required_threads: self.required_threads,
        })
    }
}
