//! Lowers conversions of 8-bit floating-point numbers, two at a time, and conversions to the 19-bit format
//! `.tf32`.

use vgpu_ptx::ir::{Eighth, Operand, Reg, Round};

use crate::machine::Opcode;
use crate::ops::Op1;
use crate::ops::fp8::{decode, encode, relu};
use crate::ops::half::ToTf32;
use crate::ops::rounding::{F16, F32, TF32};

use super::builder::Builder;
use super::error::Lowered;

impl Builder<'_> {
    /// Lowers conversions to `.tf32`, such as `cvt.rna.tf32.f32`. The result is in the upper bits of a word.
    pub(super) fn convert_to_tf32(
        &mut self,
        round: Option<Round>,
        clamp: bool,
        finite: bool,
        dst: Reg,
        src: &Operand,
    ) -> Lowered {
        let src = self.source(src, 4)?;
        if round.is_none() && !finite && !clamp {
            return self.op(Opcode::ToTf32, dst, 4, [src]);
        }
        self.rare(dst, 4, &[(src, 4)], move |[bits, ..]| {
            let bits = bits as u32;
            let value = F32.decode(bits);
            let value = if clamp { relu(value) } else { value };
            let rounded = match round {
                _ if value.is_nan() => return u64::from(F32.nan()),
                None => <ToTf32 as Op1>::f(bits),
                Some(round) => TF32.encode(value, round) << 13,
            };
            let infinity = F32.infinity();
            // The largest number has all ones but the exponent's last.
            let most = infinity - (1 << 13);
            u64::from(if finite && rounded & 0x7fff_ffff == infinity {
                rounded & 0x8000_0000 | most
            } else {
                rounded
            })
        })
    }

    /// Lowers exact conversions from 8 bits, such as `cvt.rn.f16x2.e4m3x2`.
    pub(super) fn convert_from_fp8(&mut self, from: Eighth, clamp: bool, dst: Reg, src: &Operand) -> Lowered {
        self.rare_of(dst, 4, [(src, 2)], move |[bits, ..]| {
            let half = |bits: u64| {
                let value = decode(from, bits as u32 & 0xff);
                u64::from(F16.encode(if clamp { relu(value) } else { value }, Round::Nearest))
            };
            half(bits) | half(bits >> 8) << 16
        })
    }

    /// Lowers saturating conversions to 8 bits, such as `cvt.rn.satfinite.e4m3x2.f32`.
    pub(super) fn convert_to_fp8(
        &mut self,
        to: Eighth,
        clamp: bool,
        dst: Reg,
        a: &Operand,
        b: Option<&Operand>,
    ) -> Lowered {
        let eighth = move |value: f64| u64::from(encode(to, if clamp { relu(value) } else { value }));
        let upper = self.source(a, 4)?;
        let Some(b) = b else {
            return self.rare(dst, 2, &[(upper, 4)], move |[halves, ..]| {
                let half = |bits: u64| eighth(F16.decode(bits as u32 & 0xffff));
                half(halves) | half(halves >> 16) << 8
            });
        };
        let lower = self.source(b, 4)?;
        self.rare(dst, 2, &[(upper, 4), (lower, 4)], move |[upper, lower, ..]| {
            let single = |bits: u64| eighth(F32.decode(bits as u32));
            single(lower) | single(upper) << 8
        })
    }
}
