//! What a program of a siege prints while it runs.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;

use crate::driver::Code;

/// Prints a line at once: who reads it may kill this process at any time.
pub fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Says that the next call is hostile.
pub fn begun() -> Result<()> {
    say("begun")
}

/// Tells each outcome of a call once, and again each time its count has doubled: hostile programs make many
/// calls.
#[derive(Default)]
pub struct Outcomes(BTreeMap<(&'static str, Code), u64>);

impl Outcomes {
    /// Counts an outcome.
    pub fn note(&mut self, call: &'static str, code: Code) -> Result<()> {
        let count = self.0.entry((call, code)).or_default();
        *count += 1;
        if count.is_power_of_two() { say(&format!("outcome {call} {code} {count}")) } else { Ok(()) }
    }
}
