//! Implements `vgpu-run check`, which walks the chain by which Ollama finds a GPU and names the broken link.
//!
//! [`crate::diagnosis::catalogue`] lists the links and the causes of their failures. [`links`] examines each
//! link, [`walk`] does so in order, and [`crate::report`] prints the result. The walk runs in a process of
//! its own ([`walker`]). The first process waits for it only up to the time limit ([`supervise`]), because a
//! file system that does not answer blocks every process that accesses it. Other operations that may hang or
//! crash run in children of the walk ([`child`]): this program as a [`worker`], or vgpu-probe ([`probe`]).
//! Both report steps ([`messages`], [`vgpu_probe_steps`]).

pub mod child;
mod contention;
pub mod context;
mod ending;
pub mod facts;
mod filter;
mod held;
pub mod http;
pub mod identity;
mod kernel_log;
pub mod limits;
pub mod links;
mod locks;
pub mod messages;
mod obstacles;
pub mod probe;
mod progress;
pub mod refusals;
pub mod rights;
mod sandbox;
pub mod staging;
pub mod steps;
pub mod subject;
mod supervise;
pub mod unit;
pub mod walk;
mod walk_message;
mod walker;
mod words;
pub mod worker;

use std::process::ExitCode;

use crate::cli::{CheckOptions, Options};
use crate::report::{human, pages};
use ending::{printed, stuck};

/// Runs the command `check` and returns its exit code.
pub fn check(launch: &Options, options: &CheckOptions) -> ExitCode {
    if options.list {
        return printed(&human::list(launch.verbose));
    }
    if let Some(link) = options.explain {
        return printed(pages::page(link));
    }
    if let (Some(finding), Some(_)) = (limits::too_low(), &options.service) {
        // The limits are those of this process rather than of the unit.
        return stuck(&format!("{}: check itself has no room", finding.found));
    }
    supervise::supervise_walk(launch, options)
}
