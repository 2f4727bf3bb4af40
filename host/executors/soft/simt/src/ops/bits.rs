//! Logic, shifts, bit fields, permutations of bytes, and dot products of bytes.

use crate::machine::{Env, Inst, Isa, LANES, Operation, Warp, dot4};

use super::integer::s16;
use super::{Op3, ops, put};

ops! {
    And32: u32, u32 => u32 = |a, b| a & b;
    And64: u64, u64 => u64 = |a, b| a & b;
    Or32: u32, u32 => u32 = |a, b| a | b;
    Or64: u64, u64 => u64 = |a, b| a | b;
    Xor32: u32, u32 => u32 = |a, b| a ^ b;
    Xor64: u64, u64 => u64 = |a, b| a ^ b;
    Not16: u32 => u32 = |a| !a & 0xffff;
    Not32: u32 => u32 = |a| !a;
    Not64: u64 => u64 = |a| !a;
    Cnot32: u32 => u32 = |a| u32::from(a == 0);
    Cnot64: u64 => u64 = |a| u64::from(a == 0);

    Shl16: u32, u32 => u32 = |a, b| if b < 16 { a << b & 0xffff } else { 0 };
    Shl32: u32, u32 => u32 = |a, b| if b < 32 { a << b } else { 0 };
    Shl64: u64, u32 => u64 = |a, b| if b < 64 { a << b } else { 0 };
    ShrU32: u32, u32 => u32 = |a, b| if b < 32 { a >> b } else { 0 };
    ShrU64: u64, u32 => u64 = |a, b| if b < 64 { a >> b } else { 0 };
    ShrS16: u32, u32 => u32 = |a, b| (s16(a) >> b.min(15)) as u16 as u32;
    ShrS32: i32, u32 => i32 = |a, b| a >> b.min(31);
    ShrS64: i64, u32 => i64 = |a, b| a >> b.min(63);

    Popc32: u32 => u32 = |a| a.count_ones();
    Popc64: u64 => u32 = |a| a.count_ones();
    Clz32: u32 => u32 = |a| a.leading_zeros();
    Clz64: u64 => u32 = |a| a.leading_zeros();
    Brev32: u32 => u32 = |a| a.reverse_bits();
    Brev64: u64 => u64 = |a| a.reverse_bits();

    BfeU32: u32, u32, u32 => u32 = |a, b, c| {
        let (position, length) = (b & 0xff, c & 0xff);
        let shifted = if position < 32 { a >> position } else { 0 };
        if length < 32 { shifted & ((1 << length) - 1) } else { shifted }
    };
    BfeS32: i32, u32, u32 => i32 = |a, b, c| {
        let (position, length) = (b & 0xff, c & 0xff);
        // Bits beyond the top are copies of the sign.
        let shifted = a >> position.min(31);
        let unused = 32u32.saturating_sub(length);
        if length == 0 { 0 } else { shifted << unused >> unused }
    };
    Prmt: u32, u32, u32 => u32 = |a, b, c| permute(a, b, c);
}

/// Computes `prmt` in the default mode: each of the four selectors names a byte of `b:a`, or its sign.
#[inline(always)]
pub(crate) fn permute(a: u32, b: u32, selectors: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let mut result = 0;
    for index in 0..4 {
        let selector = selectors >> (4 * index);
        let byte = (bytes >> (8 * (selector & 7))) as u8;
        let byte = if selector & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte };
        result |= u32::from(byte) << (8 * index);
    }
    result
}

/// Returns the byte selectors of the default mode that are equivalent to a mode of `prmt` with the given
/// control.
pub(crate) const fn mode_selectors(mode: vgpu_ptx::ir::Permute, control: u32) -> u32 {
    use vgpu_ptx::ir::Permute;
    let table = match mode {
        Permute::Any => return control,
        Permute::F4e => [0x3210, 0x4321, 0x5432, 0x6543],
        Permute::B4e => [0x5670, 0x6701, 0x7012, 0x0123],
        Permute::Rc8 => [0x0000, 0x1111, 0x2222, 0x3333],
        Permute::Ecl => [0x3210, 0x3211, 0x3222, 0x3333],
        Permute::Ecr => [0x0000, 0x1110, 0x2210, 0x3210],
        Permute::Rc16 => [0x1010, 0x3232, 0x1010, 0x3232],
    };
    table[(control & 3) as usize]
}

/// Computes `bfi` of 64 bits, or of 32 bits if the upper halves are zero and `width` is 32.
pub(crate) const fn insert(a: u64, b: u64, position: u32, length: u32, width: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if length == 0 || position >= width {
        return b;
    }
    let length = if length > width - position { width - position } else { length };
    let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
    let field = ones << position;
    b & !field | a << position & field
}

/// Computes `bfe` of 64 bits. Bits beyond the 64 are zeros, or copies of the sign.
pub(crate) const fn extract(a: u64, position: u32, length: u32, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if length == 0 {
        return 0;
    }
    let unused = 64u32.saturating_sub(length);
    if signed {
        let shifted = a.cast_signed() >> if position < 63 { position } else { 63 };
        (shifted << unused >> unused).cast_unsigned()
    } else {
        let shifted = if position < 64 { a >> position } else { 0 };
        shifted << unused >> unused
    }
}

/// Computes `lop3`: each bit of the result is bit `4a + 2b + c` of the table.
pub(crate) const fn lookup(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut result = 0;
    let mut index = 0;
    while index < 8 {
        if table >> index & 1 != 0 {
            let a = if index & 4 != 0 { a } else { !a };
            let b = if index & 2 != 0 { b } else { !b };
            let c = if index & 1 != 0 { c } else { !c };
            result |= a & b & c;
        }
        index += 1;
    }
    result
}

/// Computes `dp2a`: the sum of `c` and the products of the halves of `a` and two bytes of `b`.
pub(crate) fn dot2(a: u32, b: u32, c: u32, signed: [bool; 2], high: bool) -> u32 {
    let half = |index: u32| {
        let half = (a >> (16 * index)) as u16;
        if signed[0] { i32::from(half as i16) } else { i32::from(half) }
    };
    let byte = |index: u32| {
        let byte = (b >> (8 * index + if high { 16 } else { 0 })) as u8;
        if signed[1] { i32::from(byte as i8) } else { i32::from(byte) }
    };
    (0..2).fold(c.cast_signed(), |sum, index| sum.wrapping_add(half(index) * byte(index))).cast_unsigned()
}

/// Computes `dp4a`. `A` and `B` tell which operands are signed.
pub(crate) struct Dot4<const A: bool, const B: bool>;

impl<const A: bool, const B: bool> Op3 for Dot4<A, B> {
    type A = u32;
    type B = u32;
    type C = u32;
    type R = u32;
    #[inline(always)]
    fn f(a: u32, b: u32, c: u32) -> u32 {
        dot4(a, b, c, [A, B])
    }
}

/// Computes `dp4a.s32.s32` of vectors, with the vector instruction of the CPU if it has one.
pub(crate) struct SignedDot4;

impl Operation for SignedDot4 {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let frame = &warp.frame;
        let out = I::dot4(frame.vector(inst.a), frame.vector(inst.b), frame.vector(inst.c));
        put::<I, _>(warp, inst, &out);
        pc + 1
    }
}

/// Combines `y` bit fields of the table, from index `x` on, into one word.
pub(crate) struct Fields;

impl Operation for Fields {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let mut out = [0; LANES];
        let first = inst.x as usize;
        for field in &env.tables.fields[first..first + inst.y as usize] {
            I::unite(warp.frame.vector(field.at), *field, &mut out);
        }
        put::<I, _>(warp, inst, &out);
        pc + 1
    }
}

/// Computes `shf`: the upper word of `b:a` shifted left, or its lower word shifted right.
pub(crate) struct Funnel<const LEFT: bool, const WRAP: bool>;

impl<const LEFT: bool, const WRAP: bool> Op3 for Funnel<LEFT, WRAP> {
    type A = u32;
    type B = u32;
    type C = u32;
    type R = u32;
    #[inline(always)]
    fn f(a: u32, b: u32, c: u32) -> u32 {
        let both = (b as u64) << 32 | a as u64;
        let by = if WRAP { c & 31 } else { c.min(32) };
        if LEFT { (both << by >> 32) as u32 } else { (both >> by) as u32 }
    }
}

/// Computes `bfind`: the index of the highest bit that is one, or for signed numbers of the highest bit that
/// differs from the sign. The result is all ones if there is none. With `shift` it is the distance of that
/// bit from the highest position.
pub(crate) const fn highest(a: u64, width: u32, signed: bool, shift: bool) -> u32 {
    let unused = 64 - width;
    let a = if signed && (a << unused).cast_signed() < 0 {
        !a << unused >> unused
    } else {
        a << unused >> unused
    };
    if a == 0 {
        return u32::MAX;
    }
    let index = a.ilog2();
    if shift { width - 1 - index } else { index }
}

/// Computes `bmsk`: a mask of `count` ones from bit `from` on.
pub(crate) const fn mask(from: u32, count: u32, wrap: bool) -> u32 {
    let (from, count) = if wrap { (from & 31, count & 31) } else { (from, count) };
    if from >= 32 || count == 0 {
        return 0;
    }
    let ones = if count >= 32 { u32::MAX } else { (1 << count) - 1 };
    ones << from
}
