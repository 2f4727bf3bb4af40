//! The command line without words of the launcher's own: `vgpu-run PROGRAM [ARGS]...`.
//!
//! To read a command line clap first builds a description of all commands and options, which takes a
//! noticeable part of a start. This form needs none of it.

use std::ffi::{OsStr, OsString};

/// The names of the commands.
pub const COMMANDS: [&str; 7] = ["env", "check", "status", "service", "trace", "__pages", "__look"];

/// The program and its arguments in a command line that begins with the launcher's name, if it names no
/// option or command before them. None if it is for clap to read.
pub fn program(arguments: &[OsString]) -> Option<&[OsString]> {
    let (_, program) = arguments.split_first()?;
    let first = program.first()?;
    let own = first.as_encoded_bytes().starts_with(b"-")
        || COMMANDS.iter().any(|command| OsStr::new(command) == first);
    (!own).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_words_of_the_launcher_is_for_clap() {
        for words in [&[][..], &["-v", "x"], &["--", "x"], &["--user=y", "x"], &["check"], &["-"]] {
            let words: Vec<_> = ["vgpu-run"].iter().chain(words).map(OsString::from).collect();
            assert!(program(&words).is_none(), "{words:?}");
        }
        assert!(program(&[]).is_none());
    }
}
