//! Parser of `wmma`, products of matrices whose elements the device distributes to lanes as it likes.
//!
//! Here lanes have the elements that they have for `mma`: a product becomes a few `mma` of 16 or 8 rows and 8
//! columns, and loads and stores become those of registers or of single elements. A product of 8 rows and 32
//! columns is that of the transposed matrices in reverse order. Some registers that the ISA assigns to A and
//! B stay unused.

use crate::error::PtxError;
use crate::ir::{Base, Binary, Class, Half, Mem, Mma, Op, Operand, Order, Reg, Round, Space, Special, Ty};
use crate::kernel::Parser;
use crate::kernel::memory::SPACES;
use crate::kernel::operands::Width;
use crate::kernel::spelling::Spelling;
use crate::kernel::synthetic::{arithmetic, resize};

/// Shapes by name: the sizes m, n and k.
const SHAPES: &[(&str, [u64; 3])] = &[
    ("m16n16k16", [16, 16, 16]),
    ("m8n32k16", [8, 32, 16]),
    ("m32n8k16", [32, 8, 16]),
    ("m16n16k8", [16, 16, 8]),
    ("m8n8k4", [8, 8, 4]),
    ("m8n8k32", [8, 8, 32]),
];

const LAYOUTS: &[(&str, bool)] = &[("row", false), ("col", true)];

/// Type of the elements of a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Element {
    /// Type of an element, or of a byte for numbers of 4 bits.
    ty: Ty,
    bits: u64,
    /// The size k of products of elements of A and B, and 0 for types of C and D alone.
    depth: u64,
}

const fn element(ty: Ty, bits: u64, depth: u64) -> Element {
    Element { ty, bits, depth }
}

const ELEMENTS: &[(&str, Element)] = &[
    ("f16", element(Ty::F16, 16, 16)),
    ("bf16", element(Ty::Bf16, 16, 16)),
    ("tf32", element(Ty::Tf32, 32, 8)),
    ("f64", element(Ty::F64, 64, 4)),
    ("s8", element(Ty::S8, 8, 16)),
    ("u8", element(Ty::U8, 8, 16)),
    ("s4", element(Ty::S8, 4, 32)),
    ("u4", element(Ty::U8, 4, 32)),
    ("f32", element(Ty::F32, 32, 0)),
    ("s32", element(Ty::S32, 32, 0)),
];

impl Element {
    /// Returns whether C and D of a product with this depth may have elements of this type.
    const fn accumulates(self, depth: u64) -> bool {
        match self.ty {
            Ty::F16 => depth == 16,
            Ty::F32 => matches!(depth, 8 | 16),
            Ty::S32 => matches!(depth, 16 | 32),
            Ty::F64 => depth == 4,
            _ => false,
        }
    }

    /// Returns the type of a register of a fragment.
    const fn register(self) -> Ty {
        if self.bits == 64 { Ty::F64 } else { Ty::B32 }
    }
}

/// Sizes of a product, after the exchange of rows and columns if there is one.
#[derive(Clone, Copy, Debug)]
struct WmmaProduct {
    rows: u64,
    columns: u64,
    depth: u64,
    /// Whether the matrices are transposed.
    transposed: bool,
    /// Number of rows of each `mma`.
    tile: u64,
}

impl WmmaProduct {
    fn new([m, n, depth]: [u64; 3]) -> Self {
        let transposed = m < n;
        let (rows, columns) = if transposed { (n, m) } else { (m, n) };
        Self { rows, columns, depth, transposed, tile: rows.min(16) }
    }

    /// Returns the first elements of the registers of a lane that has row or column 0: the line, which is a
    /// row of A, C and D and a column of B, and the place within it. `which` selects A, B, or C and D as 0, 1
    /// or 2, and `each` is the number of elements of a register.
    fn registers(self, which: usize, each: u64) -> Vec<[u64; 2]> {
        let Self { rows, columns, depth, transposed, tile } = self;
        let eights = tile / 8;
        if which == 2 {
            let tiles = (0..rows / tile).flat_map(|row| (0..columns / 8).map(move |column| (row, column)));
            let count = eights * 2 / each;
            return tiles
                .flat_map(|(row, column)| {
                    (0..count).map(move |at| [row * tile + at * each / 2 * 8, column * 8 + at * each % 2])
                })
                .collect();
        }
        let left = (which == 0) != transposed;
        let (lines, tile) = if left { (rows, tile) } else { (columns, 8) };
        let eights = tile / 8;
        let count = depth / (4 * each) * eights;
        (0..lines / tile)
            .flat_map(|of| (0..count).map(move |at| [of * tile + at % eights * 8, at / eights * 4 * each]))
            .collect()
    }
}

/// Matrix that a load or store of `wmma` accesses in memory.
#[derive(Debug)]
struct WmmaMatrix {
    element: Element,
    /// Whether neighbours in a line are neighbours in memory.
    contiguous: bool,
    /// Distance in memory between lines of the text's layout, unless the instruction states one.
    stride: u64,
    space: Option<Space>,
    /// First elements of the registers that are used.
    registers: Vec<[u64; 2]>,
    /// Number of registers that the ISA assigns.
    assigned: usize,
    /// Number of elements of a register, and the distance in a line between those of neighbouring lanes.
    each: u64,
    apart: u64,
}

/// Address of the elements of a lane.
#[derive(Debug)]
struct LaneAddress {
    /// Memory operand of the first element, and its base.
    mem: Mem,
    first: Reg,
    stride: Operand,
    /// Addresses that are a number of lines further, with this number.
    further: Vec<(u64, Reg)>,
}

impl<'t> Parser<'t> {
    /// Reads `wmma.load`, `wmma.mma` or `wmma.store`.
    pub fn wmma(&mut self, mut s: Spelling<'t>) -> Result<(), PtxError> {
        if s.accept("mma") {
            return self.wmma_product(s);
        }
        if s.accept("load") {
            let which = self.known(s.pick(&[("a", 0), ("b", 1), ("c", 2)]))?;
            let matrix = self.matrix(s, which)?;
            let ty = matrix.element.register();
            let dst = self.vector_of(matrix.assigned, |parser| parser.reg(ty, Width::Same))?;
            self.comma()?;
            let mem = self.start(&matrix)?;
            let address = self.lane_address(&matrix, mem)?;
            return self.load_elements(&matrix, address, &dst);
        }
        self.require(s.accept("store") && s.accept("d"))?;
        let matrix = self.matrix(s, 2)?;
        let mem = self.start(&matrix)?;
        let src = self.fragment(matrix.assigned, matrix.element.register())?;
        let address = self.lane_address(&matrix, mem)?;
        self.store_elements(&matrix, address, &src)
    }

    /// Reads the modifiers of a load or store of matrix A, B, or C and D, which `which` selects as 0, 1 or 2.
    fn matrix(&self, mut s: Spelling<'t>, which: usize) -> Result<WmmaMatrix, PtxError> {
        self.require(s.accept("sync") && s.accept("aligned"))?;
        let by_columns = self.known(s.pick(LAYOUTS))?;
        let shape = self.known(s.pick(SHAPES))?;
        let [m, n, k] = shape;
        let space = s.pick(&SPACES[1..4]);
        let element = self.known(s.pick(ELEMENTS))?;
        self.done(&s)?;
        let product = WmmaProduct::new(shape);
        let contiguous = match which {
            2 => by_columns == product.transposed,
            _ => by_columns == (which == 1),
        };
        self.require(if which == 2 {
            element.accumulates(k)
        } else {
            element.depth == k && (contiguous || element.bits >= 8)
        })?;
        let each = if which == 2 && element.bits != 16 { 1 } else { (32 / element.bits).max(1) };
        let registers = product.registers(which, each);
        let assigned = if which != 2 && element.ty == Ty::F16 { 8 } else { registers.len() };
        let (rows, columns) = [(m, k), (k, n), (m, n)][which];
        let stride = if by_columns { rows } else { columns };
        let apart = if which == 2 { 2 } else { each };
        Ok(WmmaMatrix { element, contiguous, stride, space, registers, assigned, each, apart })
    }

    /// Reads the address of a matrix. Fails if it names a parameter of a call.
    fn start(&mut self, matrix: &WmmaMatrix) -> Result<Mem, PtxError> {
        let place = self.tokens.place();
        let mem = self.memory(matrix.space, Order::Weak, matrix.element.ty)?;
        mem.map_err(|_| self.tokens.error_at(place, "a matrix cannot be in a parameter"))
    }

    /// Reads the optional stride after an address. Returns the address of a lane's elements: lane `4 * g + t`
    /// has elements of line `g`, from place `t * apart` on.
    fn lane_address(&mut self, matrix: &WmmaMatrix, mem: Mem) -> Result<LaneAddress, PtxError> {
        let stride = if self.tokens.accept(b',')? {
            self.operand(Ty::U32, Width::Same)?
        } else {
            Operand::Imm(matrix.stride)
        };
        let lane = Operand::Special(Special::LaneId);
        let line = self.of_words(Binary::Shr, Ty::U32, lane, Operand::Imm(2))?;
        let quarter = self.of_words(Binary::And, Ty::B32, lane, Operand::Imm(3))?;
        let within = self.scaled(Half::Lo, quarter, matrix.apart, Operand::Imm(0), Class::B32)?;
        let (far, near) =
            if matrix.contiguous { (line, Operand::Reg(within)) } else { (Operand::Reg(within), line) };
        let index = self.register(Class::B32)?;
        self.push(Op::Mad {
            half: Half::Lo,
            ty: Ty::U32,
            sat: false,
            dst: index,
            a: far,
            b: stride,
            c: near,
        });
        let mut index = Operand::Reg(index);
        if matrix.element.bits < 8 {
            index = self.of_words(Binary::Shr, Ty::U32, index, Operand::Imm(1))?;
        }
        let base = match mem.base {
            Base::Reg(reg) => Operand::Reg(reg),
            other => Operand::Address(other, 0),
        };
        let narrow = matches!(mem.base, Base::Reg(reg) if self.scopes.class(reg) == Class::B32);
        let (class, half) = if narrow { (Class::B32, Half::Lo) } else { (Class::B64, Half::Wide) };
        let first = self.scaled(half, index, (matrix.element.bits / 8).max(1), base, class)?;
        let mem = Mem { base: Base::Reg(first), ..mem };
        Ok(LaneAddress { mem, first, stride, further: Vec::new() })
    }

    /// Adds the product of a value of 32 bits and a constant to another value. Returns the sum's register.
    fn scaled(&mut self, half: Half, a: Operand, by: u64, c: Operand, class: Class) -> Result<Reg, PtxError> {
        let dst = self.register(class)?;
        self.push(Op::Mad { half, ty: Ty::U32, sat: false, dst, a, b: Operand::Imm(by), c });
        Ok(dst)
    }

    /// Adds an operation on values of 32 bits. Returns its result in a new register.
    fn of_words(&mut self, op: Binary, ty: Ty, a: Operand, b: Operand) -> Result<Operand, PtxError> {
        let dst = self.register(Class::B32)?;
        self.push(arithmetic(op, ty, dst, a, b));
        Ok(Operand::Reg(dst))
    }

    /// Returns the memory operand for an element, by its line and its place within it.
    fn element(
        &mut self,
        matrix: &WmmaMatrix,
        address: &mut LaneAddress,
        [line, within]: [u64; 2],
        ty: Ty,
    ) -> Result<Mem, PtxError> {
        let bits = matrix.element.bits;
        let (lines, near) = if matrix.contiguous { (line, within) } else { (within, line) };
        let mut mem = Mem { ty, ..address.mem };
        mem.offset = mem.offset.wrapping_add_unsigned(near * bits / 8);
        match address.stride {
            _ if lines == 0 => {}
            Operand::Imm(stride) => {
                mem.offset = mem.offset.wrapping_add_unsigned(u64::from(stride as u32) * lines * bits / 8);
            }
            stride => {
                let known = address.further.iter().find(|(of, _)| *of == lines);
                let reg = if let Some(&(_, reg)) = known {
                    reg
                } else {
                    let class = self.scopes.class(address.first);
                    let half = if class == Class::B32 { Half::Lo } else { Half::Wide };
                    let first = Operand::Reg(address.first);
                    let reg = self.scaled(half, stride, lines * bits / 8, first, class)?;
                    address.further.push((lines, reg));
                    reg
                };
                mem.base = Base::Reg(reg);
            }
        }
        Ok(mem)
    }

    fn load_elements(
        &mut self,
        matrix: &WmmaMatrix,
        mut address: LaneAddress,
        dst: &[Reg],
    ) -> Result<(), PtxError> {
        // The address may be in a register of the destination.
        let mut loaded = Vec::with_capacity(dst.len());
        for &[line, within] in &matrix.registers {
            let whole = matrix.element.register();
            let reg = self.register(if whole == Ty::F64 { Class::B64 } else { Class::B32 })?;
            loaded.push(reg);
            if matrix.contiguous || matrix.each == 1 {
                let mem = self.element(matrix, &mut address, [line, within], whole)?;
                self.push(Op::Ld { mem, dst: vec![Some(reg)] });
                continue;
            }
            let (part, step) = if matrix.each == 2 { (Ty::U16, 16) } else { (Ty::U8, 8) };
            let mut sum = Operand::Imm(0);
            for at in 0..matrix.each {
                let mem = self.element(matrix, &mut address, [line, within + at], part)?;
                let one = self.register(Class::B32)?;
                self.push(Op::Ld { mem, dst: vec![Some(one)] });
                let next = if at + 1 == matrix.each { reg } else { self.register(Class::B32)? };
                let (a, b) = (Operand::Reg(one), Operand::Imm(1 << (step * at)));
                self.push(Op::Mad { half: Half::Lo, ty: Ty::U32, sat: false, dst: next, a, b, c: sum });
                sum = Operand::Reg(next);
            }
        }
        for (at, &dst) in dst.iter().enumerate() {
            let (ty, src) = match loaded.get(at) {
                Some(&reg) if self.scopes.class(reg) == Class::B64 => (Ty::B64, Operand::Reg(reg)),
                Some(&reg) => (Ty::B32, Operand::Reg(reg)),
                None => (Ty::B32, Operand::Imm(0)),
            };
            self.push(Op::Mov { ty, dst, src });
        }
        Ok(())
    }

    fn store_elements(
        &mut self,
        matrix: &WmmaMatrix,
        mut address: LaneAddress,
        src: &[Operand],
    ) -> Result<(), PtxError> {
        for (&[line, within], &src) in matrix.registers.iter().zip(src) {
            if matrix.contiguous || matrix.each == 1 {
                let mem = self.element(matrix, &mut address, [line, within], matrix.element.register())?;
                self.push(Op::St { mem, src: vec![src] });
                continue;
            }
            let upper = self.of_words(Binary::Shr, Ty::U32, src, Operand::Imm(16))?;
            for (at, src) in [src, upper].into_iter().enumerate() {
                let mem = self.element(matrix, &mut address, [line, within + at as u64], Ty::U16)?;
                self.push(Op::St { mem, src: vec![src] });
            }
        }
        Ok(())
    }

    /// Reads `wmma.mma`. The layouts with which A and B were loaded change nothing.
    #[allow(clippy::many_single_char_names, reason = "operands have the names of the PTX ISA")]
    fn wmma_product(&mut self, mut s: Spelling<'t>) -> Result<(), PtxError> {
        self.require(s.accept("sync") && s.accept("aligned"))?;
        let columns = [self.known(s.pick(LAYOUTS))?, self.known(s.pick(LAYOUTS))?];
        let shape = self.known(s.pick(SHAPES))?;
        let depth = shape[2];
        if depth == 4 {
            s.accept("rn");
        }
        let mut types = [self.known(s.pick(ELEMENTS))?; 4];
        types[1] = self.known(s.pick(ELEMENTS))?;
        if s.done() {
            // Elements of half precision are not named.
            types = [types[0], ELEMENTS[0].1, ELEMENTS[0].1, types[1]];
        } else {
            types[2] = self.known(s.pick(ELEMENTS))?;
            types[3] = self.known(s.pick(ELEMENTS))?;
            self.require(types[0] == types[3] && types[1].ty != Ty::F16)?;
        }
        let [d, a, b, c] = types;
        let integers = d.ty == Ty::S32;
        let saturates = integers && s.accept("satfinite");
        self.done(&s)?;
        let short = matches!(a.ty, Ty::S8 | Ty::U8);
        let exists = a == b && a.depth == depth && d.accumulates(depth) && c.accumulates(depth);
        let same = short == integers && (a.ty == Ty::F64) == (d.ty == Ty::F64);
        let halves = a.ty == Ty::F16 || (d.ty != Ty::F16 && c.ty != Ty::F16);
        self.require(exists && same && halves && (a.bits != 4 || columns == [false, true]))?;

        let product = WmmaProduct::new(shape);
        let counts = |which, element: Element| {
            let each = if which == 2 && element.bits != 16 { 1 } else { (32 / element.bits).max(1) };
            product.registers(which, each).len()
        };
        let assigned = |which| if a.ty == Ty::F16 { 8 } else { counts(which, a) };
        let targets = self.vector_of(counts(2, d), |parser| parser.reg(d.register(), Width::Same))?;
        let mut left = self.fragment(assigned(0), a.register())?;
        let mut right = self.fragment(assigned(1), a.register())?;
        let third = self.fragment(counts(2, c), c.register())?;
        left.truncate(counts(0, a));
        right.truncate(counts(1, a));
        if product.transposed {
            std::mem::swap(&mut left, &mut right);
        }
        let third = self.singles(c, c.ty != d.ty, third)?;
        let wide = if c.ty == d.ty { d.ty } else { Ty::F32 };
        let mut results = Vec::new();
        let [rows, columns] = [product.rows / product.tile, product.columns / 8].map(|count| count as usize);
        let (of_a, of_b, of_c) = (left.len() / rows, right.len() / columns, third.len() / (rows * columns));
        for (at, c) in third.chunks(of_c).enumerate() {
            let a_regs = &left[at / columns * of_a..][..of_a];
            let b_regs = &right[at % columns * of_b..][..of_b];
            let mut d = Vec::with_capacity(of_c);
            for _ in 0..of_c {
                d.push(self.register(if wide == Ty::F64 { Class::B64 } else { Class::B32 })?);
            }
            if a.bits == 4 {
                self.product_of_nibbles(a.ty, saturates, &d, [a_regs, b_regs, c])?;
            } else {
                let shape = [product.tile as u8, 8, depth as u8];
                let types = [wide, a.ty, b.ty, wide];
                let mma = Mma { shape, columns: [false, true], types, saturates };
                let [a, b, c] = [a_regs, b_regs, c].map(<[Operand]>::to_vec);
                self.push(Op::Mma { mma, d: d.clone(), a, b, c });
            }
            results.extend(d);
        }
        self.put_results(d, wide, &targets, &results);
        Ok(())
    }

    /// Returns C in single precision if it has halves and `convert` is set, and unchanged otherwise.
    fn singles(&mut self, c: Element, convert: bool, from: Vec<Operand>) -> Result<Vec<Operand>, PtxError> {
        if c.ty != Ty::F16 || !convert {
            return Ok(from);
        }
        let mut singles = Vec::with_capacity(2 * from.len());
        for src in from {
            let halves = [self.register(Class::B16)?, self.register(Class::B16)?];
            self.push(Op::Unpack { ty: Ty::B32, dst: halves.map(Some).to_vec(), src });
            for half in halves {
                let single = self.register(Class::B32)?;
                self.push(resize(Ty::F32, Ty::F16, single, Operand::Reg(half)));
                singles.push(Operand::Reg(single));
            }
        }
        Ok(singles)
    }

    /// Moves the results to the registers of D, rounded to halves if D has them and the results do not.
    fn put_results(&mut self, d: Element, wide: Ty, targets: &[Reg], results: &[Reg]) {
        if d.ty == Ty::F16 && wide == Ty::F32 {
            for (&dst, pair) in targets.iter().zip(results.chunks(2)) {
                let (a, b) = (Operand::Reg(pair[1]), Operand::Reg(pair[0]));
                self.push(Op::CvtPack { to: Ty::F16x2, round: Round::Nearest, relu: false, dst, a, b });
            }
            return;
        }
        let ty = if wide == Ty::F64 { Ty::B64 } else { Ty::B32 };
        for (&dst, &result) in targets.iter().zip(results) {
            self.push(Op::Mov { ty, dst, src: Operand::Reg(result) });
        }
    }

    /// Adds a product of numbers of 4 bits: of eight rows and columns, each with 32 numbers. Moved to the
    /// upper half of a byte, each number is 16 times as large, and the product 256 times.
    fn product_of_nibbles(
        &mut self,
        ty: Ty,
        saturates: bool,
        d: &[Reg],
        [a, b, c]: [&[Operand]; 3],
    ) -> Result<(), PtxError> {
        let mask = Operand::Imm(0xf0f0_f0f0);
        let mut sums = vec![Operand::Imm(0); d.len()];
        for shift in [0, 4] {
            let mut bytes = [Operand::Imm(0); 2];
            for (bytes, of) in bytes.iter_mut().zip([a, b]) {
                let moved = self.of_words(Binary::Shl, Ty::B32, of[0], Operand::Imm(shift))?;
                *bytes = self.of_words(Binary::And, Ty::B32, moved, mask)?;
            }
            let mma = Mma {
                shape: [8, 8, 16],
                columns: [false, true],
                types: [Ty::S32, ty, ty, Ty::S32],
                saturates: false,
            };
            let mut next = Vec::with_capacity(d.len());
            for _ in d {
                next.push(self.register(Class::B32)?);
            }
            let [a, b] = bytes.map(|operand| vec![operand]);
            let c = std::mem::replace(&mut sums, next.iter().copied().map(Operand::Reg).collect());
            self.push(Op::Mma { mma, d: next, a, b, c });
        }
        for ((&dst, &sum), &c) in d.iter().zip(&sums).zip(c) {
            let product = self.of_words(Binary::Shr, Ty::S32, sum, Operand::Imm(8))?;
            let mut op = arithmetic(Binary::Add, Ty::S32, dst, product, c);
            if let Op::Binary { float, .. } = &mut op {
                float.sat = saturates;
            }
            self.push(op);
        }
        Ok(())
    }
}
