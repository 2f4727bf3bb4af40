//! Link `discovery`: runs Ollama's own discovery processes as Ollama does, and applies its filters to their
//! output. Each era of Ollama has a module; [`judge`] and [`run`] are common to all.

mod by_path;
mod judge;
mod llama_server;
mod run;
mod runner;

use std::time::{Duration, Instant};

pub use by_path::{FoundDriver, driver_by_path, driver_folders};

use super::backend::usable;
use super::unable;
use crate::check::context::CheckContext;
use crate::check::limits::ProcessLimits;
use crate::check::words;
use crate::diagnosis::cause::discovery as cause;
use crate::diagnosis::{Finding, LinkId, Status};
use crate::env::{HOME, VGPU_LOG};
use crate::ollama::era::Era;
use run::{DiscoveryRun, LIMIT};

const LINK: LinkId = LinkId::Discovery;
/// Time reserved for later links when the whole check is short of time.
const RESERVE: Duration = Duration::from_millis(500);
/// Share of the remaining time that this link may use.
const SHARE: f64 = 0.6;

/// Examines the link and returns its finding.
pub async fn examine(context: &mut CheckContext) -> Finding {
    if context.options.no_ollama {
        return Finding::skip(LINK, "not asked for (--no-ollama)");
    }
    let target = context.target();
    let (Ok(program), Some(ollama)) = (&target.program, target.ollama.clone()) else {
        return Finding::skip(LINK, "there is no Ollama");
    };
    let program = std::fs::canonicalize(&program.path).unwrap_or_else(|_| program.path.clone());
    let mut first: Option<Finding> = None;
    for (variant, major) in usable(context) {
        let mut environment = variant.environment(&ollama, &context.environment);
        // Makes the libraries log why a device cannot be used.
        environment.set(VGPU_LOG, "error");
        if environment.get(HOME).is_none() {
            environment.set(HOME, "/");
        }
        // Where the check is short of time: what follows is Ollama's own server, which has the last word.
        let left = context.time(Duration::MAX).mul_f64(SHARE).saturating_sub(RESERVE);
        let until = Instant::now() + LIMIT.min(left);
        let run = DiscoveryRun {
            context,
            program: &program,
            ollama: &ollama,
            variant: &variant,
            major,
            environment,
            until,
            limits: ProcessLimits::NONE.into(),
        };
        let finding = match ollama.era {
            Era::A => run.by_path().await,
            Era::B => run.runner().await,
            Era::C => run.llama_server().await,
        };
        let finding = match finding {
            // A file of Ollama's own is needed, whatever the loader says of it.
            Ok(finding)
                if finding.cause == Some(cause::NO_CPU_BACKEND)
                    && words::blames_own(&finding.found, &ollama.libraries) =>
            {
                finding
            }
            Ok(finding) => {
                let unit = context.unit.as_ref();
                words::blamed(finding, &context.environment, Some(&ollama.libraries), unit)
            }
            Err(why) => return unable(context, LINK, "start Ollama's processes", &why),
        };
        if finding.holds() {
            let short = run.short();
            return match short {
                Some(short) => short.detail(finding.found),
                None => finding,
            };
        }
        if finding.status == Status::Skip {
            context.incomplete.push(LINK.as_str().to_owned());
            context.unanswered.push(format!("Ollama's process for {}", variant.name()));
        }
        first.get_or_insert(finding);
    }
    first.unwrap_or_else(|| Finding::skip(LINK, "there is no backend to try"))
}
