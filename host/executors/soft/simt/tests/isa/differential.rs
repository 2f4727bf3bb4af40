//! Tests with random programs, which must have the same outcomes on all engines.

use libtest_mimic::{Failed, Trial};
use vgpu_simt::Features;

use crate::seeds;

/// A random program that can be run on each engine.
pub trait RandomProgram: Sized {
    /// Draws the program for a seed.
    fn new(seed: u64) -> Self;

    /// Returns the PTX text of the program.
    fn text(&self) -> &str;

    /// Runs the program on one engine and returns the outcome of each launch or thread: a fault, or the
    /// content of memory.
    fn outcomes(&self, features: Features) -> Result<Vec<String>, String>;
}

/// Compares the outcomes of a program on all engines.
fn compare<P: RandomProgram>(seed: u64) -> Result<(), Failed> {
    let program = P::new(seed);
    let mut first: Option<Vec<String>> = None;
    for &features in Features::available() {
        let got = program.outcomes(features)?;
        let wanted = first.get_or_insert_with(|| got.clone());
        if let Some(number) = (0..got.len()).find(|&number| got[number] != wanted[number]) {
            let (got, wanted) = (&got[number], &wanted[number]);
            let at = got.bytes().zip(wanted.bytes()).take_while(|(got, wanted)| got == wanted).count();
            let near = |text: &str| text.chars().skip(at.saturating_sub(20)).take(100).collect::<String>();
            return Err(format!(
                "program {seed}, {features:?}, outcome {number}, character {at}:\n{}\nshould be\n{}\n{}",
                near(got),
                near(wanted),
                program.text()
            )
            .into());
        }
    }
    Ok(())
}

/// Returns a test for each of `count` programs.
pub fn trials<P: RandomProgram>(chapter: &str, count: u64) -> Vec<Trial> {
    let trial = |seed| Trial::test(format!("{chapter}::program_{seed}"), move || compare::<P>(seed));
    seeds(count).map(trial).collect()
}
