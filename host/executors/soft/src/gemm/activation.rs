//! The activation functions of epilogues. GELU is the approximation by tanh that cuBLASLt's manual states,
//! not the definition by the error function.

use std::f64::consts::FRAC_2_PI;

/// The activation functions for one type of real numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activations<N> {
    pub gelu: fn(N) -> N,
    /// Derivative of `gelu`.
    pub gelu_slope: fn(N) -> N,
    /// Returns whether ReLU keeps a number. ReLU replaces NaN by 0.
    pub is_positive: fn(N) -> bool,
    /// Returns the bit of a number in ReLU's mask: 1 for both zeros, 0 for NaN. An RTX 3060 with cuBLASLt
    /// 13.0 does the same.
    pub is_in_mask: fn(N) -> bool,
}

/// Activation functions for f32. They are computed in f64, so that the result is rounded once.
pub(super) const SINGLE: Activations<f32> = Activations {
    gelu: |x| gelu(x.into()) as f32,
    gelu_slope: |x| gelu_slope(x.into()) as f32,
    is_positive: |x| x > 0.0,
    is_in_mask: |x| x >= 0.0,
};

/// Activation functions for f64.
pub(super) const DOUBLE: Activations<f64> =
    Activations { gelu, gelu_slope, is_positive: |x| x > 0.0, is_in_mask: |x| x >= 0.0 };

/// Coefficient of the cube in the approximation of GELU.
const CUBE: f64 = 0.044_715;

/// Returns `sqrt(2 / pi)`, the factor of the approximation.
fn scale() -> f64 {
    FRAC_2_PI.sqrt()
}

fn gelu(x: f64) -> f64 {
    // This form of 1 + tanh(y) has no cancellation where x is far below 0.
    let y = scale() * (x + CUBE * x * x * x);
    x / (1.0 + (-2.0 * y).exp())
}

fn gelu_slope(x: f64) -> f64 {
    let y = scale() * (x + CUBE * x * x * x);
    let half = 1.0 / (1.0 + (-2.0 * y).exp());
    if half <= 0.0 || half >= 1.0 {
        // The square of x may be infinite.
        return half;
    }
    // Half of 1 - tanh(y)^2 is 2 * half * (1 - half).
    half + x * 2.0 * half * (1.0 - half) * scale() * (1.0 + 3.0 * CUBE * x * x)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;

    /// GELU agrees with the manual's formula, and its derivative with differences of that formula.
    #[test]
    fn gelu_is_the_manuals() {
        let manual = |x: f64| 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
        for step in -800..=800 {
            let x = f64::from(step) / 100.0;
            assert!((gelu(x) - manual(x)).abs() <= 1e-15 * (1.0 + x.abs()), "{x}");
            let h = 1e-5;
            let slope = (manual(x + h) - manual(x - h)) / (2.0 * h);
            assert!((gelu_slope(x) - slope).abs() < 1e-9, "{x}: {} {slope}", gelu_slope(x));
        }
        // The definition by the error function gives 1.9545 at 2, and this approximation 1.9546.
        assert!((gelu(2.0) - 1.954_597_694).abs() < 1e-9);
        assert_eq!((gelu(0.0), gelu(-0.0).is_sign_negative()), (0.0, true));
        assert!(gelu(f64::NAN).is_nan());
        assert_eq!([1e300, -1e30].map(|x| gelu(x).to_bits()), [1e300f64, -0.0].map(f64::to_bits));
        assert_eq!([-1e200, 1e200].map(|x| gelu_slope(x).to_bits()), [0f64, 1.0].map(f64::to_bits));
    }

    #[test]
    fn signs() {
        let of = |x| ((SINGLE.is_positive)(x), (SINGLE.is_in_mask)(x));
        assert_eq!(
            [1.0, 0.0, -0.0, -1.0, f32::NAN].map(of),
            [(true, true), (false, true), (false, true), (false, false), (false, false)]
        );
    }
}
