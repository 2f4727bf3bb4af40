//! Determines the command that a unit starts, and builds the same command started by vgpu-run.

use std::path::{Path, PathBuf};

use super::root::SystemRoot;
use crate::systemd::{PLACES, UnitFiles, settings};

/// Prefixes of a command line that change how it is started (systemd.service(5)); they stay before vgpu-run.
const PREFIXES: [char; 6] = ['-', ':', '+', '!', '|', '@'];
/// Programs that start containers. The containers do not inherit anything from this process.
const CONTAINERS: [&str; 4] = ["docker", "podman", "nerdctl", "lxc"];

/// Reason why vgpu-run cannot start a unit's command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum CommandError {
    #[error("there is no {0}")]
    Missing(String),
    #[error("{} cannot be read: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("{} is masked: nothing starts it", .0.display())]
    Masked(PathBuf),
    #[error("{} has no ExecStart= in a section [Service]", .0.display())]
    Nothing(PathBuf),
    #[error("{unit} starts {count} commands, and vgpu-run stands before one")]
    Several { unit: String, count: usize },
    #[error("{} starts {command:?} with a name of its own (@), which vgpu-run does not pass on", path.display())]
    Named { path: PathBuf, command: String },
    #[error("{} starts {command:?} with vgpu-run already", path.display())]
    Already { path: PathBuf, command: String },
    #[error("{} starts a container ({command:?})", path.display())]
    Container { path: PathBuf, command: String },
    #[error("{} starts a snap ({command:?})", path.display())]
    Snap { path: PathBuf, command: String },
}

/// The single command that a unit starts, as its file contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitCommand {
    /// Text after `ExecStart=`.
    pub text: String,
    /// Path of the file with the command, as the system itself names it.
    pub path: PathBuf,
    /// Paths of all files that were read.
    pub files: Vec<PathBuf>,
}

/// Returns the files of a unit, with the paths that the system itself uses.
pub fn files(root: &SystemRoot, unit: &str) -> UnitFiles {
    let places = PLACES.map(PathBuf::from);
    UnitFiles::find_by(unit, &places, |folder| root.entries(folder), |path| root.has(path))
}

impl UnitCommand {
    /// Determines what `unit` starts without the drop-in `ours`.
    pub fn find(root: &SystemRoot, unit: &str, ours: &Path) -> Result<Self, CommandError> {
        let files = files(root, unit);
        let main = files.main.clone().ok_or_else(|| CommandError::Missing(unit.to_owned()))?;
        let mut commands: Vec<(String, PathBuf)> = Vec::new();
        let mut read = Vec::new();
        for path in files.iter().map(Path::to_owned).filter(|path| path != ours) {
            let unreadable = |why: String| CommandError::Unreadable { path: path.clone(), why };
            let bytes = root.read(&path).map_err(|error| unreadable(error.to_string()))?;
            if bytes.is_empty() && path == main {
                return Err(CommandError::Masked(path));
            }
            let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".into()))?;
            for (_, value) in settings(&text, "Service").filter(|(key, _)| key == "ExecStart") {
                if value.is_empty() {
                    commands.clear();
                } else {
                    commands.extend(value.split(" ; ").map(|part| (part.trim().to_owned(), path.clone())));
                }
            }
            read.push(path);
        }
        let count = commands.len();
        match commands.pop() {
            None => Err(CommandError::Nothing(main)),
            Some((text, path)) if count == 1 => {
                let command = Self { text, path, files: read };
                command.refuse()?;
                Ok(command)
            }
            Some(_) => Err(CommandError::Several { unit: unit.to_owned(), count }),
        }
    }

    fn refuse(&self) -> Result<(), CommandError> {
        let (prefix, rest) = self.split();
        let (path, command) = (self.path.clone(), rest.to_owned());
        if prefix.contains('@') {
            return Err(CommandError::Named { path, command });
        }
        let program = rest.split_ascii_whitespace().next().unwrap_or("").trim_matches(['"', '\'']);
        match Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or("") {
            "vgpu-run" => Err(CommandError::Already { path, command }),
            "snap" => Err(CommandError::Snap { path, command }),
            _ if program.starts_with("/snap/") => Err(CommandError::Snap { path, command }),
            name if CONTAINERS.contains(&name) => Err(CommandError::Container { path, command }),
            _ => Ok(()),
        }
    }

    /// Splits the text into its prefixes and the command line after them.
    fn split(&self) -> (&str, &str) {
        let rest = self.text.trim_start_matches(PREFIXES);
        (&self.text[..self.text.len() - rest.len()], rest)
    }

    /// Puts `launcher` before the command. Words and quotes stay unchanged, because systemd parses them as
    /// before.
    pub fn by(&self, launcher: &str) -> String {
        let (prefix, rest) = self.split();
        format!("{prefix}{launcher} -- {rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    struct Tree(Scratch);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Self {
            let tree = Self(Scratch::new());
            for (name, text) in files {
                let path = Path::new("/etc/systemd/system").join(name);
                tree.root().make_folders(&path).unwrap();
                tree.root().write(&path, text).unwrap();
            }
            tree
        }

        fn root(&self) -> SystemRoot {
            SystemRoot::open(self.0.path()).unwrap()
        }

        fn command(&self) -> Result<UnitCommand, CommandError> {
            let ours = Path::new("/etc/systemd/system/x.service.d/zz.conf");
            UnitCommand::find(&self.root(), "x.service", ours)
        }
    }

    fn of(text: &str) -> Result<UnitCommand, CommandError> {
        Tree::new(&[("x.service", &format!("[Service]\nExecStart={text}\n"))]).command()
    }

    #[test]
    fn the_command_stays_as_it_stands() {
        for (text, expected) in [
            ("/usr/local/bin/ollama serve", "/l -- /usr/local/bin/ollama serve"),
            ("-/bin/o \"two words\" %i $X ${Y}", "-/l -- /bin/o \"two words\" %i $X ${Y}"),
            (":!!ollama serve", ":!!/l -- ollama serve"),
        ] {
            assert_eq!(of(text).unwrap().by("/l"), expected);
        }
    }

    #[test]
    fn drop_ins_count_and_ours_does_not() {
        let tree = Tree::new(&[
            ("x.service", "[Service]\nExecStart=/bin/one\n"),
            ("x.service.d/override.conf", "[Service]\nExecStart=\nExecStart=/bin/two\n"),
            ("x.service.d/zz.conf", "[Service]\nExecStart=\nExecStart=/bin/vgpu-run -- /bin/one\n"),
        ]);
        let command = tree.command().unwrap();
        assert_eq!(command.text, "/bin/two");
        assert_eq!(command.path, Path::new("/etc/systemd/system/x.service.d/override.conf"));
    }

    #[test]
    fn what_cannot_be_started_so() {
        assert_eq!(Tree::new(&[]).command(), Err(CommandError::Missing("x.service".into())));
        let nothing = |text| Tree::new(&[("x.service", text)]).command().unwrap_err().to_string();
        for text in [
            "[Service]\n",
            "ExecStart=/bin/x\n",
            "\u{1}\u{2}",
            "[Service\nExecStart=/bin/x",
            "[Unit]\nExecStart=/x\n",
        ] {
            let said = nothing(text);
            assert_eq!(
                said, "/etc/systemd/system/x.service has no ExecStart= in a section [Service]",
                "{text:?}"
            );
        }
        assert!(nothing("").ends_with("is masked: nothing starts it"));
        assert!(nothing("[Service]\nExecStart=/a\nExecStart=/b\n").contains("starts 2 commands"));
        assert!(matches!(of("/a ; /b"), Err(CommandError::Several { count: 2, .. })));
        assert!(matches!(of("@/bin/ollama name serve"), Err(CommandError::Named { .. })));
        assert!(matches!(of("-/opt/vgpu-run ollama serve"), Err(CommandError::Already { .. })));
        assert!(matches!(of("/usr/bin/docker run ollama/ollama"), Err(CommandError::Container { .. })));
        assert!(matches!(of("/usr/bin/snap run ollama.listener"), Err(CommandError::Snap { .. })));
        let tree = Tree::new(&[("x.service", "")]);
        std::fs::write(tree.root().path("/etc/systemd/system/x.service"), b"[Service]\n\xff\n").unwrap();
        assert!(tree.command().unwrap_err().to_string().ends_with("it is not UTF-8"));
    }
}
