//! The two instruction sets that steps are compiled for, and the few operations that compilers do not
//! make of loops by themselves.

use std::sync::OnceLock;

use super::LANES;

/// What a program's steps are compiled for. Results are the same bits in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Features {
    /// What every CPU of this architecture has.
    Baseline,
    /// AVX2, FMA, F16C, BMI1, BMI2, LZCNT and POPCNT.
    Avx2,
}

impl Features {
    /// What this CPU can run, the best last.
    #[must_use]
    pub fn available() -> &'static [Self] {
        const ALL: [Features; 2] = [Features::Baseline, Features::Avx2];
        static COUNT: OnceLock<usize> = OnceLock::new();
        &ALL[..*COUNT.get_or_init(|| if has_avx2() { 2 } else { 1 })]
    }

    /// The best that this CPU can run.
    #[must_use]
    pub fn best() -> Self {
        *Self::available().last().unwrap_or(&Self::Baseline)
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("fma")
        && std::is_x86_feature_detected!("f16c")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("lzcnt")
        && std::is_x86_feature_detected!("popcnt")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

/// Operations on vectors, by instruction set.
pub(crate) trait Isa {
    /// The sign bits of 32 lanes: lane 0's is bit 0.
    fn signs(values: &[u32; LANES]) -> u32;
}

/// See [`Features::Baseline`].
pub(super) struct Baseline;

impl Isa for Baseline {
    #[inline(always)]
    fn signs(values: &[u32; LANES]) -> u32 {
        let mut mask = 0;
        for (lane, value) in values.iter().enumerate() {
            mask |= (value >> 31) << lane;
        }
        mask
    }
}

/// See [`Features::Avx2`]. Only for functions that are compiled with these features.
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Isa for Avx2 {
    #[inline(always)]
    fn signs(values: &[u32; LANES]) -> u32 {
        // SAFETY: this type is a parameter of steps for `Features::Avx2` alone, which run on CPUs that have it (module invariant).
        unsafe { avx2::signs(values) }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{__m256i, _mm256_castsi256_ps, _mm256_loadu_si256, _mm256_movemask_ps};

    use super::LANES;

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn signs(values: &[u32; LANES]) -> u32 {
        let mut mask = 0;
        for (index, eight) in values.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: eight lanes of four bytes are 32 bytes; the load needs no alignment.
            let vector = unsafe { _mm256_loadu_si256(eight.as_ptr().cast::<__m256i>()) };
            let signs = _mm256_movemask_ps(_mm256_castsi256_ps(vector));
            mask |= signs.cast_unsigned() << (8 * index);
        }
        mask
    }
}
