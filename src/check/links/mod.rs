//! How each link is examined, in a module for each: `pub async fn examine(context: &mut Context) -> Finding`.

#![allow(clippy::unused_async, reason = "the walk has them all alike, and most wait for something")]

pub mod agreement;
pub mod backend;
pub mod data_path;
pub mod device;
pub mod discovery;
pub mod environment;
pub mod host;
pub mod init;
pub mod kernel;
pub mod loader;
pub mod ollama;
pub mod pci;
pub mod permission;
pub mod service;
pub mod shims;
pub mod window;

use std::time::Duration;

use super::child::Outcome;
use super::context::Context;
use super::probe;
use crate::diagnosis::{Cause, Finding, LinkId};
use crate::env::VGPU_LOG;
use crate::error::{Failure, LauncherError};

/// The finding at `link` for an error of the launcher. An error that belongs to another link is unknown here,
/// because that link held.
fn broken<R: LauncherError + 'static>(link: LinkId, error: R) -> Finding {
    let failure = Failure::from(error);
    match failure.finding() {
        Some(finding) if finding.link == link => finding,
        Some(finding) => Finding { link, cause: Some(Cause::unknown(link)), ..finding },
        None => Finding::unknown(link, failure.sentence()),
    }
}

/// Runs the probe with `words`, which the CUDA major decides, in the environment of the backend that started.
/// Returns its outcome with that major, or the finding of a link that cannot be examined without it.
async fn ask_with_backend(
    context: &mut Context,
    link: LinkId,
    words: impl FnOnce(Option<u32>) -> [String; 3],
    limit: Duration,
) -> Result<(Outcome, Option<u32>), Finding> {
    let Some((variant, major)) = context.started.clone() else {
        return Err(Finding::skip(link, "no backend started"));
    };
    let Some(ollama) = context.target().ollama.clone() else {
        return Err(Finding::skip(link, "there is no Ollama"));
    };
    let mut environment = variant.environment(&ollama, &context.environment);
    environment.set(VGPU_LOG, "warn");
    match probe::run(context, words(major), &environment, limit).await {
        Ok(outcome) => Ok((outcome, major)),
        Err(why) => Err(unable(context, link, "start vgpu-probe", &why)),
    }
}

/// The finding for a link that cannot be examined because check itself failed.
fn unable(context: &mut Context, link: LinkId, what: &str, why: &dyn std::fmt::Display) -> Finding {
    context.incomplete.push(link.as_str().to_owned());
    Finding::skip(link, format!("not examined: failed to {what}: {why}"))
}
