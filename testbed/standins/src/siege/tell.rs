//! Output of a siege's programs while they run.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;

use crate::driver::Code;

/// Prints a line and flushes it, because the reader may kill this process at any time.
pub fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Prints that the next call is hostile.
pub fn begun() -> Result<()> {
    say("begun")
}

/// Counts the outcomes of calls. Each outcome is printed the first time, and whenever its count has doubled,
/// because hostile programs make many calls.
#[derive(Default)]
pub struct Outcomes(BTreeMap<(&'static str, Code), u64>);

impl Outcomes {
    /// Counts an outcome and prints it if it is due.
    pub fn note(&mut self, call: &'static str, code: Code) -> Result<()> {
        let count = self.0.entry((call, code)).or_default();
        *count += 1;
        if count.is_power_of_two() { say(&format!("outcome {call} {code} {count}")) } else { Ok(()) }
    }
}
