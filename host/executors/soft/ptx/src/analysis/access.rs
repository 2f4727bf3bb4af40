//! Registers that each instruction reads and writes.

use crate::ir::{Base, Guard, Mem, Op, Operand, Reg, Special};

/// A register that an instruction reads or writes, or a special register that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterUse {
    Read(Reg),
    Write(Reg),
    Special(Special),
}

/// Lists the registers that an instruction reads, including predicates and bases of addresses. A register may
/// be listed more than once.
pub fn reads(op: &Op, visit: &mut impl FnMut(Reg)) {
    accesses(op, &mut |access| {
        if let RegisterUse::Read(reg) = access {
            visit(reg);
        }
    });
}

/// Lists the registers that an instruction writes.
pub fn writes(op: &Op, visit: &mut impl FnMut(Reg)) {
    accesses(op, &mut |access| {
        if let RegisterUse::Write(reg) = access {
            visit(reg);
        }
    });
}

/// Lists the special registers that an instruction reads.
pub fn specials(op: &Op, visit: &mut impl FnMut(Special)) {
    accesses(op, &mut |access| {
        if let RegisterUse::Special(special) = access {
            visit(special);
        }
    });
}

struct Visitor<'v, F>(&'v mut F);

impl<F: FnMut(RegisterUse)> Visitor<'_, F> {
    fn write(&mut self, reg: Reg) {
        (self.0)(RegisterUse::Write(reg));
    }

    fn results(&mut self, regs: &[Option<Reg>]) {
        for &reg in regs.iter().flatten() {
            self.write(reg);
        }
    }

    fn operand(&mut self, operand: Operand) {
        match operand {
            Operand::Reg(reg) | Operand::Address(Base::Reg(reg), _) => (self.0)(RegisterUse::Read(reg)),
            Operand::Special(special) => (self.0)(RegisterUse::Special(special)),
            Operand::Imm(_) | Operand::Address(Base::Zero | Base::Global(_) | Base::DynamicShared, _) => {}
        }
    }

    fn operands<const N: usize>(&mut self, operands: [Operand; N]) {
        for operand in operands {
            self.operand(operand);
        }
    }

    fn list(&mut self, operands: &[Operand]) {
        for &operand in operands {
            self.operand(operand);
        }
    }

    fn guard(&mut self, guard: Guard) {
        (self.0)(RegisterUse::Read(guard.reg));
    }

    fn mem(&mut self, mem: Mem) {
        if let Base::Reg(reg) = mem.base {
            (self.0)(RegisterUse::Read(reg));
        }
    }
}

/// Lists what an instruction accesses: first all that it reads, then all that it writes.
pub(super) fn accesses(op: &Op, visit: &mut impl FnMut(RegisterUse)) {
    let mut v = Visitor(visit);
    match *op {
        Op::Mov { dst, src, .. }
        | Op::Cvt { dst, src, .. }
        | Op::FromEighths { dst, src, .. }
        | Op::ToTf32 { dst, src, .. }
        | Op::Cvta { dst, src, .. }
        | Op::IsSpace { dst, src, .. } => {
            v.operand(src);
            v.write(dst);
        }
        Op::Pack { dst, ref src, .. } => {
            v.list(src);
            v.write(dst);
        }
        Op::Unpack { ref dst, src, .. } => {
            v.operand(src);
            v.results(dst);
        }
        Op::ToEighths { dst, a, b, .. } => {
            v.operand(a);
            if let Some(b) = b {
                v.operand(b);
            }
            v.write(dst);
        }
        Op::Unary { dst, a, .. } | Op::Bfind { dst, a, .. } | Op::MovMatrix { dst, a } => {
            v.operand(a);
            v.write(dst);
        }
        Op::Binary { dst, a, b, .. }
        | Op::Mul { dst, a, b, .. }
        | Op::Bmsk { dst, a, b, .. }
        | Op::CvtPack { dst, a, b, .. } => {
            v.operands([a, b]);
            v.write(dst);
        }
        Op::Mad { dst, a, b, c, .. }
        | Op::Fma { dst, a, b, c, .. }
        | Op::Dp4a { dst, a, b, c, .. }
        | Op::Dp2a { dst, a, b, c, .. }
        | Op::Bfe { dst, a, b, c, .. }
        | Op::Shf { dst, a, b, c, .. }
        | Op::Prmt { dst, a, b, c, .. }
        | Op::Lop3 { dst, a, b, c, .. } => {
            v.operands([a, b, c]);
            v.write(dst);
        }
        Op::Bfi { dst, a, b, c, d, .. } => {
            v.operands([a, b, c, d]);
            v.write(dst);
        }
        Op::Setp { combine, dst, complement, a, b, .. } => {
            v.operands([a, b]);
            if let Some((_, guard)) = combine {
                v.guard(guard);
            }
            v.results(&[dst, complement]);
        }
        Op::Set { combine, dst, a, b, .. } => {
            v.operands([a, b]);
            if let Some((_, guard)) = combine {
                v.guard(guard);
            }
            v.write(dst);
        }
        Op::Selp { dst, a, b, p, .. } => {
            v.operands([a, b]);
            v.guard(p);
            v.write(dst);
        }
        Op::PredBinary { dst, a, b, .. } => {
            v.guard(a);
            v.guard(b);
            v.write(dst);
        }
        Op::PredMov { dst, src } => {
            v.guard(src);
            v.write(dst);
        }
        Op::PredImm { dst, .. } | Op::ActiveMask { dst } => v.write(dst),
        Op::Ld { mem, ref dst } => {
            v.mem(mem);
            v.results(dst);
        }
        Op::St { mem, ref src } | Op::StMatrix { mem, ref src, .. } => {
            v.mem(mem);
            v.list(src);
        }
        Op::Atom { mem, dst, b, c, .. } => {
            v.mem(mem);
            v.operand(b);
            if let Some(c) = c {
                v.operand(c);
            }
            v.results(&[dst]);
        }
        Op::Fence => {}
        Op::Bar { barrier, threads } => {
            v.operand(barrier);
            if let Some(threads) = threads {
                v.operand(threads);
            }
        }
        Op::BarArrive { barrier, threads } => v.operands([barrier, threads]),
        Op::BarRed { barrier, threads, dst, p, .. } => {
            v.operand(barrier);
            if let Some(threads) = threads {
                v.operand(threads);
            }
            v.guard(p);
            v.write(dst);
        }
        Op::BarWarp { mask } => v.operand(mask),
        Op::Shfl { dst, valid, a, b, c, mask, .. } => {
            v.operands([a, b, c, mask]);
            v.results(&[dst, valid]);
        }
        Op::Vote { dst, p, mask, .. } | Op::Ballot { dst, p, mask } => {
            v.guard(p);
            v.operand(mask);
            v.write(dst);
        }
        Op::Match { dst, p, a, mask, .. } => {
            v.operands([a, mask]);
            v.write(dst);
            v.results(&[p]);
        }
        Op::Redux { dst, a, mask, .. } => {
            v.operands([a, mask]);
            v.write(dst);
        }
        Op::Mma { ref d, ref a, ref b, ref c, .. } => {
            v.list(a);
            v.list(b);
            v.list(c);
            for &dst in d {
                v.write(dst);
            }
        }
        Op::LdMatrix { mem, ref dst, .. } => {
            v.mem(mem);
            for &dst in dst {
                v.write(dst);
            }
        }
        Op::CpAsync { to, from, size, .. } => {
            v.mem(to);
            v.mem(from);
            if let Some(size) = size {
                v.operand(size);
            }
        }
        Op::Nanosleep { ns } => v.operand(ns),
        Op::Printf { dst, format, arguments } => {
            v.operands([format, arguments]);
            v.results(&[dst]);
        }
        Op::Malloc { dst, bytes } => {
            v.operand(bytes);
            v.write(dst);
        }
        Op::Free { address } => v.operand(address),
        Op::Assert { message, file, line, function } => v.operands([message, file, line, function]),
    }
}
