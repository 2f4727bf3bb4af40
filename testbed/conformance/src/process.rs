//! The process of a case, on both sides: how the case says that it does not apply, and how its parent waits.

use std::io::Read as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Exit code of a case that does not apply to the driver, as test harnesses of the GNU build system use it.
const NOT_APPLICABLE: i32 = 77;

/// A case that runs longer than this is killed and has failed.
const LIMIT: Duration = Duration::from_mins(2);

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The driver behaves as CUDA's manual says.
    Passed,
    /// A check failed. Holds what the process wrote to its standard error.
    Failed(String),
    /// The driver or its devices lack what the case needs. Holds the reason.
    NotApplicable(String),
}

/// Ends the process of a case that needs what the driver or its devices do not have.
pub fn not_applicable(reason: &str) -> ! {
    eprintln!("not applicable: {reason}");
    std::process::exit(NOT_APPLICABLE)
}

/// Waits for a process, and kills it after the limit.
///
/// # Errors
/// The process did not end in time, or cannot be waited for.
pub fn finish(child: &mut Child) -> std::io::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "it did not end in time"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a case in the process that `command` starts.
pub fn run(command: &mut Command) -> Outcome {
    let ended = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().and_then(|mut child| {
        let mut stderr = child.stderr.take().expect("it is piped");
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let status = finish(&mut child)?;
        Ok((status, reader.join().expect("it does not panic")))
    });
    match ended {
        Ok((status, _)) if status.success() => Outcome::Passed,
        Ok((status, text)) if status.code() == Some(NOT_APPLICABLE) => Outcome::NotApplicable(text),
        Ok((status, text)) => Outcome::Failed(format!("{status}\n{text}")),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
