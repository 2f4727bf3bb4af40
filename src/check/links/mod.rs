//! How each link is looked at, a module each: `pub async fn look(context: &mut Context) -> Finding`.

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

use super::catalogue::{LinkId, UNKNOWN};
use super::context::Context;
use super::finding::Finding;
use crate::error::{Failure, Refusal};

/// What an error of the launcher is at `link`. One that belongs to another link, which held, is unknown here.
fn broken<R: Refusal + 'static>(link: LinkId, error: R) -> Finding {
    let failure = Failure::from(error);
    match failure.finding() {
        Some(finding) if finding.link == link => finding,
        Some(finding) => Finding { link, cause: Some(UNKNOWN), ..finding },
        None => Finding::fail(link, UNKNOWN, failure.sentence()),
    }
}

/// A link that cannot be looked at because check itself has trouble.
fn unable(context: &mut Context, link: LinkId, what: &str, why: &dyn std::fmt::Display) -> Finding {
    context.incomplete.push(link.as_str().to_owned());
    Finding::skip(link, format!("not looked at: failed to {what}: {why}"))
}
