//! Vector registers, and the mask registers of the active lanes.

use iced_x86::code_asm::{
    AsmRegisterK, AsmRegisterXmm, AsmRegisterYmm, AsmRegisterZmm, k1, k2, k3, k4, registers,
};

/// Number of vector registers.
pub(super) const REGISTERS: usize = 32;

macro_rules! bank {
    ($name:ident, $ty:ty, $($register:ident)*) => {
        pub(super) const $name: [$ty; REGISTERS] = [$(registers::$register),*];
    };
}
bank!(ZMM, AsmRegisterZmm, zmm0 zmm1 zmm2 zmm3 zmm4 zmm5 zmm6 zmm7 zmm8 zmm9 zmm10 zmm11 zmm12 zmm13 zmm14
    zmm15 zmm16 zmm17 zmm18 zmm19 zmm20 zmm21 zmm22 zmm23 zmm24 zmm25 zmm26 zmm27 zmm28 zmm29 zmm30 zmm31);
bank!(YMM, AsmRegisterYmm, ymm0 ymm1 ymm2 ymm3 ymm4 ymm5 ymm6 ymm7 ymm8 ymm9 ymm10 ymm11 ymm12 ymm13 ymm14
    ymm15 ymm16 ymm17 ymm18 ymm19 ymm20 ymm21 ymm22 ymm23 ymm24 ymm25 ymm26 ymm27 ymm28 ymm29 ymm30 ymm31);
bank!(XMM, AsmRegisterXmm, xmm0 xmm1 xmm2 xmm3 xmm4 xmm5 xmm6 xmm7 xmm8 xmm9 xmm10 xmm11 xmm12 xmm13 xmm14
    xmm15 xmm16 xmm17 xmm18 xmm19 xmm20 xmm21 xmm22 xmm23 xmm24 xmm25 xmm26 xmm27 xmm28 xmm29 xmm30 xmm31);

/// Returns the index of a register.
pub(super) fn index(register: AsmRegisterZmm) -> usize {
    ZMM.iter().position(|other| *other == register).unwrap_or_default()
}

/// Returns the lower half of a register.
pub(super) fn ymm(register: AsmRegisterZmm) -> AsmRegisterYmm {
    YMM[index(register)]
}

/// Returns the lower quarter of a register.
pub(super) fn xmm(register: AsmRegisterZmm) -> AsmRegisterXmm {
    XMM[index(register)]
}

/// Returns the mask register with the active lanes of one half of a warp, 0 or 1.
pub(super) const fn active(half: usize) -> AsmRegisterK {
    if half == 0 { k1 } else { k2 }
}

/// Returns the mask register with the active lanes of a quarter.
pub(super) const fn active_wide(quarter: usize) -> AsmRegisterK {
    [k1, k3, k2, k4][quarter]
}

/// Registers with sixteen lanes of a value: of 32 bits in `low`, or of 64 bits in both registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) low: AsmRegisterZmm,
    pub(super) high: AsmRegisterZmm,
}

impl Pair {
    pub(super) const fn narrow(register: AsmRegisterZmm) -> Self {
        Self { low: register, high: register }
    }
}
