//! `wmma`: products of matrices whose elements' places in the lanes are the device's own affair.
//!
//! Here element `e` of a matrix, counted along the rows, is element `e / 32` of lane `e % 32`, however the
//! matrix lies in memory. So loads and stores become those of single elements, and only the product is an
//! instruction of its own. Of the registers that the ISA gives to A and B, some stay empty.

use crate::error::PtxError;
use crate::ir::{
    Base, Binary, Class, Float, Half, Mem, Mma, Op, Operand, Order, Reg, Round, Space, Special, Ty,
};
use crate::kernel::Parser;
use crate::kernel::operands::Width;
use crate::kernel::spelling::Spelling;

/// Lanes of a warp.
const LANES: u64 = 32;

/// m, n and k.
const SHAPES: &[(&str, [u8; 3])] =
    &[("m16n16k16", [16, 16, 16]), ("m8n32k16", [8, 32, 16]), ("m32n8k16", [32, 8, 16])];

const LAYOUTS: &[(&str, bool)] = &[("row", false), ("col", true)];

/// A matrix in memory.
#[derive(Clone, Copy, Debug)]
struct Matrix {
    rows: u64,
    columns: u64,
    /// Whether its columns lie one after the other, or its rows.
    by_columns: bool,
    space: Option<Space>,
    ty: Ty,
    /// Registers of a lane.
    registers: usize,
}

impl Matrix {
    /// Registers that hold elements.
    const fn filled(&self) -> usize {
        (self.rows * self.columns / LANES) as usize / (4 / self.ty.bytes() as usize)
    }
}

/// The exact integer arithmetic of addresses.
const EXACT: Float = Float { round: Round::Nearest, ftz: false, sat: false };

impl<'t> Parser<'t> {
    /// `wmma.load`, `wmma.mma`, `wmma.store`
    pub fn wmma(&mut self, mut s: Spelling<'t>) -> Result<(), PtxError> {
        if s.take("mma") {
            let op = self.wmma_product(s)?;
            self.emit(op);
            return Ok(());
        }
        if s.take("load") {
            let which = self.known(s.pick(&[("a", 0), ("b", 1), ("c", 2)]))?;
            let matrix = self.matrix(s, which)?;
            let dst = self.vector_of(matrix.registers, |parser| parser.reg(Ty::B32, Width::Same))?;
            self.comma()?;
            let (mem, step) = self.elements(&matrix)?;
            return self.load_elements(&matrix, mem, step, &dst);
        }
        if !(s.take("store") && s.take("d")) {
            return Err(self.unsupported());
        }
        let matrix = self.matrix(s, 2)?;
        let place = self.tokens.place();
        let mem = self.memory(matrix.space, Order::Weak, matrix.ty)?;
        let Ok(mem) = mem else { return Err(self.tokens.error_at(place, "no matrix in a parameter")) };
        self.comma()?;
        let src = self.vector_of(matrix.registers, |parser| parser.operand(Ty::B32, Width::Same))?;
        let (mem, step) = self.addresses(&matrix, mem)?;
        self.store_elements(&matrix, mem, step, &src)
    }

    fn emit(&mut self, op: Op) {
        let (_, line) = self.place;
        self.flow.push(op, line);
    }

    /// Reads the rest of a load or store of A, B, or C and D (`which`).
    fn matrix(&self, mut s: Spelling<'t>, which: usize) -> Result<Matrix, PtxError> {
        if !(s.take("sync") && s.take("aligned")) {
            return Err(self.unsupported());
        }
        let by_columns = self.known(s.pick(LAYOUTS))?;
        let [m, n, k] = self.known(s.pick(SHAPES))?.map(u64::from);
        let space =
            s.pick(&[("global", Space::Global), ("shared", Space::Shared), ("shared::cta", Space::Shared)]);
        let ty = self.last(&mut s, if which == 2 { &[Ty::F16, Ty::F32] } else { &[Ty::F16] })?;
        let (rows, columns) = [(m, k), (k, n), (m, n)][which];
        let registers = if which == 2 && ty == Ty::F16 { 4 } else { 8 };
        Ok(Matrix { rows, columns, by_columns, space, ty, registers })
    }

    /// Reads the address of a matrix and its stride.
    fn elements(&mut self, matrix: &Matrix) -> Result<(Mem, Operand), PtxError> {
        let place = self.tokens.place();
        match self.memory(matrix.space, Order::Weak, matrix.ty)? {
            Ok(mem) => self.addresses(matrix, mem),
            Err(_) => Err(self.tokens.error_at(place, "no matrix in a parameter")),
        }
    }

    /// Reads the stride behind an address, if it is there. Returns the address of a lane's first element, and
    /// how many bytes the next one is further.
    fn addresses(&mut self, matrix: &Matrix, mem: Mem) -> Result<(Mem, Operand), PtxError> {
        let &Matrix { rows, columns, by_columns, .. } = matrix;
        let stride = if self.tokens.take(b',')? {
            self.operand(Ty::U32, Width::Same)?
        } else {
            Operand::Imm(if by_columns { rows } else { columns })
        };
        let lane = Operand::Special(Special::LaneId);
        let row = self.of_words(Binary::Shr, Ty::U32, lane, Operand::Imm(columns.trailing_zeros().into()))?;
        let column = self.of_words(Binary::And, Ty::B32, lane, Operand::Imm(columns - 1))?;
        let (line, within) = if by_columns { (column, row) } else { (row, column) };
        let index = self.register(Class::B32)?;
        let product = |dst, a, b, c, half| Op::Mad { half, ty: Ty::U32, sat: false, dst, a, b, c };
        self.emit(product(index, line, stride, within, Half::Lo));
        // Elements of a lane are so many rows apart.
        let apart = LANES / columns;
        let size = u64::from(matrix.ty.bytes());
        let step = if by_columns {
            Operand::Imm(apart * size)
        } else {
            let step = self.register(Class::B32)?;
            self.emit(product(step, stride, Operand::Imm(apart * size), Operand::Imm(0), Half::Lo));
            Operand::Reg(step)
        };
        let base = match mem.base {
            Base::Reg(reg) => Operand::Reg(reg),
            other => Operand::Address(other, 0),
        };
        let narrow = matches!(mem.base, Base::Reg(reg) if self.scopes.class(reg) == Class::B32);
        let (class, half) = if narrow { (Class::B32, Half::Lo) } else { (Class::B64, Half::Wide) };
        let first = self.register(class)?;
        self.emit(product(first, Operand::Reg(index), Operand::Imm(size), base, half));
        Ok((Mem { base: Base::Reg(first), ..mem }, step))
    }

    /// A new register with the result of an operation on 32 bits.
    fn of_words(&mut self, op: Binary, ty: Ty, a: Operand, b: Operand) -> Result<Operand, PtxError> {
        let dst = self.register(Class::B32)?;
        self.emit(Op::Binary { op, ty, float: EXACT, dst, a, b });
        Ok(Operand::Reg(dst))
    }

    /// The memory of the next element.
    fn next(&mut self, mem: Mem, step: Operand) -> Result<Mem, PtxError> {
        let Base::Reg(reg) = mem.base else { return Ok(mem) };
        let class = self.scopes.class(reg);
        let next = self.register(class)?;
        let half = if class == Class::B32 { Half::Lo } else { Half::Wide };
        let (a, b, c) = (step, Operand::Imm(1), Operand::Reg(reg));
        self.emit(Op::Mad { half, ty: Ty::U32, sat: false, dst: next, a, b, c });
        Ok(Mem { base: Base::Reg(next), ..mem })
    }

    fn load_elements(
        &mut self,
        matrix: &Matrix,
        mut mem: Mem,
        step: Operand,
        dst: &[Reg],
    ) -> Result<(), PtxError> {
        let (filled, empty) = dst.split_at(matrix.filled());
        for (at, &reg) in filled.iter().enumerate() {
            if at != 0 {
                mem = self.next(mem, step)?;
            }
            if matrix.ty == Ty::F32 {
                self.emit(Op::Ld { mem, dst: vec![Some(reg)] });
                continue;
            }
            let (low, high) = (self.register(Class::B16)?, self.register(Class::B16)?);
            self.emit(Op::Ld { mem, dst: vec![Some(low)] });
            mem = self.next(mem, step)?;
            self.emit(Op::Ld { mem, dst: vec![Some(high)] });
            self.emit(Op::Pack { ty: Ty::B32, dst: reg, src: vec![Operand::Reg(low), Operand::Reg(high)] });
        }
        for &reg in empty {
            self.emit(Op::Mov { ty: Ty::B32, dst: reg, src: Operand::Imm(0) });
        }
        Ok(())
    }

    fn store_elements(
        &mut self,
        matrix: &Matrix,
        mut mem: Mem,
        step: Operand,
        src: &[Operand],
    ) -> Result<(), PtxError> {
        for (at, &src) in src.iter().take(matrix.filled()).enumerate() {
            if at != 0 {
                mem = self.next(mem, step)?;
            }
            if matrix.ty == Ty::F32 {
                self.emit(Op::St { mem, src: vec![src] });
                continue;
            }
            let (low, high) = (self.register(Class::B16)?, self.register(Class::B16)?);
            self.emit(Op::Unpack { ty: Ty::B32, dst: vec![Some(low), Some(high)], src });
            self.emit(Op::St { mem, src: vec![Operand::Reg(low)] });
            mem = self.next(mem, step)?;
            self.emit(Op::St { mem, src: vec![Operand::Reg(high)] });
        }
        Ok(())
    }

    /// Reads `wmma.mma` of halves. The layouts are those by which A and B were loaded, and change nothing.
    fn wmma_product(&mut self, mut rest: Spelling<'t>) -> Result<Op, PtxError> {
        if !(rest.take("sync") && rest.take("aligned")) {
            return Err(self.unsupported());
        }
        let columns = [self.known(rest.pick(LAYOUTS))?, self.known(rest.pick(LAYOUTS))?];
        let shape = self.known(rest.pick(SHAPES))?;
        let accumulators = &[("f16", Ty::F16), ("f32", Ty::F32)];
        let d_type = self.known(rest.pick(accumulators))?;
        let c_type = self.known(rest.pick(accumulators))?;
        self.done(&rest)?;
        let registers = |ty: Ty| if ty == Ty::F16 { 4 } else { 8 };
        let d = self.vector_of(registers(d_type), |parser| parser.reg(Ty::B32, Width::Same))?;
        let mut sources = [8, 8, registers(c_type)].map(|count| (count, Vec::new()));
        for (count, fragment) in &mut sources {
            self.comma()?;
            *fragment = self.vector_of(*count, |parser| parser.operand(Ty::B32, Width::Same))?;
        }
        let [(_, a), (_, b), (_, c)] = sources;
        let mma = Mma { shape, columns, types: [d_type, Ty::F16, Ty::F16, c_type], saturates: false };
        Ok(Op::Wmma { mma, d, a, b, c })
    }
}
