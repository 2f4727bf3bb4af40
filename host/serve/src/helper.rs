//! Questions to processes of this program, which may crash or hang in a driver. A question is an argument in
//! JSON, and the answer the last line of the output.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::process::Command;
use vgpu_findings::child::{ChildEnd, run_bounded};

/// Asks a question by a hidden command, within a limit of time. `purpose` says what the process does, for
/// errors.
pub(crate) fn ask<T: DeserializeOwned>(
    command: &str,
    question: &impl Serialize,
    limit: Duration,
    purpose: &str,
) -> Result<T> {
    let mut process = Command::new("/proc/self/exe");
    process.args([command, &serde_json::to_string(question)?]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(run_bounded(process, limit)).context("ask the GPU's driver")?;
    let words = ended.stderr.lines().last().unwrap_or("it said nothing");
    // An error that the process prints is complete.
    if let (ChildEnd::Exit(_), Some(error)) = (&ended.end, words.strip_prefix("vgpu-device: ")) {
        bail!("{error}");
    }
    if let Some(trouble) = ended.trouble() {
        bail!("the process that {purpose} {trouble}: {words}");
    }
    let answer = ended.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(answer).context("read the answer of the GPU's driver")
}
