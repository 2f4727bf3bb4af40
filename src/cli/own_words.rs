//! Parses the launcher's own arguments of a command line: its options, and the first argument that is not an
//! option. Used where clap is not: for a command line that clap rejects, and for one in a unit file.

use std::ffi::OsStr;

use clap::{Args, Command};

use super::options::Options;

/// Arguments of a command line that belong to the launcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnWords<'a> {
    /// Value of `--user`, if given.
    pub user: Option<&'a OsStr>,
    /// Value of `--via`, if given.
    pub via: Option<&'a OsStr>,
    /// First argument that is not an option; `None` if there are only options.
    pub operand: Option<Operand<'a>>,
}

/// The first argument of a command line that is not an option of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand<'a> {
    /// A command of the launcher, or a program to start.
    Word(&'a OsStr),
    /// A program to start, given after `--`.
    Program(&'a OsStr),
}

impl<'a> OwnWords<'a> {
    /// Parses a command line without the launcher's name.
    pub fn read(words: impl IntoIterator<Item = &'a OsStr>) -> Self {
        let options = Options::augment_args(Command::new(""));
        let with_value = |word: &OsStr| {
            let name = word.to_str()?.strip_prefix("--")?.to_owned();
            let mut known = options.get_arguments();
            known
                .any(|option| option.get_long() == Some(&name) && option.get_action().takes_values())
                .then_some(name)
        };
        let mut own = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--" {
                own.operand = words.next().map(Operand::Program);
                break;
            }
            if let Some(option) = with_value(word) {
                let value = words.next();
                match option.as_str() {
                    "user" => own.user = value,
                    "via" => own.via = value,
                    _ => {}
                }
            } else if !word.as_encoded_bytes().starts_with(b"-") {
                own.operand = Some(Operand::Word(word));
                break;
            }
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_their_values_are_passed_over() {
        fn of(words: &str) -> OwnWords<'_> {
            OwnWords::read(words.split(' ').map(OsStr::new))
        }
        let word = |word: &'static str| Some(Operand::Word(OsStr::new(word)));
        let checked = of("--user x -v --allow-cpu check --bad --user y");
        assert_eq!((checked.operand, checked.user), (word("check"), Some(OsStr::new("x"))));
        let by_folder = of("--via folder ollama");
        assert_eq!((by_folder.operand, by_folder.via), (word("ollama"), Some(OsStr::new("folder"))));
        assert_eq!(of("--via=folder --user check ollama").operand, word("ollama"));
        assert_eq!(of("-v -- --user check").operand, Some(Operand::Program(OsStr::new("--user"))));
        assert_eq!(of("-v --user"), OwnWords::default());
    }
}
