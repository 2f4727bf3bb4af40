//! Parser of `wmma`, products of matrices whose elements the device distributes to lanes as it likes.
//!
//! Here element `e` of a matrix, counted along the rows, is element `e / 32` of lane `e % 32`, for every
//! layout in memory. Loads and stores thus become those of single elements, and only the product is a
//! separate instruction. Some registers that the ISA assigns to A and B stay unused.

use crate::error::PtxError;
use crate::ir::{Base, Binary, Class, Half, Mem, Mma, Op, Operand, Order, Reg, Space, Special, Ty};
use crate::kernel::Parser;
use crate::kernel::memory::SPACES;
use crate::kernel::operands::Width;
use crate::kernel::spelling::Spelling;
use crate::kernel::synthetic::arithmetic;

/// Number of lanes of a warp.
const LANES: u64 = 32;

/// Shapes by name: the sizes m, n and k.
const SHAPES: &[(&str, [u8; 3])] =
    &[("m16n16k16", [16, 16, 16]), ("m8n32k16", [8, 32, 16]), ("m32n8k16", [32, 8, 16])];

const LAYOUTS: &[(&str, bool)] = &[("row", false), ("col", true)];

/// Matrix that a load or store of `wmma` accesses in memory.
#[derive(Clone, Copy, Debug)]
struct WmmaMatrix {
    rows: u64,
    columns: u64,
    /// Whether the matrix is stored by columns, and not by rows.
    by_columns: bool,
    space: Option<Space>,
    ty: Ty,
    /// Number of registers of a lane's fragment.
    registers: usize,
}

impl WmmaMatrix {
    /// Returns the number of registers of a lane's fragment that hold elements; the ISA's fragments can be
    /// larger.
    const fn filled(&self) -> usize {
        (self.rows * self.columns / LANES) as usize / (4 / self.ty.bytes() as usize)
    }
}

impl<'t> Parser<'t> {
    /// Reads `wmma.load`, `wmma.mma` or `wmma.store`.
    pub fn wmma(&mut self, mut s: Spelling<'t>) -> Result<(), PtxError> {
        if s.accept("mma") {
            let op = self.wmma_product(s)?;
            self.push(op);
            return Ok(());
        }
        if s.accept("load") {
            let which = self.known(s.pick(&[("a", 0), ("b", 1), ("c", 2)]))?;
            let matrix = self.matrix(s, which)?;
            let dst = self.vector_of(matrix.registers, |parser| parser.reg(Ty::B32, Width::Same))?;
            self.comma()?;
            let mem = self.start(&matrix)?;
            let (mem, step) = self.addresses(&matrix, mem)?;
            return self.load_elements(&matrix, mem, step, &dst);
        }
        self.require(s.accept("store") && s.accept("d"))?;
        let matrix = self.matrix(s, 2)?;
        let mem = self.start(&matrix)?;
        let src = self.fragment(matrix.registers, Ty::B32)?;
        let (mem, step) = self.addresses(&matrix, mem)?;
        self.store_elements(&matrix, mem, step, &src)
    }

    /// Reads the modifiers of a load or store of matrix A, B, or C and D, which `which` selects as 0, 1 or 2.
    fn matrix(&self, mut s: Spelling<'t>, which: usize) -> Result<WmmaMatrix, PtxError> {
        self.require(s.accept("sync") && s.accept("aligned"))?;
        let by_columns = self.known(s.pick(LAYOUTS))?;
        let [m, n, k] = self.known(s.pick(SHAPES))?.map(u64::from);
        let space = s.pick(&SPACES[1..4]);
        let ty = self.last(&mut s, if which == 2 { &[Ty::F16, Ty::F32] } else { &[Ty::F16] })?;
        let (rows, columns) = [(m, k), (k, n), (m, n)][which];
        let registers = if which == 2 && ty == Ty::F16 { 4 } else { 8 };
        Ok(WmmaMatrix { rows, columns, by_columns, space, ty, registers })
    }

    /// Reads the address of a matrix. Fails if it names a parameter of a call.
    fn start(&mut self, matrix: &WmmaMatrix) -> Result<Mem, PtxError> {
        let place = self.tokens.place();
        let mem = self.memory(matrix.space, Order::Weak, matrix.ty)?;
        mem.map_err(|_| self.tokens.error_at(place, "a matrix cannot be in a parameter"))
    }

    /// Reads the optional stride after an address. Returns the address of a lane's first element, and the
    /// distance to the next one in bytes.
    fn addresses(&mut self, matrix: &WmmaMatrix, mem: Mem) -> Result<(Mem, Operand), PtxError> {
        let &WmmaMatrix { rows, columns, by_columns, .. } = matrix;
        let stride = if self.tokens.accept(b',')? {
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
        self.push(product(index, line, stride, within, Half::Lo));
        // Number of rows between two elements of a lane.
        let apart = LANES / columns;
        let size = u64::from(matrix.ty.bytes());
        let step = if by_columns {
            Operand::Imm(apart * size)
        } else {
            let step = self.register(Class::B32)?;
            self.push(product(step, stride, Operand::Imm(apart * size), Operand::Imm(0), Half::Lo));
            Operand::Reg(step)
        };
        let base = match mem.base {
            Base::Reg(reg) => Operand::Reg(reg),
            other => Operand::Address(other, 0),
        };
        let narrow = matches!(mem.base, Base::Reg(reg) if self.scopes.class(reg) == Class::B32);
        let (class, half) = if narrow { (Class::B32, Half::Lo) } else { (Class::B64, Half::Wide) };
        let first = self.register(class)?;
        self.push(product(first, Operand::Reg(index), Operand::Imm(size), base, half));
        Ok((Mem { base: Base::Reg(first), ..mem }, step))
    }

    /// Adds an operation on values of 32 bits. Returns its result in a new register.
    fn of_words(&mut self, op: Binary, ty: Ty, a: Operand, b: Operand) -> Result<Operand, PtxError> {
        let dst = self.register(Class::B32)?;
        self.push(arithmetic(op, ty, dst, a, b));
        Ok(Operand::Reg(dst))
    }

    /// Returns the memory operand for the next element of a lane, `step` bytes after `mem`.
    fn next(&mut self, mem: Mem, step: Operand) -> Result<Mem, PtxError> {
        let Base::Reg(reg) = mem.base else { return Ok(mem) };
        let class = self.scopes.class(reg);
        let next = self.register(class)?;
        let half = if class == Class::B32 { Half::Lo } else { Half::Wide };
        let (a, b, c) = (step, Operand::Imm(1), Operand::Reg(reg));
        self.push(Op::Mad { half, ty: Ty::U32, sat: false, dst: next, a, b, c });
        Ok(Mem { base: Base::Reg(next), ..mem })
    }

    fn load_elements(
        &mut self,
        matrix: &WmmaMatrix,
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
                self.push(Op::Ld { mem, dst: vec![Some(reg)] });
                continue;
            }
            let (low, high) = (self.register(Class::B16)?, self.register(Class::B16)?);
            self.push(Op::Ld { mem, dst: vec![Some(low)] });
            mem = self.next(mem, step)?;
            self.push(Op::Ld { mem, dst: vec![Some(high)] });
            self.push(Op::Pack { ty: Ty::B32, dst: reg, src: vec![Operand::Reg(low), Operand::Reg(high)] });
        }
        for &reg in empty {
            self.push(Op::Mov { ty: Ty::B32, dst: reg, src: Operand::Imm(0) });
        }
        Ok(())
    }

    fn store_elements(
        &mut self,
        matrix: &WmmaMatrix,
        mut mem: Mem,
        step: Operand,
        src: &[Operand],
    ) -> Result<(), PtxError> {
        for (at, &src) in src.iter().take(matrix.filled()).enumerate() {
            if at != 0 {
                mem = self.next(mem, step)?;
            }
            if matrix.ty == Ty::F32 {
                self.push(Op::St { mem, src: vec![src] });
                continue;
            }
            let (low, high) = (self.register(Class::B16)?, self.register(Class::B16)?);
            self.push(Op::Unpack { ty: Ty::B32, dst: vec![Some(low), Some(high)], src });
            self.push(Op::St { mem, src: vec![Operand::Reg(low)] });
            mem = self.next(mem, step)?;
            self.push(Op::St { mem, src: vec![Operand::Reg(high)] });
        }
        Ok(())
    }

    /// Reads `wmma.mma` of halves. The layouts with which A and B were loaded change nothing.
    fn wmma_product(&mut self, mut rest: Spelling<'t>) -> Result<Op, PtxError> {
        self.require(rest.accept("sync") && rest.accept("aligned"))?;
        let columns = [self.known(rest.pick(LAYOUTS))?, self.known(rest.pick(LAYOUTS))?];
        let shape = self.known(rest.pick(SHAPES))?;
        let accumulators = &[("f16", Ty::F16), ("f32", Ty::F32)];
        let d_type = self.known(rest.pick(accumulators))?;
        let c_type = self.known(rest.pick(accumulators))?;
        self.done(&rest)?;
        let registers = |ty: Ty| if ty == Ty::F16 { 4 } else { 8 };
        let d = self.vector_of(registers(d_type), |parser| parser.reg(Ty::B32, Width::Same))?;
        let (a, b) = (self.fragment(8, Ty::B32)?, self.fragment(8, Ty::B32)?);
        let c = self.fragment(registers(c_type), Ty::B32)?;
        let mma = Mma { shape, columns, types: [d_type, Ty::F16, Ty::F16, c_type], saturates: false };
        Ok(Op::Wmma { mma, d, a, b, c })
    }
}
