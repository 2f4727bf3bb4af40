//! `vgpu-run check`: walks the chain by which Ollama finds a GPU and names the link that is broken.
//!
//! [`catalogue`] says which links there are and what breaks them, [`links`] looks at each, [`walk`] does so in order, and
//! [`crate::report`] prints what came of it. What may hang or crash runs in a process of its own ([`child`]).

pub mod catalogue;
pub mod child;
pub mod context;
pub mod finding;
pub mod links;
pub mod look;
pub mod probe;
pub mod subject;
pub mod unit;
pub mod walk;

use std::process::ExitCode;

use crate::cli::{CheckOptions, Options};
use context::Context;

/// How `check` ends. Scripts rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// All works; there may be warnings.
    Works = 0,
    /// A link is broken.
    Broken = 1,
    /// Not everything could be looked at, and nothing is known to be broken.
    Incomplete = 3,
}

/// What `check` exits with when its command line is wrong.
pub const USAGE: u8 = 2;

/// Runs the command.
pub fn check(launch: &Options, options: &CheckOptions) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("vgpu-run: failed to begin: {error}");
            return ExitCode::from(Verdict::Incomplete as u8);
        }
    };
    let mut context = Context::new(launch.clone(), options.clone());
    let findings = runtime.block_on(async {
        context.settle().await;
        walk::walk(&mut context, |_| {}).await
    });
    println!("{findings:#?}");
    ExitCode::SUCCESS
}
