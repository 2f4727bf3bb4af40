//! Programs of the host that commands start, such as virsh and systemctl: limited in time, and their failures
//! in their own words.

use std::io;
use std::time::Duration;

use tokio::process::Command;
use vgpu_findings::child::{self, ChildEnd};

/// Reason for which a program did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    /// The program cannot be started.
    #[error("start {program}, which has to be installed and in PATH")]
    Start {
        program: &'static str,
        #[source]
        source: io::Error,
    },
    /// The program has not ended in time, and was killed.
    #[error("`{program} {what}` does not end within {} s", limit.as_secs())]
    Silent { program: &'static str, what: String, limit: Duration },
    /// The program printed so much that part of it was not kept.
    #[error("`{program} {what}` printed more than {} KiB: none of it is used", child::MOST_KEPT >> 10)]
    Long { program: &'static str, what: String },
    /// The program has failed.
    #[error("`{program} {what}` failed: {said}")]
    Failed { program: &'static str, what: String, said: String },
}

/// Runs a program for at most `limit`, and returns what it wrote to stdout, in full.
pub(crate) fn run(
    program: &'static str,
    arguments: &[&str],
    limit: Duration,
) -> Result<String, ProgramError> {
    let mut command = Command::new(program);
    command.args(arguments);
    let start = |source| ProgramError::Start { program, source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(start)?;
    let outcome = runtime.block_on(child::run_bounded(command, limit)).map_err(start)?;
    let what = || arguments.iter().take(2).copied().collect::<Vec<_>>().join(" ");
    match outcome.end {
        ChildEnd::Exit(0) if outcome.stdout.len() > child::MOST_KEPT => {
            Err(ProgramError::Long { program, what: what() })
        }
        ChildEnd::Exit(0) => Ok(outcome.stdout),
        ChildEnd::TimedOut(limit) => Err(ProgramError::Silent { program, what: what(), limit }),
        ChildEnd::Exit(_) | ChildEnd::Signal(_) => {
            let said = outcome.stderr.trim().to_owned();
            let said = if said.is_empty() { outcome.trouble().unwrap_or_default() } else { said };
            Err(ProgramError::Failed { program, what: what(), said })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn each_failure_is_told_apart() {
        assert_eq!(run("printf", &["%s", "said"], LONG).unwrap(), "said");
        let error = run("sh", &["-c", "echo why >&2; exit 3"], LONG).unwrap_err();
        assert!(matches!(&error, ProgramError::Failed { said, .. } if said == "why"), "{error}");
        let error = run("sh", &["-c", "exit 3"], LONG).unwrap_err();
        assert!(matches!(&error, ProgramError::Failed { said, .. } if !said.is_empty()), "{error}");
        let zeros = |bytes: usize| run("head", &["-c", &bytes.to_string(), "/dev/zero"], LONG);
        assert_eq!(zeros(child::MOST_KEPT).unwrap().len(), child::MOST_KEPT);
        let error = zeros(child::MOST_KEPT + 1).unwrap_err();
        assert!(matches!(error, ProgramError::Long { .. }), "{error}");
        let error = run("sleep", &["1000"], Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, ProgramError::Silent { .. }), "{error}");
        let error = run("vgpu-no-such-program", &[], LONG).unwrap_err();
        assert!(matches!(error, ProgramError::Start { .. }), "{error}");
    }
}
