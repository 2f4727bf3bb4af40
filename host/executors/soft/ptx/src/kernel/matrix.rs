//! Parser of matrix products of a warp, and of the instructions that distribute elements to lanes (PTX ISA,
//! section "Warp Level Matrix Multiply-Accumulate Instructions").

use crate::error::PtxError;
use crate::ir::{Mem, Mma, Op, Operand, Order, Space, Ty};
use crate::kernel::Parser;
use crate::kernel::memory::SPACES;
use crate::kernel::operands::Width;
use crate::kernel::spelling::Spelling;

/// Shapes of `mma` by name: the sizes m, n and k.
const SHAPES: &[(&str, [u8; 3])] = &[
    ("m8n8k4", [8, 8, 4]),
    ("m8n8k16", [8, 8, 16]),
    ("m16n8k4", [16, 8, 4]),
    ("m16n8k8", [16, 8, 8]),
    ("m16n8k16", [16, 8, 16]),
    ("m16n8k32", [16, 8, 32]),
];

/// Returns whether the ISA has a product of this form.
fn exists(mma: Mma) -> bool {
    let [d, a, b, c] = mma.types;
    let usual = mma.columns == [false, true];
    let float = match (mma.shape, a) {
        ([8, 8, 4], Ty::F16) => {
            b == Ty::F16
                && matches!(c, Ty::F16 | Ty::F32)
                && matches!(d, Ty::F16 | Ty::F32)
                && (c == d || d == Ty::F32)
        }
        ([8, 8, 4] | [16, 8, 4 | 8 | 16], Ty::F64) => usual && [d, b, c] == [Ty::F64; 3],
        ([16, 8, 8 | 16], Ty::F16) => usual && b == Ty::F16 && c == d && matches!(c, Ty::F16 | Ty::F32),
        ([16, 8, 8 | 16], Ty::Bf16) => usual && b == Ty::Bf16 && [c, d] == [Ty::F32; 2],
        ([16, 8, 4 | 8], Ty::Tf32) => usual && b == Ty::Tf32 && [c, d] == [Ty::F32; 2],
        ([8, 8, 16] | [16, 8, 16 | 32], Ty::U8 | Ty::S8) => {
            return usual && matches!(b, Ty::U8 | Ty::S8) && [c, d] == [Ty::S32; 2];
        }
        _ => false,
    };
    float && !mma.saturates
}

/// Returns the number of registers of a lane's fragment, which holds its share of `rows * columns` elements
/// of a type.
fn registers(mma: Mma, rows: u8, columns: u8, ty: Ty) -> usize {
    // The smallest shape for halves consists of four products, one for each group of eight lanes.
    let products = if mma.shape == [8, 8, 4] && mma.types[1] == Ty::F16 { 4 } else { 1 };
    let bytes = products * rows as usize * columns as usize * ty.bytes() as usize / 32;
    bytes / (ty.bytes() as usize).max(4)
}

impl<'t> Parser<'t> {
    /// Reads `mma.sync.aligned`: shape, layouts of A and B, element types, and the fragments D, A, B and C.
    #[allow(clippy::many_single_char_names, reason = "operands have the names of the PTX ISA")]
    pub fn mma(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        self.require(s.accept("sync") && s.accept("aligned"))?;
        let shape = self.known(s.pick(SHAPES))?;
        let layout = [("row", false), ("col", true)];
        let columns = [self.known(s.pick(&layout))?, self.known(s.pick(&layout))?];
        let saturates = s.accept("satfinite");
        let mut types = [Ty::Pred; 4];
        for ty in &mut types {
            *ty = if s.accept("tf32") { Ty::Tf32 } else { self.known(s.ty())? };
        }
        self.done(&s)?;
        let mma = Mma { shape, columns, types, saturates };
        self.require(exists(mma))?;
        let [m, n, k] = shape;
        // Elements of less than 32 bits are packed into registers of 32.
        let held = |ty: Ty| if ty.bytes() < 4 || ty == Ty::Tf32 { Ty::B32 } else { ty };
        let [d, a, b, c] = types;
        let counts = [
            registers(mma, m, n, d),
            registers(mma, m, k, a),
            registers(mma, k, n, b),
            registers(mma, m, n, c),
        ];
        let d = self.vector_of(counts[0], |parser| parser.reg(held(d), Width::Same))?;
        let a = self.fragment(counts[1], held(a))?;
        let b = self.fragment(counts[2], held(b))?;
        let c = self.fragment(counts[3], held(c))?;
        Ok(Op::Mma { mma, d, a, b, c })
    }

    /// Reads a comma and the `count` registers of a lane's fragment of a matrix.
    pub(super) fn fragment(&mut self, count: usize, ty: Ty) -> Result<Vec<Operand>, PtxError> {
        self.comma()?;
        self.vector_of(count, |parser| parser.operand(ty, Width::Same))
    }

    /// Reads modifiers such as `.sync.aligned.m8n8.x4.trans.shared.b16`. Returns the number of matrices,
    /// whether they are transposed, and the state space if it is named.
    fn matrices(&self, s: &mut Spelling<'t>) -> Result<(usize, bool, Option<Space>), PtxError> {
        let taken = s.accept("sync") && s.accept("aligned") && s.accept("m8n8");
        let count = self.known(s.pick(&[("x1", 1), ("x2", 2), ("x4", 4)]).filter(|_| taken))?;
        let trans = s.accept("trans");
        let space = s.pick(&SPACES[2..4]);
        self.last(s, &[Ty::B16])?;
        Ok((count, trans, space))
    }

    /// Reads the address of a row of 16 bytes, which must be in shared memory.
    fn rows(&mut self, space: Option<Space>) -> Result<Mem, PtxError> {
        let place = self.tokens.place();
        match self.memory(space, Order::Weak, Ty::B16)? {
            Ok(mem) if matches!(mem.space, Space::Shared | Space::Generic) => Ok(mem),
            _ => Err(self.tokens.error_at(place, "matrices are loaded and stored in shared memory alone")),
        }
    }

    /// Reads `ldmatrix` of one, two or four matrices.
    pub fn load_matrices(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let (count, trans, space) = self.matrices(&mut s)?;
        let dst = self.vector_of(count, |parser| parser.reg(Ty::B32, Width::Same))?;
        self.comma()?;
        Ok(Op::LdMatrix { mem: self.rows(space)?, trans, dst })
    }

    /// Reads `stmatrix` of one, two or four matrices.
    pub fn store_matrices(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let (count, trans, space) = self.matrices(&mut s)?;
        let mem = self.rows(space)?;
        let src = self.fragment(count, Ty::B32)?;
        Ok(Op::StMatrix { mem, trans, src })
    }

    /// Reads `movmatrix`, which transposes a matrix between lanes.
    pub fn move_matrix(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        self.require(s.accept("sync") && s.accept("aligned") && s.accept("m8n8") && s.accept("trans"))?;
        self.last(&mut s, &[Ty::B16])?;
        let dst = self.dst(Ty::B32)?;
        Ok(Op::MovMatrix { dst, a: self.src(Ty::B32)? })
    }
}
