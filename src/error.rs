//! Reports the launcher's errors: one sentence with the causes, then the fix, then an exit code.

use std::error::Error;
use std::io::Write;

use crate::diagnosis::{Cause, Finding, Fix};
use crate::exit::Exit;

/// An error that ends the launcher. Its text is a fragment that fits after the launcher's name and does not
/// repeat its source. [`Failure::report`] prints the chain.
pub trait LauncherError: Error + Send + Sync {
    /// Returns the exit code of the launcher after this error.
    fn exit(&self) -> Exit {
        Exit::Launcher
    }

    /// Returns the matching cause in the catalogue, or `None` if the error concerns no link of the chain.
    fn diagnosis(&self) -> Option<Cause> {
        None
    }

    /// Returns what the user can do about the error. The default is the catalogue's remedy for the cause.
    fn fix(&self) -> Option<Fix> {
        self.diagnosis()?.remedy().map(Fix::from)
    }

    /// Returns what the user can do about the error, as complete sentences.
    fn hint(&self) -> Option<String> {
        self.fix().map(|fix| fix.sentence())
    }
}

/// Formats an error and its causes in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Any [`LauncherError`], boxed so that `main` can report it.
#[derive(Debug)]
pub struct Failure(Box<dyn LauncherError>);

impl<R: LauncherError + 'static> From<R> for Failure {
    fn from(refusal: R) -> Self {
        Self(Box::new(refusal))
    }
}

impl Failure {
    /// Returns the exit code of the launcher after this error.
    pub fn exit(&self) -> Exit {
        self.0.exit()
    }

    /// Returns the error and its causes in one line.
    pub fn sentence(&self) -> String {
        chain(&*self.0)
    }

    /// Returns the finding that `check` reports for the error, or `None` if the error concerns no link.
    pub fn finding(&self) -> Option<Finding> {
        let finding = Finding::fail(self.0.diagnosis()?, self.sentence());
        Some(Finding { fix: self.0.fix(), ..finding })
    }

    /// Prints the error, its fix if there is one, and the name that `check` gives to the problem. Returns the
    /// exit code.
    pub fn report(&self, out: &mut dyn Write) -> Exit {
        let hint = self.0.hint().map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
        let check = self.finding().and_then(|finding| {
            let issue = finding.issue()?;
            let why = finding.why().map(|why| format!("{why} ")).unwrap_or_default();
            Some(format!("check: {issue}: {why}(vgpu-run check says more)\n"))
        });
        // Where its words go is closed: the exit code says it.
        let _ = write!(out, "vgpu-run: {}\n{hint}{}", self.sentence(), check.unwrap_or_default());
        self.exit()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to do the thing")]
    struct Outer(#[source] io::Error);
    impl LauncherError for Outer {
        fn exit(&self) -> Exit {
            Exit::NotFound
        }
        fn fix(&self) -> Option<Fix> {
            Some("Do it twice.".into())
        }
    }

    #[test]
    fn the_chain_is_printed_once_and_the_hint_after_it() {
        let failure = Failure::from(Outer(io::Error::other("no such thing")));
        let mut text = Vec::new();
        assert_eq!(failure.report(&mut text), Exit::NotFound);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "vgpu-run: failed to do the thing: no such thing\nhint: Do it twice.\n"
        );
    }
}
