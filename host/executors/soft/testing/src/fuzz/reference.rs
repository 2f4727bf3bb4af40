//! Results that the PTX ISA defines for an instruction, computed with integers of 128 bits and with LLVM's
//! software implementation of floating-point numbers. No engine's code is used.

use rustc_apfloat::ieee::{BFloat, Double, Half, Single};

use crate::expect::Expect;
use crate::floats::{self, FloatNumber, Mode};

/// Returns the result that the ISA defines for the sources' bits, or `None` if this reference does not know
/// the instruction or the ISA leaves the result open.
#[must_use]
pub fn reference(spelling: &str, sources: &[u64]) -> Option<Expect> {
    let parts: Vec<&str> = spelling.split('.').collect();
    let (&base, &last) = (parts.first()?, parts.last()?);
    if base == "cvt" {
        return convert(&parts, spelling, *sources.first()?);
    }
    if matches!(last, "f32" | "f64" | "f16" | "bf16" | "f16x2" | "bf16x2") && base != "selp" {
        return match last {
            "f32" => float::<Single>(base, &parts, spelling, sources),
            "f64" => float::<Double>(base, &parts, spelling, sources),
            "f16" => float::<Half>(base, &parts, spelling, sources),
            "bf16" => float::<BFloat>(base, &parts, spelling, sources),
            _ => {
                let half = |shift: u32| {
                    let sources: Vec<u64> = sources.iter().map(|bits| bits >> shift & 0xffff).collect();
                    if last == "f16x2" {
                        float::<Half>(base, &parts, spelling, &sources)
                    } else {
                        float::<BFloat>(base, &parts, spelling, &sources)
                    }
                };
                (base != "setp").then(|| Some(Expect::halves(half(0)?, half(16)?)))?
            }
        };
    }
    integer(&parts, base, last, sources).map(Expect::Bits)
}

/// Returns whether a comparison holds for an ordering, which is `None` if an operand is NaN.
fn holds(compare: &str, ordering: Option<std::cmp::Ordering>) -> Option<bool> {
    let Some(ordering) = ordering else {
        return Some(matches!(compare, "equ" | "neu" | "ltu" | "leu" | "gtu" | "geu" | "nan"));
    };
    Some(match compare {
        "eq" | "equ" => ordering.is_eq(),
        "ne" | "neu" => ordering.is_ne(),
        "lt" | "ltu" | "lo" => ordering.is_lt(),
        "le" | "leu" | "ls" => ordering.is_le(),
        "gt" | "gtu" | "hi" => ordering.is_gt(),
        "ge" | "geu" | "hs" => ordering.is_ge(),
        "num" => true,
        "nan" => false,
        _ => return None,
    })
}

fn float<F: FloatNumber>(base: &str, parts: &[&str], spelling: &str, sources: &[u64]) -> Option<Expect> {
    let mode = Mode::from_spelling(spelling);
    let has = |part: &str| parts.contains(&part);
    if has("approx") || has("full") || has("relu") {
        return None;
    }
    Some(match (base, sources) {
        ("add", &[a, b]) => floats::add::<F>(a, b, mode),
        ("sub", &[a, b]) => floats::sub::<F>(a, b, mode),
        ("mul", &[a, b]) => floats::mul::<F>(a, b, mode),
        ("div", &[a, b]) => floats::div::<F>(a, b, mode),
        ("fma" | "mad", &[a, b, c]) => floats::fma::<F>(a, b, c, mode),
        ("rcp", &[a]) => floats::rcp::<F>(a, mode),
        ("sqrt", &[a]) => floats::sqrt::<F>(a, mode),
        ("abs", &[a]) => floats::abs::<F>(a, mode),
        ("neg", &[a]) => floats::neg::<F>(a, mode),
        ("min" | "max", &[a, b]) => floats::extremum::<F>(a, b, mode, base == "max", has("NaN")),
        ("setp", &[a, b]) if parts.len() == 3 + usize::from(mode.ftz) => {
            let (a, b) = (floats::value::<F>(a, mode.ftz), floats::value::<F>(b, mode.ftz));
            Expect::Bits(holds(parts[1], a.partial_cmp(&b))?.into())
        }
        _ => return None,
    })
}

/// Width and signedness of an integer type, or `None` for others.
fn integer_type(name: &str) -> Option<(u32, bool)> {
    let width = name.get(1..)?.parse().ok()?;
    matches!(name.as_bytes()[0], b's' | b'u' | b'b').then(|| (width, name.starts_with('s')))
}

/// Returns the value of an integer, given as bits.
fn value(bits: u64, width: u32, signed: bool) -> i128 {
    let bits = bits & (u64::MAX >> (64 - width));
    if signed && bits >> (width - 1) != 0 { i128::from(bits) - (1 << width) } else { i128::from(bits) }
}

fn integer(parts: &[&str], base: &str, last: &str, sources: &[u64]) -> Option<u64> {
    let has = |part: &str| parts.contains(&part);
    if base == "lop3" || base == "prmt" || base == "shf" || base == "bmsk" {
        return words(parts, sources);
    }
    if last == "pred" {
        return Some(match (base, sources) {
            ("and", [a, b]) => a & b,
            ("or", [a, b]) => a | b,
            ("xor", [a, b]) => a ^ b,
            ("not", [a]) => a ^ 1,
            ("mov", [a]) => *a,
            _ => return None,
        });
    }
    if base == "selp" {
        let width: u32 = last[1..].parse().ok()?;
        return Some(sources[usize::from(sources[2] == 0)] & (u64::MAX >> (64 - width)));
    }
    let (width, signed) = integer_type(last)?;
    let of = |bits: u64| value(bits, width, signed);
    let mask = u64::MAX >> (64 - width);
    let wide = u128::MAX >> (128 - 2 * width);
    let limit = |value: i128| value.clamp(-(1 << 31), (1 << 31) - 1);
    let product = |a: u64, b: u64| {
        let product = of(a).wrapping_mul(of(b));
        if has("hi") { product >> width } else { product }
    };
    let bits = |value: i128| value as u64 & mask;
    Some(match (base, sources) {
        ("add" | "sub", &[a, b]) => {
            let sum = if base == "add" { of(a) + of(b) } else { of(a) - of(b) };
            bits(if has("sat") { limit(sum) } else { sum })
        }
        ("mul", &[a, b]) if has("wide") => (product(a, b) as u128 & wide) as u64,
        ("mul", &[a, b]) => bits(product(a, b)),
        ("mad", &[a, b, c]) if has("wide") => {
            (product(a, b).wrapping_add(i128::from(c)) as u128 & wide) as u64
        }
        ("mad", &[a, b, c]) if has("sat") => bits(limit(product(a, b) + of(c))),
        ("mad", &[a, b, c]) => bits(product(a, b).wrapping_add(of(c))),
        ("sad", &[a, b, c]) => bits((of(a) - of(b)).abs() + of(c)),
        ("div" | "rem", &[a, b]) => {
            let (a, b) = (of(a), of(b));
            // The ISA leaves a division by zero open, and a quotient that the type does not have.
            if b == 0 || (signed && b == -1 && a == -(1 << (width - 1))) {
                return None;
            }
            bits(if base == "div" { a / b } else { a % b })
        }
        ("min", &[a, b]) => bits(of(a).min(of(b))),
        ("max", &[a, b]) => bits(of(a).max(of(b))),
        ("abs", &[a]) => bits(of(a).abs()),
        ("neg", &[a]) => bits(-of(a)),
        ("and", &[a, b]) => a & b & mask,
        ("or", &[a, b]) => (a | b) & mask,
        ("xor", &[a, b]) => (a ^ b) & mask,
        ("not", &[a]) => !a & mask,
        ("cnot", &[a]) => u64::from(a & mask == 0),
        ("mov", &[a]) => a & mask,
        ("popc", &[a]) => (a & mask).count_ones().into(),
        ("clz", &[a]) => u64::from((a & mask).leading_zeros() + width - 64),
        ("brev", &[a]) => a.reverse_bits() >> (64 - width),
        ("shl", &[a, b]) => {
            if b & 0xffff_ffff < u64::from(width) {
                a << (b & 63) & mask
            } else {
                0
            }
        }
        ("shr", &[a, b]) => bits(of(a) >> (b & 0xffff_ffff).min(64)),
        ("bfe", &[a, b, c]) => field(of(a), a & mask, b & 0xff, c & 0xff, width, signed) & mask,
        ("bfi", &[a, b, c, d]) => {
            let (position, length) = (c & 0xff, d & 0xff);
            let field = (((1_u128 << length.min(64)) - 1) << position.min(64)) as u64 & mask;
            b & mask & !field | ((u128::from(a) << position.min(64)) as u64 & field)
        }
        ("bfind", &[a]) => {
            let a = of(a);
            let magnitude = if a < 0 { !a } else { a };
            let position = if magnitude == 0 { u32::MAX } else { magnitude.ilog2() };
            u64::from(if has("shiftamt") && magnitude != 0 { width - 1 - position } else { position })
        }
        ("dp4a" | "dp2a", &[a, b, c]) => return Some(dot(parts, a, b, c)),
        ("setp", &[a, b]) if parts.len() == 3 => holds(parts[1], Some(of(a).cmp(&of(b))))?.into(),
        _ => return None,
    })
}

/// Extracts a bit field, which the sign of its highest bit extends if the type is signed.
fn field(value: i128, bits: u64, position: u64, length: u64, width: u32, signed: bool) -> u64 {
    if length == 0 {
        return 0;
    }
    let top = (position + length - 1).min(u64::from(width) - 1);
    let sign = if signed && bits >> top & 1 != 0 { u64::MAX } else { 0 };
    let mut result = 0;
    for at in 0..u64::from(width) {
        let from = position + at;
        let bit = if at < length && from < u64::from(width) { (value >> from) as u64 & 1 } else { sign & 1 };
        result |= bit << at;
    }
    result
}

/// Returns a sum of products of bytes, or of words by bytes.
fn dot(parts: &[&str], a: u64, b: u64, c: u64) -> u64 {
    let signed = [parts[parts.len() - 2] == "s32", parts[parts.len() - 1] == "s32"];
    let byte = |bits: u64, at: u32, width: u32, signed: bool| value(bits >> (at * width), width, signed);
    let products = if parts[0] == "dp4a" {
        (0..4).map(|at| byte(a, at, 8, signed[0]) * byte(b, at, 8, signed[1])).sum::<i128>()
    } else {
        let first = if parts.contains(&"hi") { 2 } else { 0 };
        (0..2).map(|at| byte(a, at, 16, signed[0]) * byte(b, first + at, 8, signed[1])).sum()
    };
    (products + i128::from(c)) as u64 & 0xffff_ffff
}

/// Returns the results of instructions that exist for words of 32 bits alone.
fn words(parts: &[&str], sources: &[u64]) -> Option<u64> {
    let has = |part: &str| parts.contains(&part);
    let amount = |c: u64| if has("wrap") { c & 31 } else { (c & 0xffff_ffff).min(32) };
    Some(match (parts[0], sources) {
        ("lop3", &[a, b, c, table]) => (0..32).fold(0, |all, bit| {
            let index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1);
            all | (table >> index & 1) << bit
        }),
        ("shf", &[a, b, c]) => {
            let both = u128::from(b & 0xffff_ffff) << 32 | u128::from(a & 0xffff_ffff);
            let shifted = if has("l") { both << amount(c) >> 32 } else { both >> amount(c) };
            shifted as u64 & 0xffff_ffff
        }
        ("bmsk", &[a, b]) => {
            let (position, length) = (amount(a), amount(b));
            (((1_u128 << length) - 1) << position) as u64 & 0xffff_ffff
        }
        ("prmt", &[a, b, c]) if parts.len() == 2 => {
            let bytes = (a & 0xffff_ffff | b << 32).to_le_bytes();
            let mut result = [0; 4];
            for (at, to) in result.iter_mut().enumerate() {
                let selector = c >> (4 * at) & 15;
                let byte = bytes[selector as usize & 7];
                *to = if selector & 8 == 0 { byte } else { 0_u8.wrapping_sub(byte >> 7) };
            }
            u32::from_le_bytes(result).into()
        }
        _ => return None,
    })
}

/// Returns the results of conversions between the types with which a spelling ends.
fn convert(parts: &[&str], spelling: &str, a: u64) -> Option<Expect> {
    let (to, from) = (parts[parts.len() - 2], parts[parts.len() - 1]);
    let has = |part: &str| parts.contains(&part);
    if has("relu") || has("satfinite") || has("rna") || to.contains('x') || from.contains('x') || to == "tf32"
    {
        return None;
    }
    let mode = Mode::from_spelling(spelling);
    if let Some((width, signed)) = integer_type(from) {
        let number = value(a, width, signed);
        return Some(match to {
            "f32" => floats::from_int::<Single>(number, mode),
            "f64" => floats::from_int::<Double>(number, mode),
            "f16" => floats::from_int::<Half>(number, mode),
            "bf16" => floats::from_int::<BFloat>(number, mode),
            _ => {
                let (to_width, to_signed) = integer_type(to)?;
                // `allows` compares only the register's width.
                let (low, high) = if to_signed {
                    (-(1_i128 << (to_width - 1)), (1_i128 << (to_width - 1)) - 1)
                } else {
                    (0, (1_i128 << to_width) - 1)
                };
                let number = if mode.sat { number.clamp(low, high) } else { number };
                Expect::Bits(value(number as u64, to_width, to_signed) as u64)
            }
        });
    }
    if let Some((width, signed)) = integer_type(to) {
        let bits = match from {
            "f32" => floats::to_int::<Single>(a, mode, width, signed),
            "f64" => floats::to_int::<Double>(a, mode, width, signed),
            "f16" => floats::to_int::<Half>(a, mode, width, signed),
            "bf16" => floats::to_int::<BFloat>(a, mode, width, signed),
            _ => return None,
        };
        return Some(Expect::Bits(value(bits, width, signed) as u64));
    }
    let integral = has("rni") || has("rzi") || has("rmi") || has("rpi");
    Some(match (to, from) {
        ("f32", "f32") => floats::convert::<Single, Single>(a, mode, integral),
        ("f32", "f64") => floats::convert::<Double, Single>(a, mode, integral),
        ("f32", "f16") => floats::convert::<Half, Single>(a, mode, integral),
        ("f64", "f32") => floats::convert::<Single, Double>(a, mode, integral),
        ("f64", "f64") => floats::convert::<Double, Double>(a, mode, integral),
        ("f16", "f32") => floats::convert::<Single, Half>(a, mode, integral),
        ("f16", "f64") => floats::convert::<Double, Half>(a, mode, integral),
        ("bf16", "f32") => floats::convert::<Single, BFloat>(a, mode, integral),
        _ => return None,
    })
}

/// Returns whether a register of `bytes` bytes may hold this result.
#[must_use]
pub fn allows(expect: &Expect, got: u64, bytes: u32) -> bool {
    let mask = u64::MAX >> (64 - 8 * bytes);
    match expect {
        Expect::Bits(bits) => bits & mask == got & mask,
        expect => expect.allows(got & mask),
    }
}
