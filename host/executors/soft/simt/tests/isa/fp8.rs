//! Tests of conversions of 8-bit floating-point numbers, two at a time.

use crate::case::Case;
use crate::device::{Params, Shape};
use crate::half::value as half_value;

/// One of the two 8-bit formats.
#[derive(Clone, Copy)]
struct Fp8Format {
    name: &'static str,
    /// Number of bits of the fraction; the next field is the bias of the exponent.
    fraction: u32,
    bias: i32,
}

const FORMATS: [Fp8Format; 2] =
    [Fp8Format { name: "e4m3x2", fraction: 3, bias: 7 }, Fp8Format { name: "e5m2x2", fraction: 2, bias: 15 }];

impl Fp8Format {
    /// Returns the value of a byte, or `None` for NaN.
    fn value(self, byte: u32) -> Option<f64> {
        let (exponent, fraction) =
            (byte >> self.fraction & (0x7f >> self.fraction), byte & ((1 << self.fraction) - 1));
        let part = f64::from(fraction) / f64::from(1 << self.fraction);
        let power = |exponent: i32| 2.0_f64.powi(exponent);
        let magnitude = match (self.name, exponent, fraction) {
            ("e4m3x2", 15, 7) | ("e5m2x2", 31, 1..) => return None,
            ("e5m2x2", 31, 0) => f64::INFINITY,
            (_, 0, _) => part * power(1 - self.bias),
            _ => (1.0 + part) * power(exponent as i32 - self.bias),
        };
        Some(if byte & 0x80 != 0 { -magnitude } else { magnitude })
    }

    /// Returns the finite byte that is nearest to a value, and the even one of two equally near ones.
    fn nearest(self, value: f64) -> u32 {
        let finite = (0..0x80).filter(|byte| self.value(*byte).is_some_and(f64::is_finite));
        let distance = |byte: u32| (self.value(byte).expect("a number") - value.abs().min(1e9)).abs();
        let best = finite.min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a % 2).cmp(&(b % 2))));
        best.expect("there are numbers") | if value.is_sign_negative() { 0x80 } else { 0 }
    }
}

/// Returns a kernel in which each thread loads a value, converts it, and stores the result.
fn kernel(load: &str, instruction: &str, store: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 in, .param .u64 out)\n{{\n.reg .b64 %i, %o, %x;\n.reg .b32 %t, %r<3>;\n.reg .b16 %h;\n\
         ld.param.u64 %i, [in];\nld.param.u64 %o, [out];\nmov.u32 %t, %tid.x;\n\
         mul.wide.u32 %x, %t, 8;\nadd.s64 %i, %i, %x;\nadd.s64 %o, %o, %x;\n{load}\n{instruction}\n{store}\nret;\n}}\n"
    )
}

/// Returns a test that converts every byte to halves, in both positions.
fn widen(format: Fp8Format, relu: bool) -> Case {
    let spelling = format!("cvt.rn{}.f16x2.{}", if relu { ".relu" } else { "" }, format.name);
    let text = kernel("ld.global.b16 %h, [%i];", &format!("{spelling} %r0, %h;"), "st.global.b32 [%o], %r0;");
    Case::new(&spelling, &spelling, &text, move |device| {
        let bytes = |at: u32| (at, (at * 7 + 3) & 0xff);
        let words: Vec<u32> = (0..256).flat_map(|at| [bytes(at).0 | bytes(at).1 << 8, 0]).collect();
        let (input, out) = (device.upload_words(&words), device.allocate(8 * 256));
        device.launch("k", Shape::line(1, 256), &Params::new().u64(input).u64(out))?;
        let got = device.read_words(out, 512);
        for at in 0..256 {
            for (byte, half) in
                [(bytes(at).0, got[2 * at as usize] & 0xffff), (bytes(at).1, got[2 * at as usize] >> 16)]
            {
                let right = match format.value(byte) {
                    None => half == 0x7fff,
                    Some(value) if relu && value <= 0.0 => half == 0,
                    Some(value) => half_value(half.into()).to_bits() == value.to_bits(),
                };
                if !right {
                    return Err(format!("{byte:#x} is {half:#x}"));
                }
            }
        }
        Ok(())
    })
}

/// Returns every number of the format, the midpoints between neighbours, numbers next to the midpoints, and
/// numbers beyond the range.
fn numbers(format: Fp8Format) -> Vec<f32> {
    let mut numbers: Vec<f32> =
        (0..0x7f).filter_map(|byte| format.value(byte)).map(|value| value as f32).collect();
    let middles: Vec<f32> = numbers.windows(2).map(|pair| f32::midpoint(pair[0], pair[1])).collect();
    numbers.extend(middles.iter().flat_map(|middle| [*middle, middle.next_up(), middle.next_down()]));
    numbers.extend([1e6, f32::MAX, f32::INFINITY, f32::MIN_POSITIVE, 1e-45]);
    let negative: Vec<f32> = numbers.iter().map(|number| -number).collect();
    numbers.extend(negative);
    numbers.push(f32::NAN);
    numbers
}

/// Returns a test that converts two singles, or the two halves of a word.
fn narrow(format: Fp8Format, relu: bool, halves: bool) -> Case {
    let relu_part = if relu { ".relu" } else { "" };
    let from = if halves { "f16x2" } else { "f32" };
    let spelling = format!("cvt.rn.satfinite{relu_part}.{}.{from}", format.name);
    let pack = if halves { "cvt.rn.f16x2.f32 %r2, %r0, %r1;\n" } else { "" };
    let sources = if halves { "%r2" } else { "%r0, %r1" };
    let text = kernel(
        "ld.global.v2.b32 {%r0, %r1}, [%i];",
        &format!("{pack}{spelling} %h, {sources};"),
        "st.global.b16 [%o], %h;",
    );
    Case::new(&spelling, &spelling, &text, move |device| {
        let numbers = numbers(format);
        let other = |at: usize| numbers[(at + 5) % numbers.len()];
        let words: Vec<u32> = numbers
            .iter()
            .enumerate()
            .flat_map(|(at, upper)| [upper.to_bits(), other(at).to_bits()])
            .collect();
        let count = numbers.len() as u32;
        let (input, out) = (device.upload_words(&words), device.allocate(8 * u64::from(count)));
        device.launch("k", Shape::line(1, count), &Params::new().u64(input).u64(out))?;
        let got = device.read_words(out, 2 * u64::from(count));
        for at in 0..numbers.len() {
            let word = got[2 * at];
            for (number, byte) in [(numbers[at], word >> 8 & 0xff), (other(at), word & 0xff)] {
                let value = if halves {
                    half_value(crate::matrix::to_half(number.into()).into())
                } else {
                    f64::from(number)
                };
                let expected = if value.is_nan() {
                    0x7f
                } else if relu && value <= 0.0 {
                    0
                } else {
                    format.nearest(value)
                };
                if byte != expected {
                    return Err(format!("{value:e} is {byte:#x}, should be {expected:#x}"));
                }
            }
        }
        Ok(())
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    for format in FORMATS {
        for relu in [false, true] {
            cases.push(widen(format, relu));
            cases.extend([false, true].map(|halves| narrow(format, relu, halves)));
        }
    }
}
