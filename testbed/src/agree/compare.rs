//! Compares two files of logits position by position.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use vgpu_llama::distribution;
use vgpu_llama::logits::Reader;

/// Files with the logits of the same positions: those of the reference and those measured against it.
#[derive(Debug)]
pub struct Files {
    reference: Reader,
    measured: Reader,
}

impl Files {
    /// Opens the files of both sides.
    pub fn open(reference: &Path, measured: &Path) -> Result<Self> {
        let (reference, measured) = (Reader::open(reference)?, Reader::open(measured)?);
        if reference.vocab() != measured.vocab() {
            bail!("compare rows of {} logits with rows of {}", reference.vocab(), measured.vocab());
        }
        Ok(Self { reference, measured })
    }

    /// Returns the comparison of the next position.
    pub fn next(&mut self) -> Result<f64> {
        let reference = self.reference.row()?.context("the reference's logits end early")?;
        let measured = self.measured.row()?.context("the device's logits end early")?;
        Ok(distribution::divergence(&reference, &measured))
    }
}

/// Comparison of both sides' distributions at one position.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// Whether both sides have the same most likely token.
    pub same_top: bool,
    /// Divergence of the device's distribution from the CPU's, in nats.
    pub divergence: f64,
}

/// Statistics over positions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Number of compared positions.
    pub positions: usize,
    /// Fraction of positions whose most likely tokens agree.
    pub same_top: f64,
    /// Mean Kullback-Leibler divergence, in nats.
    pub mean_divergence: f64,
    /// Largest divergence of any position, in nats.
    pub max_divergence: f64,
    /// First position whose most likely tokens differ, if there is one.
    pub first_difference: Option<usize>,
}

impl Compared {
    /// Summarises the positions, of which there must be at least one.
    #[allow(clippy::cast_precision_loss, reason = "there are few")]
    pub fn from_positions(positions: &[Position]) -> Self {
        let count = positions.len() as f64;
        let same = positions.iter().filter(|position| position.same_top).count();
        Self {
            positions: positions.len(),
            same_top: same as f64 / count,
            mean_divergence: positions.iter().map(|position| position.divergence).sum::<f64>() / count,
            // Not `f64::max`, which drops what is not a number.
            max_divergence: positions
                .iter()
                .map(|position| position.divergence)
                .max_by(f64::total_cmp)
                .unwrap_or(f64::NAN),
            first_difference: positions.iter().position(|position| !position.same_top),
        }
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} % of {} top tokens equal, divergence {:.2e} nats on average, {:.2e} at most",
            100.0 * self.same_top,
            self.positions,
            self.mean_divergence,
            self.max_divergence
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_summed_up() {
        let position = |same_top, divergence| Position { same_top, divergence };
        let some = Compared::from_positions(&[
            position(true, 0.25),
            position(false, 0.75),
            position(true, 0.5),
            position(true, 0.5),
        ]);
        assert_eq!((some.positions, some.first_difference), (4, Some(1)));
        assert!((some.same_top - 0.75).abs() < 1e-12 && (some.mean_divergence - 0.5).abs() < 1e-12);
        assert!((some.max_divergence - 0.75).abs() < 1e-12);
        assert!(
            Compared::from_positions(&[position(true, 0.1), position(true, f64::NAN)])
                .max_divergence
                .is_nan()
        );
    }
}
