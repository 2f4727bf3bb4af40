//! Generates the files that a release contains besides the program: manual pages and shell completions, from
//! the definition of the command line.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use vgpu_paths::Dir;

use crate::cli::Cli;
use crate::diagnosis::Fix;
use crate::error::{Failure, LauncherError};

/// Shells, each with the path below a prefix where it looks for completions.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/vgpu-run"),
    (Shell::Fish, "share/fish/vendor_completions.d/vgpu-run.fish"),
    (Shell::Zsh, "share/zsh/site-functions/_vgpu-run"),
];

/// Error of writing a page or completion.
#[derive(Debug, thiserror::Error)]
#[error("failed to write {path}")]
struct PageError {
    path: PathBuf,
    source: io::Error,
}

impl LauncherError for PageError {
    fn fix(&self) -> Option<Fix> {
        vgpu_paths::hint(&self.source).map(Fix::from)
    }
}

/// Writes all pages and completions below `prefix`, to the usual directories of a system.
pub fn write(prefix: &Path) -> Result<(), Failure> {
    for (path, content) in pages().into_iter().chain(completions()) {
        let path = prefix.join(path);
        let (folder, name) = (path.parent().unwrap_or(prefix), path.file_name().unwrap_or_default());
        Dir::make(folder)
            .and_then(|(folder, _)| folder.replace(name, &content))
            .map_err(|source| PageError { path: path.clone(), source })?;
    }
    Ok(())
}

/// Returns a manual page for the program, and one for each command that is not hidden.
fn pages() -> Vec<(String, Vec<u8>)> {
    let mut program = Cli::command();
    program.build();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let named = commands.map(|command| {
        let name = format!("vgpu-run-{}", command.get_name());
        // As it is typed in the synopsis, and with a dash where pages are named.
        let typed = format!("vgpu-run {}", command.get_name());
        command.display_name(&name).bin_name(typed).version(env!("CARGO_PKG_VERSION"))
    });
    [program.clone()].into_iter().chain(named).map(page).collect()
}

fn page(command: Command) -> (String, Vec<u8>) {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut content = Vec::new();
    // A page is the same whenever it is made: without its date.
    let made = clap_mangen::Man::new(command).date("").render(&mut content);
    made.expect("memory takes what is written");
    (format!("share/man/man1/{name}.1"), content)
}

fn completions() -> Vec<(String, Vec<u8>)> {
    let of = |(shell, path): (Shell, &str)| {
        let mut content = Vec::new();
        clap_complete::generate(shell, &mut shown(), "vgpu-run", &mut content);
        (path.to_owned(), content)
    };
    SHELLS.map(of).to_vec()
}

/// Returns the command line without hidden commands, which completions would offer.
fn shown() -> Command {
    let full = Cli::command();
    let commands = full.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("vgpu-run").args(full.get_arguments().cloned()).subcommands(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_is_shown_has_a_page() {
        let made = pages();
        let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["vgpu-run", "vgpu-run-check", "vgpu-run-env", "vgpu-run-trace"] {
            assert!(names.contains(&format!("share/man/man1/{name}.1").as_str()), "{names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("__")), "{names:?}");
        for (name, content) in made {
            let text = String::from_utf8(content).unwrap();
            assert!(text.contains(".TH ") && text.contains(".SH SYNOPSIS"), "{name}: {text}");
            assert!(!text.contains("__worker"), "{name} shows what is hidden");
        }
    }

    #[test]
    fn completions_offer_what_is_shown_and_nothing_else() {
        for (path, content) in completions() {
            let text = String::from_utf8(content).unwrap();
            assert!(text.contains("check") && text.contains("allow-cpu"), "{path}");
            assert!(!text.contains("__worker") && !text.contains("__pages"), "{path}: {text}");
        }
    }
}
