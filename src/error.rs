//! What the launcher says when it gives up: one sentence with its causes, then the fix, then an exit code.

use std::error::Error;
use std::io::Write;

use crate::diagnosis::{Cause, Finding, Fix};
use crate::exit::Exit;

/// An error that ends the launcher. Its text is a fragment that fits after the launcher's name and does not
/// repeat its source. [`Failure::report`] prints the chain.
pub trait LauncherError: Error + Send + Sync {
    /// The exit code it ends with.
    fn exit(&self) -> Exit {
        Exit::Launcher
    }

    /// Cause of the breakage in the catalogue. None if the error concerns no link.
    fn diagnosis(&self) -> Option<Cause> {
        None
    }

    /// What the user can do about it: by default the catalogue's remedy for the cause.
    fn fix(&self) -> Option<Fix> {
        self.diagnosis()?.remedy().map(Fix::from)
    }

    /// What the user can do about it, as whole sentences.
    fn hint(&self) -> Option<String> {
        self.fix().map(|fix| fix.sentence())
    }
}

/// An error and its causes in one line.
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

/// Any [`LauncherError`], on its way to `main`.
#[derive(Debug)]
pub struct Failure(Box<dyn LauncherError>);

impl<R: LauncherError + 'static> From<R> for Failure {
    fn from(refusal: R) -> Self {
        Self(Box::new(refusal))
    }
}

impl Failure {
    /// The exit code it ends with.
    pub fn exit(&self) -> Exit {
        self.0.exit()
    }

    /// The error and its causes in one line.
    pub fn sentence(&self) -> String {
        chain(&*self.0)
    }

    /// The finding that `check` reports for it. None if the error concerns no link.
    pub fn finding(&self) -> Option<Finding> {
        let finding = Finding::fail(self.0.diagnosis()?, self.sentence());
        Some(Finding { fix: self.0.fix(), ..finding })
    }

    /// Prints the sentence, the fix where there is one, and what `check` calls it.
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
