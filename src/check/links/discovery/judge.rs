//! Interprets how Ollama's processes end and which devices its filters drop. Common to all eras.

use std::path::Path;
use std::time::Duration;

use nix::libc::SIGSYS;

use crate::check::child::{ChildEnd, ChildOutcome};
use crate::check::kernel_log;
use crate::check::limits;
use crate::check::links::init::lines;
use crate::check::words;
use crate::diagnosis::cause::discovery as cause;
use crate::diagnosis::fix::discovery as fix;
use crate::diagnosis::{Finding, LinkId};
use crate::embedded::OBJECTS;
use crate::ollama::answers::{self, Dropped};
use crate::ollama::fatal::{self, FailureKind};
use crate::ollama::installer;

const LINK: LinkId = LinkId::Discovery;
/// Time that Ollama allows for all three processes when it refreshes before it loads a model.
pub const REFRESH: Duration = Duration::from_secs(3);
/// Returns the lines of Ollama's output that concern GPUs.
pub fn about_gpus(text: &str) -> Vec<String> {
    const WORDS: [&str; 7] =
        ["CUDA", "ggml_cuda", "load_backend", "Device ", "Available devices", "(none)", "NVIDIA"];
    /// Start of the part of the long line `system_info` that concerns CUDA.
    const PART: &str = "CUDA : ARCHS";
    let lines = text.lines().filter(|line| WORDS.iter().any(|word| line.contains(word)));
    let mut found: Vec<String> =
        lines.map(|line| line.find(PART).map_or(line, |at| &line[at..]).trim().to_owned()).collect();
    found.dedup();
    found.truncate(12);
    found
}

/// Returns the finding for a process that failed. The device's host can be ruled out, because an earlier link
/// has examined it.
pub fn died(what: &str, outcome: &ChildOutcome) -> Option<Finding> {
    let trouble = outcome.trouble()?;
    let said = lines(&format!("{}\n{}", outcome.stdout, outcome.stderr));
    if let Some((limit, how)) = limits::hit(outcome) {
        return Some(limit.finding(cause::RESOURCE_LIMIT, format!("{what} {how}")).details(said));
    }
    let decisive = fatal::decisive(&outcome.stderr).filter(|decisive| decisive.kind != FailureKind::Ended);
    let line = decisive.as_ref().map(|decisive| decisive.line.clone());
    let why = line.or_else(|| limits::fatal(&outcome.stderr)).map(|line| format!(": {line}"));
    let found = format!("{what} {trouble}{}", why.unwrap_or_default());
    if let Some(decisive) = decisive.filter(|decisive| words::is_setting(decisive.kind)) {
        let finding = Finding::fail(cause::SETTING_REFUSED, found).details(said);
        return Some(match decisive.variable() {
            Some(variable) => finding.with("variable", variable),
            None => words::mended(finding, &decisive.line),
        });
    }
    let finding = match outcome.end {
        // It was given less time than Ollama gives: nothing is known.
        ChildEnd::TimedOut(limit) if limit < REFRESH => {
            Finding::skip(LINK, format!("{found}, for lack of time"))
        }
        ChildEnd::TimedOut(_) => {
            Finding::fail(cause::TIMED_OUT, format!("{found}, though the device and its host answer"))
                .with("program", what)
                .with("install", installer::command())
        }
        ChildEnd::Signal(SIGSYS) => {
            let call = kernel_log::filtered_call(&["llama-server", "ollama"], outcome.elapsed);
            let call = call.map(|call| format!(": {call}, by the kernel's log")).unwrap_or_default();
            Finding::fail(cause::KILLED_BY_FILTER, format!("{found}{call}"))
        }
        ChildEnd::Signal(_) => words::mended(Finding::fail(cause::CRASHED, found), &outcome.stderr),
        ChildEnd::Exit(_) => {
            let Some(crash) = go_crash(&outcome.stderr) else {
                return Some(words::mended(Finding::unknown(LINK, found), &outcome.stderr).details(said));
            };
            let evidence = about_gpus(&outcome.stderr).into_iter().chain([found]);
            return Some(
                Finding::fail(cause::CRASHED, format!("{what} crashed: {crash}"))
                    .fix(fix::MIXED)
                    .details(evidence),
            );
        }
    };
    Some(finding.details(said))
}

/// Returns a finding for a process that did not load GGML's CPU backend, which only a line that lists the
/// backends shows.
pub fn without_processor(text: &str, libraries: &Path) -> Option<Finding> {
    if answers::processor(text)? {
        return None;
    }
    let why = answers::processor_refusal(text).map(|why| format!(": {why}")).unwrap_or_default();
    let found = format!(
        "Ollama's process finds the device, but loads no CPU backend (libggml-cpu*.so) from {}{why}",
        libraries.display()
    );
    Some(
        Finding::fail(cause::NO_CPU_BACKEND, found)
            .expected(format!("libggml-cpu-*.so in {}", libraries.display()))
            .with("install", installer::command())
            .details(about_gpus(text)),
    )
}

/// Returns the signal and the C function that a Go program prints before it exits with 2 because of a signal.
fn go_crash(stderr: &str) -> Option<String> {
    const CALL: &str = "._Cfunc_";
    let (_, rest) = stderr.split_at(stderr.find("\nSIG")? + 1);
    let signal = rest.lines().next()?.trim();
    let function = rest.lines().find_map(|line| line.split_once(CALL)?.1.split('(').next());
    Some(function.map_or_else(|| signal.to_owned(), |function| format!("{signal}, in {function}")))
}

/// Returns a finding for a backend that a process could not load, because our libraries are missing or for
/// another reason.
pub fn refused(text: &str) -> Option<Finding> {
    let refusal = answers::refusal(text)?;
    let ours = refusal.contains("cannot open shared object file")
        && OBJECTS.iter().any(|object| refusal.contains(object.soname));
    Some(if ours {
        Finding::fail(cause::ENVIRONMENT_STRIPPED, refusal).expected("the libraries that LD_PRELOAD names")
    } else {
        Finding::fail(cause::BACKEND_NOT_LOADED, refusal)
    })
}

/// Returns the finding for a device that Ollama's filters drop.
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
        }
        Dropped::Architecture => Finding::fail(
            cause::FILTERED_ARCH,
            format!("Ollama drops the device: its backend was built for {built}, not for {major}.{minor}"),
        ),
        Dropped::Driver(wanted) => {
            let driver = driver.unwrap_or_default();
            Finding::fail(cause::FILTERED_DRIVER, format!("Ollama drops the device: its driver is {driver}"))
                .expected(format!("{wanted} or newer"))
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::check::child::ended;
    use crate::diagnosis::Cause;

    #[test]
    fn a_crash_is_one_though_go_ends_with_a_code() {
        let said = "load_backend: loaded CUDA backend from /l/libggml-cuda.so\nSIGSEGV: segmentation violation\nPC=0x23 m=4\n\
                    signal arrived during cgo execution\n\nruntime.cgocall(0x1)\n\
                    github.com/ollama/x._Cfunc_ggml_backend_reg_get_proc_address(0x7f, 0x1)\nrip 0x23\n";
        let finding = died("ollama runner", &outcome(ChildEnd::Exit(2), "", said)).unwrap();
        assert_eq!(finding.cause, Some(cause::CRASHED));
        let expected =
            "ollama runner crashed: SIGSEGV: segmentation violation, in ggml_backend_reg_get_proc_address";
        assert_eq!(finding.found, expected);
        assert!(finding.details[0].starts_with("load_backend"), "{finding:?}");
        let other = died("ollama runner", &outcome(ChildEnd::Exit(2), "", "Error: SIGSEGV")).unwrap();
        assert_eq!(other.cause, Some(Cause::unknown(LINK)));
    }

    #[test]
    fn limits_filters_and_hangs_are_told_apart() {
        let of = |end, said: &str| died("llama-server", &outcome(end, "", said)).unwrap();
        let limited =
            of(ChildEnd::Exit(2), "fatal error: failed to reserve page summary memory\n\nruntime stack:\n");
        assert_eq!(limited.cause, Some(cause::RESOURCE_LIMIT));
        assert!(limited.found.ends_with("code 2: fatal error: failed to reserve page summary memory"));
        assert_eq!(of(ChildEnd::Signal(SIGSYS), "").cause, Some(cause::KILLED_BY_FILTER));
        let hangs = of(ChildEnd::TimedOut(REFRESH), "");
        assert_eq!(hangs.cause, Some(cause::TIMED_OUT));
        assert!(hangs.fix.unwrap().text.starts_with("Install Ollama again: llama-server itself hangs"));
    }

    #[test]
    fn the_processor_must_have_a_backend() {
        let of = |text: &str| without_processor(text, Path::new("/l")).and_then(|finding| finding.cause);
        assert_eq!(of("system_info: n_threads = 2 | CUDA : ARCHS = 750 | CPU : SSE3 = 1 |\n"), None);
        assert_eq!(of("system_info: n_threads = 2 | CUDA : ARCHS = 750 |\n"), Some(cause::NO_CPU_BACKEND));
        assert_eq!(of("nothing of the kind"), None);
        let damaged =
            "0.1 E load_backend: failed to load /l/libggml-cpu.so: /l/libggml-cpu.so: file too short\n";
        assert_eq!(refused(damaged), None, "that is no backend of a device");
        let text = format!("{damaged}system_info: n_threads = 2 | CUDA : ARCHS = 750 |\n");
        let finding = without_processor(&text, Path::new("/l")).unwrap();
        assert!(finding.found.ends_with("/l/libggml-cpu.so: file too short"), "{}", finding.found);
        let both = format!("{damaged}load_backend: failed to load /l/libggml-cuda.so: no\n");
        assert_eq!(refused(&both).unwrap().cause, Some(cause::BACKEND_NOT_LOADED));
    }

    /// Creates the outcome of a child process.
    pub fn outcome(end: ChildEnd, stdout: &str, stderr: &str) -> ChildOutcome {
        ChildOutcome { elapsed: Duration::from_millis(40), ..ended(end, stdout, stderr) }
    }
}
