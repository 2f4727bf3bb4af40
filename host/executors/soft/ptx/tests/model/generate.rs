//! Random kernels.
//!
//! Kernels use few registers, so that blocks write each other's. If all choices were random, all registers
//! would soon depend on the lane, and the analyses could not be wrong. Therefore most instructions use
//! registers that have the same value for all lanes, some branches diverge, and most blocks continue at the
//! next, as in real texts.

use proptest::prelude::*;
use vgpu_ptx::ir::{
    Atomic, Base, Binary, Block, BlockId, Class, Combine, Compare, Float, Guard, Inst, Kernel, Mem, Op,
    Operand, Order, Reg, Round, Shuffle, Space, Special, Terminator, Ty, Vote,
};

/// Number of registers of 32 bits. The last one initially holds the lane's number.
const NUMBERS: u32 = 6;
/// Number of predicates. The last one initially differs between lanes.
const PREDICATES: u32 = 3;
const LANE: Reg = Reg(NUMBERS - 1);
const PARTING: Reg = Reg(NUMBERS + PREDICATES - 1);
const FLOAT: Float = Float { round: Round::Nearest, ftz: false, sat: false };

/// Registers that an instruction may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegisterPool {
    /// Registers that may have the same value for all lanes.
    Agreed,
    /// All registers, whether they may vary between lanes or not.
    All,
}

impl RegisterPool {
    fn number(self) -> impl Strategy<Value = Reg> + Clone {
        (0..NUMBERS - u32::from(self == Self::Agreed)).prop_map(Reg)
    }

    fn predicate(self) -> impl Strategy<Value = Reg> + Clone {
        (NUMBERS..NUMBERS + PREDICATES - u32::from(self == Self::Agreed)).prop_map(Reg)
    }

    fn guard(self) -> impl Strategy<Value = Guard> {
        (self.predicate(), any::<bool>()).prop_map(|(reg, negated)| Guard { reg, negated })
    }

    fn operand(self) -> impl Strategy<Value = Operand> {
        prop_oneof![6 => self.number().prop_map(Operand::Reg), 3 => (0_u64..6).prop_map(Operand::Imm)]
    }

    fn mem(self, spaces: &[Space]) -> impl Strategy<Value = Mem> + use<> {
        let base = prop_oneof![self.number().prop_map(Base::Reg), Just(Base::Zero)];
        (prop::sample::select(spaces.to_vec()), base).prop_map(|(space, base)| Mem {
            space,
            base,
            offset: 0,
            ty: Ty::U32,
            order: Order::Weak,
        })
    }

    fn setp(self) -> impl Strategy<Value = Op> {
        let with = (prop::sample::select(vec![Combine::And, Combine::Or]), self.guard());
        let complement = prop::option::weighted(0.2, self.predicate());
        let compare = prop::sample::select(vec![Compare::Lt, Compare::Eq]);
        (
            compare,
            prop::option::weighted(0.2, with),
            self.predicate(),
            complement,
            self.operand(),
            self.operand(),
        )
            .prop_map(|(compare, combine, dst, complement, a, b)| Op::Setp {
                compare,
                ty: Ty::U32,
                ftz: false,
                combine,
                dst: Some(dst),
                complement: complement.filter(|&complement| complement != dst),
                a,
                b,
            })
    }

    /// Returns an instruction through which lanes see each other's values.
    fn warp_op(self) -> impl Strategy<Value = Op> {
        let mask = prop_oneof![2 => Just(Operand::Imm(0xFFFF_FFFF)), 1 => RegisterPool::All.number().prop_map(Operand::Reg)];
        let zero = Operand::Imm(0);
        let vote = prop::sample::select(vec![Vote::All, Vote::Any]);
        prop_oneof![
            (self.number(), self.predicate(), self.operand(), self.operand()).prop_map(
                move |(dst, valid, a, b)| {
                    Op::Shfl {
                        mode: Shuffle::Bfly,
                        dst: Some(dst),
                        valid: Some(valid),
                        a,
                        b,
                        c: zero,
                        mask: zero,
                    }
                }
            ),
            (vote, self.predicate(), RegisterPool::All.guard(), mask.clone())
                .prop_map(|(op, dst, p, mask)| Op::Vote { op, dst, p, mask }),
            (self.number(), RegisterPool::All.guard(), mask).prop_map(|(dst, p, mask)| Op::Ballot {
                dst,
                p,
                mask
            }),
            self.number().prop_map(|dst| Op::ActiveMask { dst }),
        ]
    }

    fn op(self) -> impl Strategy<Value = Op> {
        let ty = Ty::U32;
        let same = [Space::Global, Space::Shared, Space::Param];
        let special = match self {
            Self::Agreed => vec![Special::Ctaid(0), Special::Ntid(0)],
            Self::All => vec![Special::Tid(0), Special::Tid(1), Special::LaneId],
        };
        prop_oneof![
            6 => (self.number(), self.operand()).prop_map(move |(dst, src)| Op::Mov { ty, dst, src }),
            1 => (self.number(), prop::sample::select(special))
                .prop_map(move |(dst, special)| Op::Mov { ty, dst, src: Operand::Special(special) }),
            6 => (self.number(), self.operand(), self.operand())
                .prop_map(move |(dst, a, b)| Op::Binary { op: Binary::Add, ty, float: FLOAT, dst, a, b }),
            6 => self.setp(),
            2 => (self.number(), self.operand(), self.operand(), self.guard())
                .prop_map(move |(dst, a, b, p)| Op::Selp { ty, dst, a, b, p }),
            1 => (self.predicate(), self.guard(), self.guard())
                .prop_map(|(dst, a, b)| Op::PredBinary { op: Combine::And, dst, a, b }),
            1 => (self.mem(&same), self.number()).prop_map(|(mem, dst)| Op::Ld { mem, dst: vec![Some(dst)] }),
            1 => (self.mem(&same), self.number()).prop_map(|(mem, dst)| Op::Ld { mem, dst: vec![Some(dst), None] }),
        ]
    }
}

fn op() -> impl Strategy<Value = Op> {
    let apart = [Space::Local, Space::Generic];
    prop_oneof![
        30 => RegisterPool::Agreed.op(),
        3 => RegisterPool::All.op(),
        12 => (RegisterPool::All.operand(), RegisterPool::All.operand()).prop_map(|(a, b)| Op::St {
            mem: Mem { space: Space::Global, base: Base::Zero, offset: 0, ty: Ty::U32, order: Order::Weak },
            src: vec![a, b],
        }),
        2 => (RegisterPool::Agreed.mem(&apart), RegisterPool::All.number()).prop_map(|(mem, dst)| Op::Ld { mem, dst: vec![Some(dst)] }),
        1 => (RegisterPool::All.mem(&[Space::Global]), RegisterPool::All.number(), RegisterPool::All.operand()).prop_map(|(mem, dst, b)| {
            Op::Atom { op: Atomic::Add, mem, float: FLOAT, dst: Some(dst), b, c: None }
        }),
        4 => RegisterPool::Agreed.warp_op(),
    ]
}

/// Returns a terminator of one of `blocks` blocks. Most continue at the next block.
fn terminator(block: u32, blocks: u32) -> impl Strategy<Value = Terminator> {
    let to = move || prop_oneof![3 => Just((block + 1).min(blocks - 1)), 2 => 0..blocks].prop_map(BlockId);
    let guard = prop_oneof![
        RegisterPool::Agreed.guard(),
        any::<bool>().prop_map(|negated| Guard { reg: PARTING, negated })
    ];
    prop_oneof![
        3 => to().prop_map(Terminator::Goto),
        8 => (guard, to(), to()).prop_map(|(guard, then, otherwise)| {
            Terminator::Branch { guard, uniform: false, then, otherwise }
        }),
        1 => Just(Terminator::Return),
    ]
}

/// Returns a kernel of up to ten blocks. In half of them, lanes see each other's values.
pub fn kernel() -> impl Strategy<Value = Kernel> {
    (2_u32..11, any::<bool>(), 1_u64..7).prop_flat_map(|(count, warp, below)| {
        let blocks: Vec<_> =
            (0..count).map(|index| (prop::collection::vec(op(), 0..5), terminator(index, count))).collect();
        blocks.prop_map(move |mut blocks| {
            let ty = Ty::U32;
            let (a, b) = (Operand::Reg(LANE), Operand::Imm(below));
            let lane = Op::Mov { ty, dst: LANE, src: Operand::Special(Special::Tid(0)) };
            let (dst, complement) = (Some(PARTING), None);
            let parting =
                Op::Setp { compare: Compare::Lt, ty, ftz: false, combine: None, dst, complement, a, b };
            blocks[0].0.splice(0..0, [lane, parting]);
            for (code, _) in &mut blocks {
                code.retain(|op| warp || !super::sees_others(op));
            }
            build(blocks)
        })
    })
}

fn build(parts: Vec<(Vec<Op>, Terminator)>) -> Kernel {
    let (mut code, mut blocks) = (Vec::new(), Vec::new());
    for (ops, end) in parts {
        let start = code.len() as u32;
        code.extend(ops.into_iter().map(|op| Inst { op, line: 1 }));
        blocks.push(Block { code: start..code.len() as u32, end, line: 1 });
    }
    let numbers = std::iter::repeat_n(Class::B32, NUMBERS as usize);
    Kernel {
        registers: numbers.chain(std::iter::repeat_n(Class::Pred, PREDICATES as usize)).collect(),
        code,
        blocks,
        ..Kernel::default()
    }
}
