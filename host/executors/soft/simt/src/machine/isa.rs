//! Instruction sets for which operations are compiled, and the vector operations that compilers do not
//! generate from loops.

use std::sync::OnceLock;

use super::operand::Field;
use super::scalar::{dot4, from_half};
use super::slot::LANES;

/// Instruction set for which a program is compiled. All of them compute the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Features {
    /// The features that every x86-64 CPU has.
    Baseline,
    /// The features AVX2, FMA, F16C, BMI1, BMI2, LZCNT and POPCNT.
    Avx2,
    /// Machine code is generated for each program, with the features of [`Features::Avx2`]. Instructions
    /// without machine code are interpreted.
    JitAvx2,
    /// Machine code is generated for each program, for AVX-512 with F, BW, DQ, VL and VNNI.
    JitAvx512,
}

impl Features {
    /// Returns the features that this CPU supports, the best last.
    #[must_use]
    pub fn available() -> &'static [Self] {
        const ALL: [Features; 4] =
            [Features::Baseline, Features::Avx2, Features::JitAvx2, Features::JitAvx512];
        static COUNT: OnceLock<usize> = OnceLock::new();
        &ALL[..*COUNT.get_or_init(|| match (has_avx2(), has_avx512()) {
            (false, _) => 1,
            (true, false) => 3,
            (true, true) => 4,
        })]
    }

    /// Returns the best features that this CPU supports.
    #[must_use]
    pub fn best() -> Self {
        *Self::available().last().unwrap_or(&Self::Baseline)
    }

    /// Returns the best features that this CPU supports without generating machine code.
    #[must_use]
    pub fn interpreted() -> Self {
        let interpreted = Self::available().iter().rev().find(|features| !features.translates());
        interpreted.copied().unwrap_or(Self::Baseline)
    }

    /// Returns whether these features generate machine code on this CPU.
    #[must_use]
    pub fn translates(self) -> bool {
        matches!(self, Self::JitAvx2 | Self::JitAvx512) && Self::available().contains(&self)
    }

    /// Returns whether operations are compiled for AVX2, which this CPU has.
    pub(super) fn has_vectors(self) -> bool {
        self != Self::Baseline && Self::available().contains(&self)
    }
}

fn has_avx2() -> bool {
    std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("fma")
        && std::is_x86_feature_detected!("f16c")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("lzcnt")
        && std::is_x86_feature_detected!("popcnt")
}

fn has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512vl")
        && std::is_x86_feature_detected!("avx512vnni")
}

/// Vector operations that are compiled for each instruction set.
pub(crate) trait Isa {
    /// Collects the sign bits of 32 lanes. Bit 0 is lane 0.
    fn signs(values: &[u32; LANES]) -> u32;

    /// Returns a vector of all ones in the lanes whose bits are set, and 0 in the others.
    fn spread(mask: u32) -> [u32; LANES];

    /// Stores eight values as one vector. A later load of the whole vector need not wait for several stores.
    fn set8(values: [u32; 8], to: &mut [u32; 8]);

    /// Splits eight values into their lower and their upper words.
    fn split8(values: [u64; 8]) -> [[u32; 8]; 2];

    /// Converts the lower halves of words to single precision, or the upper halves with `UPPER`.
    fn from_halves<const UPPER: bool>(words: &[u32; LANES]) -> [f32; LANES];

    /// Returns for each lane the value of the lane whose index differs in the bit `BY`, a power of two.
    fn butterfly<const BY: usize>(values: &[u32; LANES]) -> [u32; LANES];

    /// ORs a bit field of `words`, shifted and masked, into `to`.
    fn unite(words: &[u32; LANES], field: Field, to: &mut [u32; LANES]);

    /// Returns the sum of `c` and the products of the four signed bytes of `a` and `b`: `dp4a.s32.s32`.
    fn dot4(a: &[u32; LANES], b: &[u32; LANES], c: &[u32; LANES]) -> [u32; LANES];
}

/// Instruction set of [`Features::Baseline`].
pub(crate) struct Baseline;

impl Isa for Baseline {
    #[inline(always)]
    fn signs(values: &[u32; LANES]) -> u32 {
        let mut mask = 0;
        for (lane, value) in values.iter().enumerate() {
            mask |= (value >> 31) << lane;
        }
        mask
    }

    #[inline(always)]
    fn spread(mask: u32) -> [u32; LANES] {
        std::array::from_fn(|lane| (mask >> lane & 1).wrapping_neg())
    }

    #[inline(always)]
    fn set8(values: [u32; 8], to: &mut [u32; 8]) {
        *to = values;
    }

    #[inline(always)]
    fn split8(values: [u64; 8]) -> [[u32; 8]; 2] {
        [values.map(|value| value as u32), values.map(|value| (value >> 32) as u32)]
    }

    #[inline(always)]
    fn from_halves<const UPPER: bool>(words: &[u32; LANES]) -> [f32; LANES] {
        words.map(|word| from_half(if UPPER { word >> 16 } else { word }))
    }

    #[inline(always)]
    fn butterfly<const BY: usize>(values: &[u32; LANES]) -> [u32; LANES] {
        std::array::from_fn(|lane| values[(lane ^ BY) % LANES])
    }

    #[inline(always)]
    fn unite(words: &[u32; LANES], field: Field, to: &mut [u32; LANES]) {
        for (word, to) in words.iter().zip(to) {
            *to |= word << field.left >> field.right & field.mask;
        }
    }

    #[inline(always)]
    fn dot4(a: &[u32; LANES], b: &[u32; LANES], c: &[u32; LANES]) -> [u32; LANES] {
        std::array::from_fn(|lane| dot4(a[lane], b[lane], c[lane], [true, true]))
    }
}

/// Instruction set of [`Features::Avx2`]. Only functions that are compiled with these features may use it.
pub(super) struct Avx2;

impl Isa for Avx2 {
    #[inline(always)]
    fn signs(values: &[u32; LANES]) -> u32 {
        // SAFETY: this type is only a parameter of operations for `Features::Avx2`, which run on CPUs that
        // have it (module invariant).
        unsafe { avx2::signs(values) }
    }

    #[inline(always)]
    fn spread(mask: u32) -> [u32; LANES] {
        // SAFETY: as above.
        unsafe { avx2::spread(mask) }
    }

    #[inline(always)]
    fn set8(values: [u32; 8], to: &mut [u32; 8]) {
        // SAFETY: as above.
        unsafe { avx2::set8(values, to) };
    }

    #[inline(always)]
    fn split8(values: [u64; 8]) -> [[u32; 8]; 2] {
        // SAFETY: as above.
        unsafe { avx2::split8(values) }
    }

    #[inline(always)]
    fn from_halves<const UPPER: bool>(words: &[u32; LANES]) -> [f32; LANES] {
        // SAFETY: as above.
        unsafe { avx2::from_halves::<UPPER>(words) }
    }

    #[inline(always)]
    fn butterfly<const BY: usize>(values: &[u32; LANES]) -> [u32; LANES] {
        // SAFETY: as above.
        unsafe { avx2::butterfly::<BY>(values) }
    }

    #[inline(always)]
    fn unite(words: &[u32; LANES], field: Field, to: &mut [u32; LANES]) {
        // SAFETY: as above.
        unsafe { avx2::unite(words, field, to) }
    }

    #[inline(always)]
    fn dot4(a: &[u32; LANES], b: &[u32; LANES], c: &[u32; LANES]) -> [u32; LANES] {
        // SAFETY: as above.
        unsafe { avx2::dot4(a, b, c) }
    }
}

mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm_cvtsi32_si128, _mm256_add_epi32, _mm256_and_si256, _mm256_castsi256_ps,
        _mm256_castsi256_si128, _mm256_cmpeq_epi32, _mm256_cvtph_ps, _mm256_madd_epi16, _mm256_movemask_ps,
        _mm256_or_si256, _mm256_packus_epi32, _mm256_permute2x128_si256, _mm256_permute4x64_epi64,
        _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_shuffle_epi32,
        _mm256_sll_epi32, _mm256_slli_epi16, _mm256_srai_epi16, _mm256_srl_epi32, _mm256_srli_epi32,
    };

    use zerocopy::transmute;

    use super::{Field, LANES};

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn signs(values: &[u32; LANES]) -> u32 {
        let mut mask = 0;
        for (index, eight) in values.as_chunks::<8>().0.iter().enumerate() {
            let vector: __m256i = transmute!(*eight);
            let signs = _mm256_movemask_ps(_mm256_castsi256_ps(vector));
            mask |= signs.cast_unsigned() << (8 * index);
        }
        mask
    }

    /// Implements `Isa::spread`. Compilers turn the equivalent loop into a branch for each lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn spread(mask: u32) -> [u32; LANES] {
        let mut out = [0; LANES];
        let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        for (index, to) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let own = _mm256_and_si256(_mm256_set1_epi32((mask >> (8 * index)).cast_signed()), bits);
            *to = transmute!(_mm256_cmpeq_epi32(own, bits));
        }
        out
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn set8(values: [u32; 8], to: &mut [u32; 8]) {
        let [a, b, c, d, e, f, g, h] = values.map(u32::cast_signed);
        *to = transmute!(_mm256_setr_epi32(a, b, c, d, e, f, g, h));
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn split8(values: [u64; 8]) -> [[u32; 8]; 2] {
        let order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
        let [first, second]: [[u64; 4]; 2] = transmute!(values);
        let first = _mm256_permutevar8x32_epi32(transmute!(first), order);
        let second = _mm256_permutevar8x32_epi32(transmute!(second), order);
        let low = _mm256_permute2x128_si256::<0x20>(first, second);
        [transmute!(low), transmute!(_mm256_permute2x128_si256::<0x31>(first, second))]
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn from_halves<const UPPER: bool>(words: &[u32; LANES]) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        let from = words.as_chunks::<8>().0;
        for (eight, to) in from.iter().zip(out.as_chunks_mut::<8>().0) {
            let words: __m256i = transmute!(*eight);
            let halves = if UPPER {
                _mm256_srli_epi32::<16>(words)
            } else {
                _mm256_and_si256(words, _mm256_set1_epi32(0xffff))
            };
            let packed = _mm256_packus_epi32(halves, halves);
            let packed = _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(packed));
            *to = transmute!(_mm256_cvtph_ps(packed));
        }
        out
    }

    /// Implements `Isa::butterfly`. Compilers turn the equivalent loop into moves of single lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn butterfly<const BY: usize>(values: &[u32; LANES]) -> [u32; LANES] {
        let mut out = [0; LANES];
        let from = values.as_chunks::<8>().0;
        for (index, to) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let eight: __m256i = transmute!(from[index ^ (BY / 8)]);
            *to = transmute!(match BY {
                1 => _mm256_shuffle_epi32::<0b10_11_00_01>(eight),
                2 => _mm256_shuffle_epi32::<0b01_00_11_10>(eight),
                4 => _mm256_permute2x128_si256::<1>(eight, eight),
                _ => eight,
            });
        }
        out
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn unite(words: &[u32; LANES], field: Field, to: &mut [u32; LANES]) {
        let [left, right] = [field.left, field.right].map(|by| _mm_cvtsi32_si128(by.cast_signed()));
        let mask = _mm256_set1_epi32(field.mask.cast_signed());
        let from = words.as_chunks::<8>().0;
        for (eight, to) in from.iter().zip(to.as_chunks_mut::<8>().0) {
            let moved = _mm256_srl_epi32(_mm256_sll_epi32(transmute!(*eight), left), right);
            *to = transmute!(_mm256_or_si256(transmute!(*to), _mm256_and_si256(moved, mask)));
        }
    }

    /// Implements `Isa::dot4`. Bytes with even and with odd index are multiplied as 16-bit numbers, so that
    /// no product or sum of two overflows.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn dot4(a: &[u32; LANES], b: &[u32; LANES], c: &[u32; LANES]) -> [u32; LANES] {
        let mut out = [0; LANES];
        let eights =
            |from: &[u32; LANES], index: usize| -> __m256i { transmute!(from.as_chunks::<8>().0[index]) };
        for (index, to) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let (a, b) = (eights(a, index), eights(b, index));
            let odd = _mm256_madd_epi16(_mm256_srai_epi16::<8>(a), _mm256_srai_epi16::<8>(b));
            let (a, b) = (_mm256_slli_epi16::<8>(a), _mm256_slli_epi16::<8>(b));
            let even = _mm256_madd_epi16(_mm256_srai_epi16::<8>(a), _mm256_srai_epi16::<8>(b));
            let sum = _mm256_add_epi32(_mm256_add_epi32(odd, even), eights(c, index));
            *to = transmute!(sum);
        }
        out
    }
}
