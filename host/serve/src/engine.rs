//! Engines that run the soft executor's kernels, with the names that options, settings and reports use.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use vgpu_executor_soft::Features;

/// The engine that runs the kernels of a soft device. All engines compute the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The best of the two engines below that the processor has.
    Jit,
    /// Machine code for AVX-512, generated for each kernel. Instructions without a translation are
    /// interpreted.
    JitAvx512,
    /// Machine code for AVX2, generated for each kernel. Instructions without a translation are interpreted.
    JitAvx2,
    /// The interpreter alone, without machine code.
    Interpreter,
}

/// The processor cannot run an engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the engine {} needs a processor with {needs}; this one runs {}",
    .engine.name(),
    .runs.iter().map(|engine| engine.name()).collect::<Vec<_>>().join(", ")
)]
pub struct EngineError {
    engine: Engine,
    needs: &'static str,
    /// Engines that the processor can run.
    runs: Vec<Engine>,
}

impl Engine {
    /// Engines that differ from each other, the best first.
    const DISTINCT: [Self; 3] = [Self::JitAvx512, Self::JitAvx2, Self::Interpreter];

    /// Returns the name of the engine, which the option `--engine` and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jit => "jit",
            Self::JitAvx512 => "jit-avx512",
            Self::JitAvx2 => "jit-avx2",
            Self::Interpreter => "interpreter",
        }
    }

    /// Returns the engines that differ and that this processor runs, the best first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Self::among(Features::available())
    }

    fn among(available: &[Features]) -> Vec<Self> {
        Self::DISTINCT.into_iter().filter(|engine| engine.best(available).is_some()).collect()
    }

    /// Returns the processor features for which this engine lowers programs.
    ///
    /// # Errors
    /// This processor cannot run the engine.
    pub fn features(self) -> Result<Features, EngineError> {
        self.lowered_for(Features::available())
    }

    /// Returns the features as [`Self::features`] does, for a processor with the features `available`, of
    /// which the best is last.
    fn lowered_for(self, available: &[Features]) -> Result<Features, EngineError> {
        let error = || EngineError { engine: self, needs: self.needs(), runs: Self::among(available) };
        self.best(available).ok_or_else(error)
    }

    /// Returns the best of `available` that suits the engine.
    fn best(self, available: &[Features]) -> Option<Features> {
        let fits = |features: &Features| match features {
            Features::JitAvx512 => matches!(self, Self::Jit | Self::JitAvx512),
            Features::JitAvx2 => matches!(self, Self::Jit | Self::JitAvx2),
            Features::Avx2 | Features::Baseline => self == Self::Interpreter,
        };
        available.iter().rev().copied().find(fits)
    }

    /// Returns the processor features that an engine needs, as text.
    const fn needs(self) -> &'static str {
        match self {
            Self::JitAvx512 => "AVX-512 F, BW, DQ, VL and VNNI",
            Self::Jit | Self::JitAvx2 => "AVX2, FMA, F16C, BMI1, BMI2, LZCNT and POPCNT",
            Self::Interpreter => "nothing more than x86-64",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &[Features] = &[Features::Baseline];
    const AVX2: &[Features] = &[Features::Baseline, Features::Avx2, Features::JitAvx2];
    const AVX512: &[Features] = &[Features::Baseline, Features::Avx2, Features::JitAvx2, Features::JitAvx512];

    #[test]
    fn an_engine_is_what_its_name_says() {
        for (engine, on) in [
            (Engine::Jit, [None, Some(Features::JitAvx2), Some(Features::JitAvx512)]),
            (Engine::JitAvx512, [None, None, Some(Features::JitAvx512)]),
            (Engine::JitAvx2, [None, Some(Features::JitAvx2), Some(Features::JitAvx2)]),
            (Engine::Interpreter, [Some(Features::Baseline), Some(Features::Avx2), Some(Features::Avx2)]),
        ] {
            for (available, features) in [OLD, AVX2, AVX512].into_iter().zip(on) {
                assert_eq!(engine.lowered_for(available).ok(), features, "{engine:?} of {available:?}");
            }
        }
    }

    #[test]
    fn an_engine_that_the_processor_lacks_is_refused_with_those_that_it_has() {
        let said = |engine: Engine, available| engine.lowered_for(available).unwrap_err().to_string();
        assert_eq!(
            said(Engine::JitAvx512, AVX2),
            "the engine jit-avx512 needs a processor with AVX-512 F, BW, DQ, VL and VNNI; this one runs \
             jit-avx2, interpreter"
        );
        let old = said(Engine::Jit, OLD);
        assert!(
            old.contains("jit needs") && old.contains("AVX2") && old.ends_with("runs interpreter"),
            "{old}"
        );
    }

    #[test]
    fn the_names_are_the_options_and_the_settings() {
        for &engine in Engine::value_variants() {
            let (name, written) = (engine.name(), serde_json::to_value(engine).unwrap());
            assert_eq!(engine.to_possible_value().unwrap().get_name(), name);
            assert_eq!(written, name);
            assert_eq!(serde_json::from_value::<Engine>(written).unwrap(), engine);
        }
    }
}
