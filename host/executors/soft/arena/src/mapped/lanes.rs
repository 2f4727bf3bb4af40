//! Comparisons of 32 addresses with one window, with AVX2 if the processor has it.
//!
//! The AVX2 forms are inlined into callers that are compiled for AVX2.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_castsi256_pd, _mm256_movemask_pd, _mm256_or_si256,
    _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_sub_epi64, _mm256_testz_si256, _mm256_xor_si256,
};

/// Number of lanes of a warp.
pub const LANES: usize = 32;

/// Returns whether the processor has AVX2. Callers check this before they use the AVX2 forms.
pub(super) fn has_avx2() -> bool {
    std::is_x86_feature_detected!("avx2")
}

/// Loads four of the 32 addresses: those of group `index`, 0 to 7.
#[inline]
#[target_feature(enable = "avx2")]
fn four(addresses: &[u64], index: usize) -> __m256i {
    let (quads, _) = addresses.as_chunks::<4>();
    zerocopy::transmute!(quads[index])
}

#[inline]
#[target_feature(enable = "avx2")]
fn all(value: u64) -> __m256i {
    _mm256_set1_epi64x(value.cast_signed())
}

/// Returns whether each address is `bytes` above its predecessor.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn unit_avx2(addresses: &[u64; LANES], bytes: u64) -> bool {
    let first = addresses[0];
    let mut expected: __m256i = zerocopy::transmute!([
        first,
        first.wrapping_add(bytes),
        first.wrapping_add(2 * bytes),
        first.wrapping_add(3 * bytes)
    ]);
    let step = all(4 * bytes);
    let mut differs = _mm256_setzero_si256();
    for index in 0..LANES / 4 {
        differs = _mm256_or_si256(differs, _mm256_xor_si256(four(addresses, index), expected));
        expected = _mm256_add_epi64(expected, step);
    }
    _mm256_testz_si256(differs, differs) == 1
}

/// Does the same as [`unit_avx2`] on any processor.
pub(super) fn unit_plain(addresses: &[u64; LANES], bytes: u64) -> bool {
    let first = addresses[0];
    (0..).zip(addresses).all(|(lane, &address)| address == first.wrapping_add(bytes * lane))
}

/// Returns whether any address is more than `last` above `start`, or not a multiple of `bytes`, which is a
/// power of two. The number of addresses is a multiple of four, and `last` is below 2^63.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn any_bad_avx2<const L: usize>(addresses: &[u64; L], start: u64, last: u64, bytes: u64) -> bool {
    let (start, last) = (all(start), all(last));
    let (mut beyond, mut bits) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    for index in 0..L / 4 {
        let address = four(addresses, index);
        let offset = _mm256_sub_epi64(address, start);
        // A negative difference means that an offset is beyond the last good one, as both are below 2^63.
        beyond = _mm256_or_si256(beyond, _mm256_or_si256(offset, _mm256_sub_epi64(last, offset)));
        bits = _mm256_or_si256(bits, address);
    }
    let aligned = _mm256_testz_si256(bits, all(bytes - 1)) == 1;
    _mm256_movemask_pd(_mm256_castsi256_pd(beyond)) != 0 || !aligned
}

/// Returns a bit for each address that is more than `last` above `start`, or not a multiple of `bytes`, which
/// is a power of two. `last` is below 2^63.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn bad_avx2(addresses: &[u64; LANES], start: u64, last: u64, bytes: u64) -> u32 {
    let (start, last, low) = (all(start), all(last), all(bytes - 1));
    let mut bad = 0;
    for index in 0..LANES / 4 {
        let address = four(addresses, index);
        let offset = _mm256_sub_epi64(address, start);
        // Each of the three terms has its sign set for one kind of bad address: an offset of at least 2^63,
        // an offset beyond the last, and a misaligned one.
        let beyond = _mm256_or_si256(offset, _mm256_sub_epi64(last, offset));
        let misaligned = _mm256_sub_epi64(_mm256_setzero_si256(), _mm256_and_si256(address, low));
        let signs = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_or_si256(beyond, misaligned)));
        bad |= signs.cast_unsigned() << (4 * index);
    }
    bad
}

/// Does the same as [`bad_avx2`] on any processor, for up to 32 addresses.
pub(super) fn bad_plain(addresses: &[u64], start: u64, last: u64, bytes: u64) -> u32 {
    (0..).zip(addresses).fold(0, |bad, (lane, &address)| {
        let beyond = address.wrapping_sub(start) > last;
        bad | u32::from(beyond || !address.is_multiple_of(bytes)) << lane
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses() -> impl Strategy<Value = [u64; LANES]> {
        let one = prop_oneof![8 => 0u64..300, 1 => any::<u64>(), 1 => Just(u64::MAX), 1 => Just(1 << 63)];
        let unit = (0u64..99, prop::sample::select(vec![1u64, 2, 4, 8, 16]), 0..LANES, 0u64..3).prop_map(
            |(first, bytes, lane, off)| {
                let mut all: [u64; LANES] = std::array::from_fn(|lane| first + bytes * lane as u64);
                all[lane] += off;
                all
            },
        );
        let any = prop::collection::vec(one, LANES).prop_map(|all| std::array::from_fn(|lane| all[lane]));
        prop_oneof![any, unit]
    }

    proptest! {
        #[test]
        fn both_forms_say_the_same(
            addresses in addresses(), start in 0u64..200, last in prop_oneof![0u64..100, 0..1u64 << 63],
            bytes in prop::sample::select(vec![1u64, 2, 4, 8, 16]),
        ) {
            prop_assume!(has_avx2());
            // SAFETY: the processor has AVX2.
            let vectors = unsafe { bad_avx2(&addresses, start, last, bytes) };
            prop_assert_eq!(vectors, bad_plain(&addresses, start, last, bytes));
            // SAFETY: as above.
            let any = unsafe { any_bad_avx2(&addresses, start, last, bytes) };
            prop_assert_eq!(any, vectors != 0);
            // SAFETY: as above.
            let unit = unsafe { unit_avx2(&addresses, bytes) };
            prop_assert_eq!(unit, unit_plain(&addresses, bytes));
        }
    }
}
