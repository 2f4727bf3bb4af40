//! Compares a device's results with those of the CPU backend.
//!
//! As in GGML's own backend tests, the measure is the normalised mean squared error: the sum of the squared
//! differences over that of the squared reference values of a tensor. Integers must be equal.

use crate::ffi::{Ggml, Shape, Type};

/// Largest accepted error of a result, and whether the order of elements matters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Floats may differ up to this normalised mean squared error; integers must be equal.
    Nmse(f64),
    /// Like `Nmse`, but the elements within a row may be in any order.
    AnyOrder(f64),
}

impl Limit {
    /// Limit that accepts no difference.
    pub const EXACT: Self = Self::Nmse(0.0);

    /// Returns the largest error that is accepted.
    pub const fn error(self) -> f64 {
        match self {
            Self::Nmse(error) | Self::AnyOrder(error) => error,
        }
    }
}

/// Elements of a tensor, densely packed in the order of its dimensions.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Elements of a float type, or of a quantisation after it was decoded.
    Floats(Vec<f32>),
    /// Elements of an integer type.
    Integers(Vec<i64>),
}

impl Values {
    /// Reads the elements of a tensor of `shape` from the bytes that it spans.
    pub fn read(ggml: &Ggml, shape: Shape, bytes: &[u8]) -> Self {
        let block = shape.kind.block();
        let size = ggml.bytes(shape.kind, block);
        let mut packed = Vec::new();
        for [i1, i2, i3] in rows(shape.ne) {
            let row = i1 * shape.nb[1] + i2 * shape.nb[2] + i3 * shape.nb[3];
            let blocks = (shape.ne[0] / block).unsigned_abs() as usize;
            for index in 0..blocks {
                packed.extend_from_slice(&bytes[row + index * shape.nb[0]..][..size]);
            }
        }
        match shape.kind {
            Type::I32 => {
                let numbers = packed.as_chunks().0.iter();
                Self::Integers(numbers.map(|bytes| i64::from(i32::from_le_bytes(*bytes))).collect())
            }
            Type::I64 => {
                Self::Integers(packed.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
            }
            kind => Self::Floats(ggml.dequantize(kind, &packed)),
        }
    }

    /// Sorts each row in ascending order.
    fn sorted(self, row: usize) -> Self {
        match self {
            Self::Floats(mut values) => {
                values.chunks_mut(row).for_each(|row| row.sort_by(f32::total_cmp));
                Self::Floats(values)
            }
            Self::Integers(mut values) => {
                values.chunks_mut(row).for_each(<[i64]>::sort_unstable);
                Self::Integers(values)
            }
        }
    }
}

fn rows(ne: [i64; 4]) -> impl Iterator<Item = [usize; 3]> {
    let [_, ne1, ne2, ne3] = ne.map(|count| count.unsigned_abs() as usize);
    (0..ne3).flat_map(move |i3| (0..ne2).flat_map(move |i2| (0..ne1).map(move |i1| [i1, i2, i3])))
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Normalised mean squared error, or infinity where values cannot be compared.
    pub error: f64,
    /// Description of the mismatch if the error exceeds the limit.
    pub wrong: Option<String>,
}

/// Compares a device's values with the reference's. `row` is the length of a row.
pub fn compare(limit: Limit, row: usize, reference: Values, device: Values) -> Verdict {
    let (reference, device) = match limit {
        Limit::Nmse(_) => (reference, device),
        Limit::AnyOrder(_) => (reference.sorted(row), device.sorted(row)),
    };
    match (reference, device) {
        (Values::Floats(reference), Values::Floats(device)) => floats(limit.error(), &reference, &device),
        (Values::Integers(reference), Values::Integers(device)) => integers(&reference, &device),
        _ => Verdict { error: f64::INFINITY, wrong: Some("the types differ".to_owned()) },
    }
}

fn lengths_differ(reference: usize, device: usize) -> Verdict {
    let wrong = Some(format!("{device} elements, expected {reference}"));
    Verdict { error: f64::INFINITY, wrong }
}

fn integers(reference: &[i64], device: &[i64]) -> Verdict {
    if reference.len() != device.len() {
        return lengths_differ(reference.len(), device.len());
    }
    let differ: Vec<_> = (0..reference.len()).filter(|index| reference[*index] != device[*index]).collect();
    let wrong = differ.first().map(|index| {
        let count = differ.len();
        let (expected, got) = (reference[*index], device[*index]);
        format!("{count} of {} integers differ, first [{index}]: {got}, expected {expected}", reference.len())
    });
    Verdict { error: differ.len() as f64 / reference.len().max(1) as f64, wrong }
}

/// Returns whether a value counts as infinite. As in GGML's tests, the largest finite number does, because
/// saturating operations may yield either.
fn infinite(value: f32) -> bool {
    value.abs() >= f32::MAX
}

fn floats(limit: f64, reference: &[f32], device: &[f32]) -> Verdict {
    if reference.len() != device.len() {
        return lengths_differ(reference.len(), device.len());
    }
    let (mut off, mut all) = (0.0_f64, 0.0_f64);
    let mut worst = (0.0_f32, 0);
    for (index, (&expected, &got)) in reference.iter().zip(device).enumerate() {
        let fail = |what: &str| Verdict {
            error: f64::INFINITY,
            wrong: Some(format!("{what} at [{index}]: {got:e}, expected {expected:e}")),
        };
        if expected.is_nan() || got.is_nan() {
            return fail("not a number");
        }
        if infinite(expected) || infinite(got) {
            if infinite(expected) != infinite(got) || expected.signum() != got.signum() {
                return fail("infinity");
            }
            continue;
        }
        let difference = got - expected;
        off += f64::from(difference).powi(2);
        all += f64::from(expected).powi(2);
        if difference.abs() > worst.0 {
            worst = (difference.abs(), index);
        }
    }
    // All zeros are expected: whatever is not zero is the error itself.
    let error = if all > 0.0 { off / all } else { off };
    let wrong = (error > limit).then(|| {
        let (_, index) = worst;
        let (expected, got) = (reference[index], device[index]);
        let differ = reference.iter().zip(device).filter(|(one, other)| one.total_cmp(other).is_ne()).count();
        format!(
            "error {error:.3e} > {limit:.0e}: {differ} of {} differ, most [{index}]: {got:e}, expected {expected:e}",
            reference.len()
        )
    });
    Verdict { error, wrong }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn judge(limit: f64, reference: &[f32], device: &[f32]) -> Verdict {
        let (reference, device) = (Values::Floats(reference.to_vec()), Values::Floats(device.to_vec()));
        compare(Limit::Nmse(limit), 4, reference, device)
    }

    #[test]
    fn the_same_is_no_error() {
        let verdict = judge(0.0, &[1.0, -2.0, f32::INFINITY, 0.0], &[1.0, -2.0, f32::INFINITY, -0.0]);
        assert_eq!(verdict, Verdict { error: 0.0, wrong: None });
    }

    #[test]
    fn the_error_is_relative_to_the_sum_of_squares() {
        // 1 of 100 is off by 1%: 0.01^2 / 100.
        let reference = vec![1.0; 100];
        let mut device = reference.clone();
        device[40] = 1.01;
        let verdict = judge(1e-7, &reference, &device);
        assert!((verdict.error - 1e-6).abs() < 1e-8, "{verdict:?}");
        assert!(verdict.wrong.unwrap().contains("[40]"));
        assert_eq!(judge(1e-5, &reference, &device).wrong, None);
    }

    #[test]
    fn what_is_not_a_number_is_wrong_on_either_side() {
        for (reference, device) in [(f32::NAN, 1.0), (1.0, f32::NAN), (f32::NAN, f32::NAN)] {
            assert!(judge(1e9, &[reference], &[device]).wrong.is_some());
        }
    }

    #[test]
    fn infinities_must_be_in_the_same_places() {
        let infinity = f32::INFINITY;
        assert!(judge(1e9, &[infinity, 1.0], &[3e38, 1.0]).wrong.is_some());
        assert!(judge(1e9, &[infinity], &[-infinity]).wrong.is_some());
        assert!(judge(1e9, &[1.0], &[infinity]).wrong.is_some());
        assert_eq!(
            judge(0.0, &[-infinity], &[f32::MIN]).wrong,
            None,
            "the largest number counts as infinite"
        );
    }

    #[test]
    fn where_zeros_are_expected_anything_else_is_wrong() {
        assert!(judge(1e-7, &[0.0; 4], &[0.0, 0.0, 0.1, 0.0]).wrong.is_some());
        assert_eq!(judge(1e-7, &[0.0; 4], &[0.0; 4]).wrong, None);
    }

    #[test]
    fn integers_are_exact() {
        let values = |numbers: &[i64]| Values::Integers(numbers.to_vec());
        let verdict = compare(Limit::Nmse(1.0), 4, values(&[1, 2, 3, 4]), values(&[1, 2, 4, 3]));
        assert!((verdict.error - 0.5).abs() < 1e-12);
        assert!(verdict.wrong.unwrap().contains("[2]: 4, expected 3"));
        let verdict = compare(Limit::AnyOrder(0.0), 4, values(&[1, 2, 3, 4]), values(&[1, 2, 4, 3]));
        assert_eq!(verdict.wrong, None);
        let verdict = compare(Limit::AnyOrder(0.0), 2, values(&[1, 2, 3, 4]), values(&[1, 3, 2, 4]));
        assert!(verdict.wrong.is_some(), "an order is free within a row only");
    }

    #[test]
    fn lengths_and_types_must_agree() {
        assert!(judge(1.0, &[1.0], &[1.0, 1.0]).wrong.is_some());
        let verdict = compare(Limit::Nmse(1.0), 1, Values::Floats(vec![1.0]), Values::Integers(vec![1]));
        assert!(verdict.wrong.is_some());
    }

    proptest! {
        #[test]
        fn one_wrong_element_is_found(
            reference in proptest::collection::vec(-1e3_f32..1e3, 1..200), at in any::<prop::sample::Index>()
        ) {
            let at = at.index(reference.len());
            let mut device = reference.clone();
            // Two hundred values of at most 1e3 allow sqrt(200 * 1e6 * 1e-7) = 4.5 in one place.
            device[at] += 5.0;
            prop_assert!(judge(1e-7, &reference, &device).wrong.is_some());
            prop_assert!(judge(0.0, &reference, &reference).wrong.is_none());
        }
    }
}
