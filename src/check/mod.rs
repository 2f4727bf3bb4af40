//! `vgpu-run check`: walks the chain by which Ollama finds a GPU and names the link that is broken.
//!
//! [`crate::diagnosis::catalogue`] lists the links and what breaks them. [`links`] examines each, [`walk`]
//! does so in order, and [`crate::report`] prints the result. The walk is a process of its own ([`walker`]).
//! The first process waits no longer for it than the check may take ([`supervise`]), because a file system
//! that does not answer holds whoever looks at a file of it. What may hang or crash otherwise runs in a child
//! of the walk ([`child`]): this program as a [`worker`], or vgpu-probe ([`probe`]). Both report steps
//! ([`messages`], [`vgpu_probe_steps`]).

pub mod child;
mod contention;
pub mod context;
mod ending;
pub mod facts;
pub mod http;
pub mod identity;
pub mod limits;
pub mod links;
pub mod messages;
pub mod probe;
mod progress;
pub mod refusals;
pub mod rights;
pub mod staging;
pub mod steps;
pub mod subject;
mod supervise;
pub mod unit;
pub mod walk;
mod walk_message;
mod walker;
pub mod worker;

use std::process::ExitCode;

use crate::cli::{CheckOptions, Options};
use crate::report::{human, pages};
use ending::{printed, stuck};

/// Runs the command `check`.
pub fn check(launch: &Options, options: &CheckOptions) -> ExitCode {
    if options.list {
        return printed(&human::list(launch.verbose));
    }
    if let Some(link) = options.explain {
        return printed(pages::page(link));
    }
    if let (Some(finding), Some(_)) = (limits::too_low(), &options.service) {
        // They are not the unit's.
        return stuck(&format!("{}: check itself has no room", finding.found));
    }
    supervise::supervise_walk(launch, options)
}
