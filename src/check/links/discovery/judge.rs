//! What an end of one of Ollama's processes, or one of its filters, means. This is the same for all eras.

use std::time::Duration;

use crate::check::child::{End, Outcome};
use crate::check::links::init::lines;
use crate::diagnosis::cause::discovery as cause;
use crate::diagnosis::{Finding, LinkId};
use crate::embedded::OBJECTS;
use crate::ollama::answers::{self, Dropped};

const LINK: LinkId = LinkId::Discovery;
/// What Ollama grants all three processes when it refreshes before it loads a model.
pub const REFRESH: Duration = Duration::from_secs(3);
/// What mends an environment that lost LD_PRELOAD.
pub const STRIPPED_FIX: &str = "Is llama-server a script that clears the environment? Use Ollama's own file.";
/// What to do where Ollama's processes find less than earlier links did.
pub const EARLIER_FIX: &str =
    "Look at the links before this one: what was found there is not what Ollama's processes find.";

/// Lines of Ollama's processes that say something of GPUs.
pub fn about_gpus(text: &str) -> Vec<String> {
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
pub fn died(what: &str, outcome: &Outcome) -> Option<Finding> {
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

/// The signal and the C function that a Go program names before it exits with 2 because of a signal.
fn go_crash(stderr: &str) -> Option<String> {
    const CALL: &str = "._Cfunc_";
    let (_, rest) = stderr.split_at(stderr.find("\nSIG")? + 1);
    let signal = rest.lines().next()?.trim();
    let function = rest.lines().find_map(|line| line.split_once(CALL)?.1.split('(').next());
    Some(function.map_or_else(|| signal.to_owned(), |function| format!("{signal}, in {function}")))
}

/// The backend that a process could not load: because our libraries are not there, or for another reason.
pub fn refused(text: &str) -> Option<Finding> {
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
pub fn filtered(
    dropped: &Dropped,
    capability: Option<(u32, u32)>,
    driver: Option<u32>,
    built: &str,
) -> Finding {
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
pub mod tests {
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
