//! Link `discovery`: Ollama's own discovery processes, started as Ollama starts them, and its filters applied to what they print.
//! What is the same for all eras is here; each era has a module.

mod by_path;
mod llama_server;
mod runner;

use std::path::Path;
use std::time::{Duration, Instant};

pub use by_path::{driver_by_path, driver_folders};

use super::backend::usable;
use super::init::lines;
use super::unable;
use crate::check::child::{self, End, Outcome};
use crate::check::context::Context;
use crate::diagnosis::cause::discovery as cause;
use crate::diagnosis::{Finding, LinkId, Status};
use crate::embedded::OBJECTS;
use crate::env::{Environment, HOME};
use crate::ollama::Ollama;
use crate::ollama::answers::{self, Dropped};
use crate::ollama::era::Era;
use crate::ollama::variant::Variant;

const LINK: LinkId = LinkId::Discovery;
/// What Ollama grants all processes of one folder, and its own probe.
const LIMIT: Duration = Duration::from_secs(30);
/// Left for what follows, where the whole check is short of time.
const RESERVE: Duration = Duration::from_millis(500);
/// What it grants all three when it looks anew before it loads a model.
const REFRESH: Duration = Duration::from_secs(3);
/// What Ollama sets for its second look, at one device alone.
const VALIDATE: &str = "GGML_CUDA_INIT";
const STRIPPED_FIX: &str = "Is llama-server a script that clears the environment? Use Ollama's own file.";
const EARLIER_FIX: &str =
    "Look at the links before this one: what was found there is not what Ollama's processes find.";

/// Looks at the link.
pub async fn look(context: &mut Context) -> Finding {
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
        if environment.get(HOME).is_none() {
            environment.set(HOME, "/");
        }
        let until = Instant::now() + context.time(LIMIT).saturating_sub(RESERVE);
        let run =
            Run { context, program: &program, ollama: &ollama, variant: &variant, major, environment, until };
        let finding = match ollama.era {
            Era::A => run.by_path().await,
            Era::B => run.runner().await,
            Era::C => run.llama_server().await,
        };
        let finding = match finding {
            Ok(finding) => finding,
            Err(why) => return unable(context, LINK, "start Ollama's processes", &why),
        };
        if finding.holds() {
            return finding;
        }
        if finding.status == Status::Skip {
            context.incomplete.push(LINK.as_str().to_owned());
        }
        first.get_or_insert(finding);
    }
    first.unwrap_or_else(|| Finding::skip(LINK, "there is no backend to try"))
}

/// One discovery, with one backend.
struct Run<'a> {
    context: &'a Context,
    program: &'a Path,
    ollama: &'a Ollama,
    variant: &'a Variant,
    major: Option<u32>,
    environment: Environment,
    /// When all its processes must be over.
    until: Instant,
}

impl Run<'_> {
    fn left(&self, limit: Duration) -> Duration {
        limit.min(self.until.saturating_duration_since(Instant::now()))
    }

    async fn start(
        &self,
        program: &Path,
        words: &[&str],
        environment: &Environment,
        limit: Duration,
        ready: &mut (dyn FnMut(&str, Option<u32>) -> bool + Send),
    ) -> Result<Outcome, String> {
        let mut command = self.context.program(program);
        command.args(words);
        let failed = |error| format!("{}: {error}", program.display());
        child::run_until(command, environment, self.left(limit), ready).await.map_err(failed)
    }
}

/// Lines of Ollama's processes that say something of GPUs.
fn about_gpus(text: &str) -> Vec<String> {
    const WORDS: [&str; 7] =
        ["CUDA", "ggml_cuda", "load_backend", "Device ", "Available devices", "(none)", "NVIDIA"];
    /// Of the line of system_info, which is long, what is behind the processor's part.
    const PART: &str = "CUDA : ARCHS";
    let lines = text.lines().filter(|line| WORDS.iter().any(|word| line.contains(word)));
    let mut found: Vec<String> =
        lines.map(|line| line.find(PART).map_or(line, |at| &line[at..]).trim().to_owned()).collect();
    found.dedup();
    found.truncate(12);
    found
}

/// A process that did not end well.
fn died(what: &str, outcome: &Outcome) -> Option<Finding> {
    let trouble = outcome.trouble()?;
    let said = lines(&format!("{}\n{}", outcome.stdout, outcome.stderr));
    let found = format!("{what} {trouble}");
    let finding = match outcome.end {
        // It was given less time than Ollama gives: nothing is known.
        End::TimedOut(limit) if limit < REFRESH => Finding::skip(LINK, format!("{found}, for lack of time")),
        End::TimedOut(_) => Finding::fail(cause::TIMED_OUT, found)
            .fix("Look at the device's host: a call that waits for it gets no answer.")
            .command("vgpu-run check --only host"),
        End::Signal(_) => Finding::fail(cause::CRASHED, found)
            .fix("Please report it, with what check found.")
            .command("vgpu-run check --bundle vgpu-run-check.tar.gz"),
        End::Exit(_) => {
            let Some(crash) = go_crash(&outcome.stderr) else {
                return Some(Finding::unknown(LINK, found).details(said));
            };
            let evidence = about_gpus(&outcome.stderr).into_iter().chain([found]);
            return Some(
                Finding::fail(cause::CRASHED, format!("{what} crashed: {crash}"))
                    .fix("Are Ollama's program and its libggml-cuda.so of one release? Install Ollama again.")
                    .details(evidence),
            );
        }
    };
    Some(finding.details(said))
}

/// What a program of Go says before it ends with 2 because of a signal that came in a function of C: the signal, and the function.
fn go_crash(stderr: &str) -> Option<String> {
    const CALL: &str = "._Cfunc_";
    let (_, rest) = stderr.split_at(stderr.find("\nSIG")? + 1);
    let signal = rest.lines().next()?.trim();
    let function = rest.lines().find_map(|line| line.split_once(CALL)?.1.split('(').next());
    Some(function.map_or_else(|| signal.to_owned(), |function| format!("{signal}, in {function}")))
}

/// The backend that a process could not load: because our libraries are not there, or for another reason.
fn refused(text: &str) -> Option<Finding> {
    let refusal = answers::refusal(text)?;
    let ours = refusal.contains("cannot open shared object file")
        && OBJECTS.iter().any(|object| refusal.contains(object.soname));
    Some(if ours {
        Finding::fail(cause::ENVIRONMENT_STRIPPED, refusal)
            .expected("the libraries that LD_PRELOAD names")
            .fix(STRIPPED_FIX)
    } else {
        Finding::fail(cause::BACKEND_NOT_LOADED, refusal)
            .fix("Install Ollama again; its files do not fit together.")
    })
}

/// A device that Ollama's filters drop.
fn filtered(dropped: &Dropped, capability: Option<(u32, u32)>, driver: Option<u32>, built: &str) -> Finding {
    let (major, minor) = capability.unwrap_or_default();
    match dropped {
        Dropped::Memory => {
            Finding::fail(cause::FILTERED_MEMORY, "Ollama drops the device: it reports no memory")
                .fix("Look at the device's host: its GPU is full, or cannot be asked.")
        }
        Dropped::Architecture => Finding::fail(
            cause::FILTERED_ARCH,
            format!("Ollama drops the device: its backend was built for {built}, not for {major}.{minor}"),
        )
        .fix("Use a release of Ollama that was built for this GPU."),
        Dropped::Driver(wanted) => {
            let driver = driver.unwrap_or_default();
            Finding::fail(cause::FILTERED_DRIVER, format!("Ollama drops the device: its driver is {driver}"))
                .expected(format!("{wanted} or newer"))
                .fix("Update the driver on the host.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Cause;

    #[test]
    fn a_crash_is_one_though_go_ends_with_a_code() {
        let said = "load_backend: loaded CUDA backend from /l/libggml-cuda.so\nSIGSEGV: segmentation violation\nPC=0x23 m=4\n\
                    signal arrived during cgo execution\n\nruntime.cgocall(0x1)\n\
                    github.com/ollama/x._Cfunc_ggml_backend_reg_get_proc_address(0x7f, 0x1)\nrip 0x23\n";
        let finding = died("ollama runner", &outcome(End::Exit(2), "", said)).unwrap();
        assert_eq!(finding.cause, Some(cause::CRASHED));
        let expected =
            "ollama runner crashed: SIGSEGV: segmentation violation, in ggml_backend_reg_get_proc_address";
        assert_eq!(finding.found, expected);
        assert!(finding.details[0].starts_with("load_backend"), "{finding:?}");
        let other = died("ollama runner", &outcome(End::Exit(2), "", "Error: SIGSEGV")).unwrap();
        assert_eq!(other.cause, Some(Cause::unknown(LINK)));
    }

    /// What a process did.
    pub fn outcome(end: End, stdout: &str, stderr: &str) -> Outcome {
        Outcome { end, stdout: stdout.into(), stderr: stderr.into(), elapsed: Duration::from_millis(40) }
    }
}
