//! Operand values for tests: the edges of each type, and pseudorandom values.

/// Set of values of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Integers of this number of bits. Higher bits are random, and an instruction of this width must ignore
    /// them.
    Int(u32),
    /// Half-precision numbers, in 16 bits.
    F16,
    /// Pairs of half-precision numbers in 32 bits.
    F16x2,
    /// Numbers of type bfloat16, in 16 bits.
    Bf16,
    /// Pairs of bfloat16 numbers in 32 bits.
    Bf16x2,
    /// Any single-precision numbers.
    F32,
    /// Any double-precision numbers.
    F64,
    /// Counts, positions and lengths in 32 bits: small numbers and their limits.
    Count,
    /// Predicates, 0 or 1.
    Pred,
    /// Single-precision numbers between two whole numbers, without special values.
    Range(i32, i32),
}

/// Pseudorandom generator (splitmix64). A seed gives the same numbers in each run.
pub struct Random(u64);

impl Random {
    /// Creates a generator with a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a random number in `0..end`.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// Draws an element of a list.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Single-precision test values: zeros, subnormals, limits, halves and ties, limits of other types,
/// infinities and NaNs.
pub const F32_EDGES: &[u32] = &[
    0x0000_0000,
    0x8000_0000,
    0x0000_0001,
    0x8000_0001,
    0x0000_0100,
    0x8000_0100,
    0x0040_0000,
    0x8040_0000,
    0x007f_ffff,
    0x807f_ffff,
    0x0080_0000,
    0x8080_0000,
    0x0080_0001,
    0x8080_0001,
    0x3300_0000, // 2^-25: half of the least half-precision number
    0x3300_0001,
    0x3380_0000, // 2^-24: the least half-precision number
    0x387f_c000, // the greatest subnormal half
    0x387f_ffff,
    0x3880_0000, // 2^-14: the least normal half
    0x3eaa_aaab,
    0x3f00_0000,
    0xbf00_0000,
    0x3eff_ffff,
    0x3f00_0001,
    0x3f7f_ffff,
    0x3f80_0000,
    0xbf80_0000,
    0x3f80_0001,
    0x3f80_1000, // 1 + 2^-11: a tie in half precision
    0x3f80_3000,
    0x3f80_8000, // 1 + 2^-8: a tie in bfloat16
    0x3f81_8000,
    0x3fc0_0000,
    0xbfc0_0000,
    0x4000_0000,
    0x4020_0000, // 2.5
    0xc020_0000,
    0x4049_0fdb, // pi
    0x4060_0000, // 3.5
    0x42fe_0000, // 127
    0x4300_0000, // 128
    0x437f_0000, // 255
    0x437f_8000, // 255.5
    0x46ff_fe00, // 32767
    0x4700_0000, // 32768
    0x477f_e000, // 65504: the greatest half
    0x477f_efff,
    0x477f_f000, // 65520: a tie to infinity in half precision
    0x477f_ff00, // 65535
    0x4b00_0000, // 2^23
    0x4b00_0001,
    0x4b7f_ffff,
    0x4b80_0000, // 2^24
    0x4eff_ffff,
    0x4f00_0000, // 2^31
    0xcf00_0000,
    0xcf00_0001,
    0x4f7f_ffff,
    0x4f80_0000, // 2^32
    0x5eff_ffff,
    0x5f00_0000, // 2^63
    0xdf00_0000,
    0xdf00_0001,
    0x5f7f_ffff,
    0x5f80_0000, // 2^64
    0x7e00_0000,
    0x7e80_0000, // 2^126
    0x7e80_0001,
    0x7f00_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0xffc0_0001,
    0x7f80_0001,
    0x7fff_ffff,
];

/// Double-precision test values of the same kinds as [`F32_EDGES`].
pub const F64_EDGES: &[u64] = &[
    0x0000_0000_0000_0000,
    0x8000_0000_0000_0000,
    0x0000_0000_0000_0001,
    0x800f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x8010_0000_0000_0001,
    0x3680_0000_0000_0000, // 2^-151
    0x3690_0000_0000_0000, // 2^-150: half of the least single-precision number
    0x3690_0000_0000_0001,
    0x36a0_0000_0000_0000, // 2^-149
    0x380f_ffff_c000_0000,
    0x380f_ffff_f000_0000, // rounds up to the least normal single
    0x380f_ffff_e000_0000, // a tie below the least normal single
    0x3810_0000_0000_0000, // 2^-126
    0x3fd5_5555_5555_5555,
    0x3fe0_0000_0000_0000,
    0xbfe0_0000_0000_0000,
    0x3fef_ffff_ffff_ffff,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    0x3ff0_0000_0000_0001,
    0x3ff0_0000_1000_0000, // 1 + 2^-24: a tie in single precision
    0x3ff0_0000_3000_0000,
    0x3ff0_0000_1000_0001,
    0x3ff8_0000_0000_0000,
    0x4004_0000_0000_0000,
    0x400c_0000_0000_0000,
    0x41df_ffff_ffc0_0000, // 2^31 - 1
    0x41e0_0000_0000_0000,
    0xc1e0_0000_0000_0000,
    0xc1e0_0000_0020_0000,
    0x41ef_ffff_ffe0_0000,
    0x41f0_0000_0000_0000,
    0x4330_0000_0000_0001,
    0x4340_0000_0000_0000,
    0x43df_ffff_ffff_ffff,
    0x43e0_0000_0000_0000, // 2^63
    0xc3e0_0000_0000_0000,
    0x43f0_0000_0000_0000, // 2^64
    0x47ef_ffff_e000_0000, // the greatest single
    0x47ef_ffff_efff_ffff,
    0x47ef_ffff_f000_0000, // a tie to infinity in single precision
    0x47f0_0000_0000_0000,
    0x7fe0_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0xffef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0xfff8_0000_0000_0001,
    0x7ff0_0000_0000_0001,
];

/// Half-precision test values around changes of rounding, overflow or class.
pub const F16_EDGES: &[u16] = &[
    0x0000, 0x8000, 0x0001, 0x8001, 0x0200, 0x03ff, 0x83ff, 0x0400, 0x8400, 0x0401, 0x1400, 0x3555, 0x3800,
    0xb800, 0x37ff, 0x3801, 0x3bff, 0x3c00, 0xbc00, 0x3c01, 0x3e00, 0xbe00, 0x4000, 0x4100, 0xc100, 0x4248,
    0x4300, 0x57f0, 0x5800, 0x5bf8, 0x5c00, 0x6400, 0x6401, 0x67ff, 0x6800, 0x77ff, 0x7800, 0x7bff, 0xfbff,
    0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01, 0x7fff,
];

/// bfloat16 test values around changes of rounding, overflow or class.
pub const BF16_EDGES: &[u16] = &[
    0x0000, 0x8000, 0x0001, 0x8001, 0x0040, 0x007f, 0x807f, 0x0080, 0x8080, 0x0081, 0x3eab, 0x3f00, 0xbf00,
    0x3f7f, 0x3f80, 0xbf80, 0x3f81, 0x3fc0, 0x4000, 0x4020, 0x4049, 0x42fe, 0x4300, 0x4b00, 0x4f00, 0x7e80,
    0x7f00, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81, 0x7fff,
];

const COUNTS: &[u64] = &[
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    17,
    24,
    30,
    31,
    32,
    33,
    47,
    48,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    257,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
];

/// Returns the edge values of integers of `bits` bits.
fn int_edges(bits: u32) -> Vec<u64> {
    let top = 1_u64 << (bits - 1);
    let all = top | (top - 1);
    let mut edges: Vec<u64> = vec![0, 1, 2, 3, 5, 10, 127, 128, 255, 256, 0x0102_0304_0506_0708];
    edges.extend([all, all - 1, all - 2, all - 9, top, top - 1, top + 1, top >> 1, (top >> 1) - 1]);
    edges.extend([
        0x5555_5555_5555_5555,
        0xaaaa_aaaa_aaaa_aaaa,
        0x8080_8080_8080_8080,
        0x7f80_ff01_7f80_ff01,
    ]);
    if bits > 16 {
        edges.extend([0x7fff, 0x8000, 0xffff, 0x1_0000, 0x1_0001, !0x7fff, !0xffff]);
    }
    if bits > 32 {
        edges.extend([
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            1 << 32,
            (1 << 32) + 1,
            !0x7fff_ffff,
            !0xffff_ffff,
        ]);
    }
    for edge in &mut edges {
        *edge &= all;
    }
    edges.sort_unstable();
    edges.dedup();
    edges
}

impl Domain {
    /// Returns the edge values of the domain.
    #[must_use]
    pub fn edges(self) -> Vec<u64> {
        match self {
            Self::Int(bits) => int_edges(bits),
            Self::F16 => F16_EDGES.iter().map(|&bits| bits.into()).collect(),
            Self::Bf16 => BF16_EDGES.iter().map(|&bits| bits.into()).collect(),
            Self::F16x2 | Self::Bf16x2 => {
                let halves = if self == Self::F16x2 { F16_EDGES } else { BF16_EDGES };
                let other = halves.iter().cycle().skip(halves.len() / 2 + 2);
                halves.iter().zip(other).map(|(&low, &high)| u64::from(low) | u64::from(high) << 16).collect()
            }
            Self::F32 => F32_EDGES.iter().map(|&bits| bits.into()).collect(),
            Self::F64 => F64_EDGES.to_vec(),
            Self::Count => COUNTS.to_vec(),
            Self::Pred => vec![0, 1],
            Self::Range(low, high) => [low as f32, high as f32, i32::midpoint(low, high) as f32]
                .iter()
                .map(|x| x.to_bits().into())
                .collect(),
        }
    }

    /// Draws a value. Often it is an edge or a number of moderate size, otherwise random bits.
    pub fn random(self, random: &mut Random, edges: &[u64]) -> u64 {
        let pick = random.below(8);
        if pick < 2 && !matches!(self, Self::Range(..)) {
            return edges[random.below(edges.len() as u64) as usize];
        }
        let bits = random.bits();
        // A random sign and significand, with an exponent near that of 1.
        let moderate = |exponent_bits: u32, significand_bits: u32| {
            let bias = (1_u64 << (exponent_bits - 1)) - 1;
            let sign = (bits & 1) << (exponent_bits + significand_bits);
            let exponent = (bias - 6 + (bits >> 1) % 12) << significand_bits;
            sign | exponent | ((bits >> 8) & ((1 << significand_bits) - 1))
        };
        match self {
            Self::Int(width) => {
                let mask = u64::MAX >> (64 - width);
                if pick < 4 { (bits % 64).wrapping_sub(32) & mask } else { bits & mask }
            }
            Self::F16 if pick < 6 => moderate(5, 10),
            Self::Bf16 if pick < 6 => moderate(8, 7),
            Self::F32 if pick < 6 => moderate(8, 23),
            Self::F64 if pick < 6 => moderate(11, 52),
            Self::F16 | Self::Bf16 => bits & 0xffff,
            Self::F16x2 => {
                let high = Self::F16.random(random, edges) & 0xffff;
                Self::F16.random(random, edges) & 0xffff | high << 16
            }
            Self::Bf16x2 => {
                let high = Self::Bf16.random(random, edges) & 0xffff;
                Self::Bf16.random(random, edges) & 0xffff | high << 16
            }
            Self::F32 => bits & 0xffff_ffff,
            Self::F64 => bits,
            Self::Count => bits % 70,
            Self::Pred => bits & 1,
            Self::Range(low, high) => {
                let at = (bits >> 11) as f64 / (1_u64 << 53) as f64;
                let value = f64::from(low) + at * (f64::from(high) - f64::from(low));
                (value as f32).to_bits().into()
            }
        }
    }
}

/// Returns operand tuples of the given domains: each pair of edges for up to two operands, many combinations
/// of edges for more, and `extra` random tuples.
#[must_use]
pub fn tuples(domains: &[Domain], extra: usize) -> Vec<Vec<u64>> {
    let edges: Vec<Vec<u64>> = domains.iter().map(|domain| domain.edges()).collect();
    let all: usize = edges.iter().map(Vec::len).product();
    // If there are more combinations, every `step`-th is taken. The step has no factor in common with any of
    // the sizes.
    let most = 1600;
    let mut step = all.div_ceil(most);
    while edges.iter().any(|edges| step > 1 && gcd(edges.len(), step) > 1) {
        step += 1;
    }
    let mut tuples: Vec<Vec<u64>> = (0..all)
        .step_by(step)
        .map(|index| {
            let mut rest = index;
            edges
                .iter()
                .map(|edges| {
                    let value = edges[rest % edges.len()];
                    rest /= edges.len();
                    value
                })
                .collect()
        })
        .collect();
    let mut random = Random::new(domains.len() as u64);
    for _ in 0..extra {
        tuples.push(
            domains.iter().zip(&edges).map(|(domain, edges)| domain.random(&mut random, edges)).collect(),
        );
    }
    tuples
}

const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
