//! Parser of loads, stores, read-modify-write operations and fences (PTX ISA, "Data Movement and Conversion"
//! and "Parallel Synchronization and Communication Instructions").

use crate::error::PtxError;
use crate::ir::{Atomic, Class, Float, Mem, Op, Operand, Order, Reg, Round, Space, Ty};
use crate::kernel::Parser;
use crate::kernel::operands::{ParsedAddress, Width};
use crate::kernel::spelling::{ANY, Spelling, bits};
use crate::kernel::synthetic::resize;
use crate::variable;

/// Types of 8 bits, which exist only in memory.
const BYTES: &[Ty] = &[Ty::B8, Ty::U8, Ty::S8];

/// State spaces by name. Constants are in device memory.
pub(super) const SPACES: &[(&str, Space)] = &[
    ("const", Space::Global),
    ("global", Space::Global),
    ("shared", Space::Shared),
    ("shared::cta", Space::Shared),
    // A cluster has one block.
    ("shared::cluster", Space::Shared),
    ("local", Space::Local),
    ("param", Space::Param),
    ("param::entry", Space::Param),
    ("param::func", Space::Param),
];

/// Cache hints, which change no value and are dropped.
const HINTS: &[&str] = &[
    "nc",
    "ca",
    "cg",
    "cs",
    "lu",
    "wb",
    "wt",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::evict_normal",
    "L2::evict_first",
    "L2::evict_last",
    "L2::64B",
    "L2::128B",
    "L2::256B",
];

const SCOPES: &[(&str, ())] = &[("cta", ()), ("cluster", ()), ("gpu", ()), ("sys", ()), ("gl", ())];

/// Memory orders of `atom`. `red` has the first two.
const RMW_ORDERS: &[(&str, Order)] = &[
    ("relaxed", Order::Relaxed),
    ("release", Order::Release),
    ("acquire", Order::Acquire),
    ("acq_rel", Order::AcqRel),
];

const RMW_OPERATIONS: &[(&str, Atomic)] = &[
    ("and", Atomic::And),
    ("or", Atomic::Or),
    ("xor", Atomic::Xor),
    ("exch", Atomic::Exch),
    ("cas", Atomic::Cas),
    ("add", Atomic::Add),
    ("inc", Atomic::Inc),
    ("dec", Atomic::Dec),
    ("min", Atomic::Min),
    ("max", Atomic::Max),
];

/// Modifier of an access whose last operand is a cache policy.
const CACHE_HINT: &str = "L2::cache_hint";

/// Eviction priorities of a cache policy. A secondary one is among the last two.
const PRIORITIES: &[(&str, ())] =
    &[("L2::evict_last", ()), ("L2::evict_normal", ()), ("L2::evict_first", ()), ("L2::evict_unchanged", ())];

/// Modifiers between `ld` and its operands.
#[derive(Clone, Copy, Debug)]
struct AccessModifiers {
    space: Option<Space>,
    order: Order,
    elements: usize,
    ty: Ty,
    /// Whether a cache policy follows the operands.
    hinted: bool,
}

impl<'t> Parser<'t> {
    fn access(&self, s: &mut Spelling<'_>, ordered: (&str, Order)) -> Result<AccessModifiers, PtxError> {
        let (name, order) = ordered;
        let orders = [
            ("weak", (Order::Weak, false)),
            ("volatile", (Order::Relaxed, false)),
            ("relaxed", (Order::Relaxed, true)),
            (name, (order, true)),
        ];
        let mut order = if s.accept("mmio") {
            self.require(s.accept("relaxed") && s.accept("sys"))?;
            Order::Relaxed
        } else {
            let (order, scoped) = s.pick(&orders).unwrap_or((Order::Weak, false));
            if scoped {
                self.known(s.pick(SCOPES))?;
            }
            order
        };
        let space = s.pick(SPACES);
        let mut hinted = false;
        loop {
            if s.accept(CACHE_HINT) {
                self.require(!hinted)?;
                hinted = true;
            } else if name == "acquire" && order == Order::Weak && s.accept("cv") {
                // The load reads memory anew each time, as a volatile one does.
                order = Order::Relaxed;
            } else if s.peek().is_some_and(|part| HINTS.iter().any(|hint| hint.as_bytes() == part)) {
                s.next();
            } else {
                break;
            }
        }
        let elements = s.pick(&[("v2", 2), ("v4", 4)]).unwrap_or(1);
        let ty = self.last_of(s, &[BYTES, ANY])?;
        self.require(elements * ty.bytes() as usize <= 16)?;
        Ok(AccessModifiers { space, order, elements, ty, hinted })
    }

    /// Reads the cache policy at the end of the operands, if there is one. It changes no value.
    pub(super) fn cache_policy(&mut self, hinted: bool) -> Result<(), PtxError> {
        if hinted { self.src(Ty::B64).map(|_| ()) } else { Ok(()) }
    }

    /// Reads `createpolicy`. Its result is opaque, and no access here depends on it.
    pub fn create_policy(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let kind = self.known(s.pick(&[("fractional", 0), ("range", 1), ("cvt", 2)]))?;
        if kind == 2 {
            self.require(s.accept("L2"))?;
        } else {
            if kind == 1 {
                s.accept("global");
            }
            self.known(s.pick(PRIORITIES))?;
            s.pick(&PRIORITIES[2..]);
        }
        self.last(&mut s, &[Ty::B64])?;
        let dst = self.dst(Ty::B64)?;
        match kind {
            0 if self.tokens.accept(b',')? => {
                self.operand(Ty::F32, Width::Same)?;
            }
            0 => {}
            1 => {
                self.comma()?;
                self.address()?;
                self.sources([Ty::B32; 2])?;
            }
            _ => {
                self.src(Ty::B64)?;
            }
        }
        Ok(Op::Mov { ty: Ty::B64, dst, src: Operand::Imm(0) })
    }

    /// Returns the memory operand for an address. The inner error is the register of a call's parameter, if
    /// the address names one that is in a register.
    pub(super) fn memory(
        &mut self,
        space: Option<Space>,
        order: Order,
        ty: Ty,
    ) -> Result<Result<Mem, Reg>, PtxError> {
        let place = self.tokens.place();
        match self.address()? {
            ParsedAddress::CallParam(reg) if space == Some(Space::Param) => Ok(Err(reg)),
            ParsedAddress::CallMemory { base, offset } if space == Some(Space::Param) => {
                Ok(Ok(Mem { space: Space::Local, base, offset, ty, order }))
            }
            ParsedAddress::CallParam(_) | ParsedAddress::CallMemory { .. } => {
                Err(self.tokens.error_at(place, "a call's parameter is in the state space .param alone"))
            }
            ParsedAddress::Memory { space: of, base, offset } => {
                // If the instruction names no state space, that of the variable counts.
                let space = match (space, of) {
                    (None, of) => of.unwrap_or(Space::Generic),
                    (Some(space), Some(of)) if space != of => {
                        return Err(self
                            .tokens
                            .error_at(place, format!("the variable is not in {space:?} memory")));
                    }
                    (Some(space), _) => space,
                };
                Ok(Ok(Mem { space, base, offset, ty, order }))
            }
        }
    }

    /// Reads `ld` or `ldu` of one element or a vector.
    pub fn load(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let AccessModifiers { space, order, elements, ty, hinted } =
            self.access(&mut s, ("acquire", Order::Acquire))?;
        let dst = self.vector_of(elements, |parser| parser.sink(ty, Width::AtLeast))?;
        self.comma()?;
        let from = self.memory(space, order, ty)?;
        self.cache_policy(hinted)?;
        match from {
            Ok(mem) => Ok(Op::Ld { mem, dst }),
            Err(src) => {
                let [Some(dst)] = dst[..] else { return Err(self.unsupported()) };
                if let Some(from) = self.part_of(src, ty, self.scopes.class(dst)) {
                    return Ok(Self::resize_to_class(from, dst, self.scopes.class(dst), Operand::Reg(src)));
                }
                self.whole(src, ty, Some(dst))?;
                Ok(Op::Mov { ty, dst, src: Operand::Reg(src) })
            }
        }
    }

    /// Reads `st` of one element or a vector.
    pub fn store(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let AccessModifiers { space, order, elements, ty, hinted } =
            self.access(&mut s, ("release", Order::Release))?;
        let mem = self.memory(space, order, ty)?;
        self.comma()?;
        let src = self.vector_of(elements, |parser| parser.operand(ty, Width::AtLeast))?;
        self.cache_policy(hinted)?;
        match mem {
            Ok(Mem { space: Space::Param, .. }) => {
                Err(self.tokens.error_at(self.place, "a kernel's parameters cannot be written"))
            }
            Ok(mem) => Ok(Op::St { mem, src }),
            Err(dst) => {
                let [src] = src[..] else { return Err(self.unsupported()) };
                // Compilers pass a byte in 32 bits, of which the upper ones have no meaning.
                if self.scopes.class(dst) == Class::B32
                    && let Some(from) = self.part_of(dst, ty, Class::B32)
                {
                    return Ok(Self::resize_to_class(from, dst, Class::B32, src));
                }
                let from = if let Operand::Reg(reg) = src { Some(reg) } else { None };
                self.whole(dst, ty, from)?;
                Ok(Op::Mov { ty, dst, src })
            }
        }
    }

    /// Returns the type as an integer if an access is to the lower part of a call's parameter, or its
    /// register is wider.
    fn part_of(&self, param: Reg, ty: Ty, other: Class) -> Option<Ty> {
        let narrow = 8 * ty.bytes() < bits(self.scopes.class(param)) || 8 * ty.bytes() < bits(other);
        match (ty.bytes(), ty.signed()) {
            _ if !narrow => None,
            (1, false) => Some(Ty::U8),
            (1, true) => Some(Ty::S8),
            (2, false) => Some(Ty::U16),
            (2, true) => Some(Ty::S16),
            (4, false) => Some(Ty::U32),
            (4, true) => Some(Ty::S32),
            _ => None,
        }
    }

    /// Converts the lower part of a value to the width of a register.
    fn resize_to_class(from: Ty, dst: Reg, class: Class, src: Operand) -> Op {
        let to = match (class, from.signed()) {
            (Class::B64, false) => Ty::U64,
            (Class::B64, true) => Ty::S64,
            (Class::B32, false) => Ty::U32,
            (Class::B32, true) => Ty::S32,
            (_, false) => Ty::U16,
            (_, true) => Ty::S16,
        };
        resize(to, from, dst, src)
    }

    /// Checks that a call's parameter is accessed as a whole, with a register of its width.
    fn whole(&self, param: Reg, ty: Ty, other: Option<Reg>) -> Result<(), PtxError> {
        let class = self.scopes.class(param);
        if bits(class) == 8 * ty.bytes() && other.is_none_or(|other| self.scopes.class(other) == class) {
            return Ok(());
        }
        Err(self.tokens.error_at(self.place, "a call's parameter can only be accessed as a whole"))
    }

    /// Reads `prefetch`, `applypriority` or `discard`, which are hints and are dropped.
    pub fn cache_hint(&mut self, mut s: Spelling<'t>) -> Result<(), PtxError> {
        let sized = s.base == b"applypriority" || s.base == b"discard";
        s.pick(SPACES);
        self.known(s.pick(&[("L1", ()), ("L2", ()), ("L2::evict_last", ()), ("L2::evict_normal", ())]))?;
        self.done(&s)?;
        self.address()?;
        if sized {
            self.comma()?;
            variable::number(&mut self.tokens, "a size")?;
        }
        Ok(())
    }

    /// Reads `atom`, or `red`, which has no result.
    pub fn atomic(&mut self, mut s: Spelling<'t>, result: bool) -> Result<Op, PtxError> {
        let orders = if result { RMW_ORDERS } else { &RMW_ORDERS[..2] };
        let (mut order, mut scope, mut space, mut op, mut ty) = (None, None, None, None, None);
        let (mut noftz, mut hinted) = (false, false);
        // The assembler accepts the modifiers in any order, and compilers have different ones.
        while !s.done() {
            let again = if let Some(found) = s.pick(orders) {
                order.replace(found).is_some()
            } else if let Some(found) = s.pick(&SCOPES[..4]) {
                scope.replace(found).is_some()
            } else if let Some(found) = s.pick(&SPACES[1..5]) {
                space.replace(found).is_some()
            } else if let Some(found) = s.pick(RMW_OPERATIONS) {
                op.replace(found).is_some()
            } else if s.accept("noftz") {
                std::mem::replace(&mut noftz, true)
            } else if s.accept(CACHE_HINT) {
                std::mem::replace(&mut hinted, true)
            } else {
                ty.replace(self.known(s.ty())?).is_some()
            };
            self.require(!again)?;
        }
        let (op, ty) = (self.known(op)?, self.known(ty)?);
        let fits = match op {
            Atomic::And | Atomic::Or | Atomic::Xor => matches!(ty, Ty::B32 | Ty::B64),
            Atomic::Exch => matches!(ty, Ty::B32 | Ty::B64) && result,
            Atomic::Cas => matches!(ty, Ty::B16 | Ty::B32 | Ty::B64) && result,
            Atomic::Add => match ty {
                Ty::U32 | Ty::S32 | Ty::U64 | Ty::F32 | Ty::F64 => !noftz,
                Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2 => noftz,
                _ => false,
            },
            Atomic::Inc | Atomic::Dec => ty == Ty::U32,
            Atomic::Min | Atomic::Max => matches!(ty, Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64),
            Atomic::Arrive => false,
        };
        self.require(fits && (!noftz || op == Atomic::Add) && !(hinted && op == Atomic::Cas))?;
        let dst = if result {
            let dst = self.sink(ty, Width::Same)?;
            self.comma()?;
            dst
        } else {
            None
        };
        let Ok(mem) = self.memory(space, order.unwrap_or(Order::Relaxed), ty)? else {
            return Err(self.unsupported());
        };
        let b = self.src(ty)?;
        let c = if op == Atomic::Cas { Some(self.src(ty)?) } else { None };
        self.cache_policy(hinted)?;
        // Single-precision sums flush subnormals in global memory, but not in shared memory.
        let ftz = ty == Ty::F32 && op == Atomic::Add && mem.space != Space::Shared;
        Ok(Op::Atom { op, mem, float: Float { round: Round::Nearest, ftz, sat: false }, dst, b, c })
    }

    /// Reads `membar` or `fence` of any scope. Accesses through other proxies are ordinary ones here, so that
    /// `fence.proxy` is a fence.
    pub fn fence(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let fence = s.base == b"fence";
        if fence && s.accept("mbarrier_init") {
            self.require(s.accept("release") && s.accept("cluster"))?;
        } else if fence && s.accept("proxy") {
            let space = self.known(s.pick(&[("alias", false), ("async", true)]))?;
            if space {
                s.pick(&SPACES[1..5]);
            }
        } else {
            if fence {
                s.pick(&[("sc", ()), ("acq_rel", ()), ("acquire", ()), ("release", ())]);
            }
            self.known(s.pick(SCOPES))?;
        }
        self.done(&s)?;
        Ok(Op::Fence)
    }
}
