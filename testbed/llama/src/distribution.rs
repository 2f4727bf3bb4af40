//! Distributions of the next token, from raw logits.

/// Returns the index of the largest value, the lowest one on a tie. NaN is never chosen; returns `None` if
/// there is no number.
pub fn top(logits: &[f32]) -> Option<usize> {
    let mut best: Option<(usize, f32)> = None;
    for (index, &value) in logits.iter().enumerate() {
        if !value.is_nan() && best.is_none_or(|(_, most)| value > most) {
            best = Some((index, value));
        }
    }
    best.map(|(index, _)| index)
}

/// Returns the natural logarithms of the probabilities that the logits stand for.
pub fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&value| (f64::from(value) - most).exp()).sum();
    let log_sum = sum.ln() + most;
    logits.iter().map(|&value| f64::from(value) - log_sum).collect()
}

/// Returns the Kullback-Leibler divergence of `other` from `reference` in nats; 0 for equal distributions.
/// Both hold raw logits of the same tokens. The result is NaN if one of them contains NaN.
pub fn divergence(reference: &[f32], other: &[f32]) -> f64 {
    let (reference, other) = (log_probabilities(reference), log_probabilities(other));
    reference
        .iter()
        .zip(&other)
        // A token that cannot come has no part in it: 0 · ln 0 is 0.
        .map(|(p, q)| if *p == f64::NEG_INFINITY { 0.0 } else { p.exp() * (p - q) })
        .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_equals_the_first_is_the_top() {
        assert_eq!(top(&[1.0, 3.0, 3.0]), Some(1));
        assert_eq!(top(&[f32::NAN, -2.0]), Some(1));
        assert_eq!(top(&[f32::NAN]), None);
        assert_eq!(top(&[]), None);
    }

    #[test]
    fn divergence_of_two_coins() {
        // p = (1/2, 1/2), q = (1/4, 3/4): ln(2)/2 + ln(2/3)/2.
        let found = divergence(&[0.0, 0.0], &[0.0, 3f32.ln()]);
        assert!((found - 0.5 * (2f64.ln() + (2.0 / 3.0f64).ln())).abs() < 1e-7, "{found}");
        assert!(divergence(&[0.0, f32::NEG_INFINITY], &[0.0, f32::NEG_INFINITY]).abs() < 1e-12);
        assert!(divergence(&[0.0, f32::NAN], &[0.0, 0.0]).is_nan());
    }

    proptest! {
        #[test]
        fn never_negative_and_blind_to_an_offset(logits in prop::collection::vec((-30f32..30.0, -30f32..30.0), 1..50), offset in -8f32..8.0) {
            let (left, right): (Vec<f32>, Vec<f32>) = logits.into_iter().unzip();
            prop_assert!(divergence(&left, &right) >= -1e-9);
            let moved: Vec<f32> = left.iter().map(|value| value + offset).collect();
            prop_assert!(divergence(&left, &moved).abs() < 1e-4);
            let sum: f64 = log_probabilities(&left).iter().map(|p| p.exp()).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9);
        }
    }
}
