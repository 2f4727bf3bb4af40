//! Finds the program to start: the file of its name, and whether libraries can be preloaded into it. The
//! decision uses only the files; no program is run.

pub mod cache;
pub mod elf;
pub mod find;
pub mod private;
pub mod script;
pub mod search;
pub mod secure;
pub mod texts;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::libc;

use crate::diagnosis::{Cause, Fix, LinkId, Remedy, cause};
use crate::error::LauncherError;
use crate::exit::Exit;
use elf::{Elf, ElfError};
use find::NotFound;
use script::FileKind;
use secure::Secure;

/// File name of the loader that the shims are made for.
const LOADER: &str = "ld-linux-x86-64.so.2";

/// A program that the launcher found on disk.
#[derive(Debug)]
pub struct Program {
    /// Path of the file with the program's name.
    pub path: PathBuf,
    /// Path of the binary that the kernel will load: the file itself, or a script's interpreter.
    pub binary: PathBuf,
    /// The opened binary; `None` if it may be executed but not read.
    file: Option<File>,
}

/// Reason why a program cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum Unfound {
    /// The program does not exist, or it may not be executed.
    #[error(transparent)]
    Program(NotFound),
    /// The script's interpreter was not found.
    #[error("failed to execute {}: failed to find its interpreter", .0.display())]
    Interpreter(PathBuf, #[source] NotFound),
    /// The scripts are interpreters of each other.
    #[error("failed to execute {}: its interpreters are scripts of each other", .0.display())]
    Loop(PathBuf),
    /// The file cannot be read.
    #[error("failed to read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
}

impl LauncherError for Unfound {
    fn exit(&self) -> Exit {
        match self {
            Self::Program(NotFound::Missing(_)) | Self::Interpreter(_, NotFound::Missing(_)) => {
                Exit::NotFound
            }
            _ => Exit::NotExecutable,
        }
    }

    fn fix(&self) -> Option<Fix> {
        match self {
            Self::Program(NotFound::Missing(name)) if !name.as_encoded_bytes().contains(&b'/') => {
                Some("Give its path, or add its directory to PATH.".into())
            }
            _ => None,
        }
    }
}

/// Reason why libraries cannot be preloaded into a program.
#[derive(Debug, thiserror::Error)]
#[error("failed to give the GPU to {}", binary.display())]
pub struct Unsuitable {
    binary: PathBuf,
    #[source]
    why: Why,
}

/// Property of the program that prevents preloading.
#[derive(Debug, thiserror::Error)]
enum Why {
    #[error("it is a 32-bit program")]
    Narrow,
    #[error("it is not a program for x86-64")]
    Machine,
    #[error("it is linked statically, and libraries can be preloaded only into dynamic programs")]
    Static,
    #[error(
        "it is made for another C library (its loader is {0}), and the CUDA libraries are made for glibc"
    )]
    Loader(String),
    #[error("{0}, so that the loader ignores LD_PRELOAD")]
    Secure(Secure),
    #[error("it may be executed but not read, so that its children could not be given the GPU")]
    Unreadable {
        /// Whether the file has a setuid or setgid bit.
        privileged: bool,
    },
    #[error("it cannot be read as a program")]
    Elf(#[source] ElfError),
    #[error("it cannot be read")]
    Read(#[source] io::Error),
}

impl Unsuitable {
    /// Returns whether the program has Ollama's name.
    fn is_ollama(&self) -> bool {
        self.binary.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"ollama"))
    }
}

impl LauncherError for Unsuitable {
    fn diagnosis(&self) -> Option<Cause> {
        let cause = match self.why {
            Why::Narrow | Why::Machine | Why::Loader(_) => cause::ollama::OLLAMA_FOREIGN,
            Why::Static => cause::ollama::OLLAMA_STATIC,
            Why::Secure(_) => cause::ollama::OLLAMA_SECURE,
            Why::Elf(_) => cause::ollama::OLLAMA_DAMAGED,
            Why::Unreadable { .. } | Why::Read(_) => Cause::unknown(LinkId::Ollama),
        };
        // The link speaks of Ollama, and these sentences would be odd of another program.
        self.is_ollama().then_some(cause)
    }

    fn exit(&self) -> Exit {
        Exit::NotExecutable
    }

    fn fix(&self) -> Option<Fix> {
        let fix = match self.why {
            Why::Narrow | Why::Machine => Remedy::new("Use an x86-64 build of it."),
            Why::Static => {
                Remedy::new("Use a dynamically linked build of it, or start what it starts through vgpu-run.")
            }
            Why::Loader(_) => Remedy::new("Use a build for glibc, such as Ollama's own release for Linux."),
            Why::Secure(Secure::User | Secure::Group) | Why::Unreadable { privileged: true } => {
                if self.is_ollama() {
                    Remedy::new("Remove its setuid or setgid bit.").command("chmod ug-s {path}").as_root()
                } else {
                    // Such as sudo, which does not work without the bit.
                    Remedy::new(
                        "Start the program behind it through vgpu-run: sudo vgpu-run PROGRAM, not vgpu-run sudo PROGRAM.",
                    )
                }
            }
            Why::Secure(Secure::Capabilities) => {
                Remedy::new("Remove its file capabilities; AmbientCapabilities= gives them to a service.")
                    .command("setcap -r {path}")
                    .as_root()
            }
            Why::Secure(Secure::Caller) => {
                Remedy::new("Remove the setuid and setgid bits of vgpu-run, and use --user as root.")
            }
            Why::Unreadable { privileged: false } => {
                Remedy::new("Let everybody read it.").command("chmod a+r {path}").as_root()
            }
            Why::Elf(_) => {
                Remedy::new("Install it again; its file is damaged.").command("readelf -hld {path}")
            }
            Why::Read(_) => Remedy::new("Find out what keeps it from being read.").command("ls -l {path}"),
        };
        Some(Fix::from(fix).with("path", self.binary.display()))
    }
}

impl Program {
    /// Finds the program named `name` on `path`, and the binary behind it.
    pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<Self, Unfound> {
        let found = find::find(name, path).map_err(Unfound::Program)?;
        let mut binary = found.clone();
        for _ in 0..=script::DEEPEST {
            let file = match vgpu_paths::open_regular(&binary) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Ok(Self { path: found, binary, file: None });
                }
                Err(error) => return Err(Unfound::Read(binary, error)),
            };
            let next = match script::kind(&file).map_err(|error| Unfound::Read(binary.clone(), error))? {
                FileKind::Elf => return Ok(Self { path: found, binary, file: Some(file) }),
                FileKind::Script(interpreter) => interpreter,
                FileKind::Other => script::SHELL.into(),
            };
            // The kernel takes the interpreter's name as a path, whether it has a slash or not.
            let next = if next.is_absolute() { next } else { Path::new(".").join(next) };
            binary = find::find(next.as_os_str(), None)
                .map_err(|error| Unfound::Interpreter(found.clone(), error))?;
        }
        Err(Unfound::Loop(found))
    }

    /// Returns whether the program is a binary rather than a script.
    pub fn is_binary(&self) -> bool {
        self.path == self.binary
    }

    /// Returns the opened binary, or `None` if it may not be read.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Reads the binary's headers. Fails if libraries cannot be preloaded into it.
    pub fn preloadable(&self) -> Result<Elf, Unsuitable> {
        let refuse = |why| Unsuitable { binary: self.binary.clone(), why };
        let unreadable = || refuse(Why::Unreadable { privileged: privileged(&self.binary) });
        let file = self.file.as_ref().ok_or_else(unreadable)?;
        let elf = Elf::read(file).map_err(|error| refuse(Why::Elf(error)))?;
        judge(&elf).map_err(refuse)?;
        elf::whole(file).map_err(|error| refuse(Why::Elf(error)))?;
        match secure::secure(file).map_err(|error| refuse(Why::Read(error)))? {
            Some(secure) => Err(refuse(Why::Secure(secure))),
            None => Ok(elf),
        }
    }
}

/// Returns whether a file has a setuid or setgid bit.
fn privileged(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.mode() & (libc::S_ISUID | libc::S_ISGID) != 0)
}

/// Checks that glibc's loader will load the program, because that loader reads LD_PRELOAD.
fn judge(elf: &Elf) -> Result<(), Why> {
    if !elf.wide {
        return Err(Why::Narrow);
    }
    if !elf.x86_64 || !elf.loadable {
        return Err(Why::Machine);
    }
    match &elf.interpreter {
        Some(path) if Path::new(path).file_name() == Some(OsStr::new(LOADER)) => Ok(()),
        Some(path) => Err(Why::Loader(path.clone())),
        // The loader run as a program: it obeys LD_PRELOAD too.
        None if elf.soname.as_deref() == Some(LOADER) => Ok(()),
        None => Err(Why::Static),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::error::Failure;
    use crate::scratch::Scratch;

    fn elf() -> Elf {
        Elf {
            x86_64: true,
            wide: true,
            loadable: true,
            interpreter: Some("/lib64/ld-linux-x86-64.so.2".into()),
            soname: None,
            needed: vec!["libc.so.6".into()],
            run_path: None,
        }
    }

    #[test]
    fn what_can_be_preloaded_into() {
        assert!(judge(&elf()).is_ok());
        let elsewhere = Some("/nix/store/abc-glibc/lib/ld-linux-x86-64.so.2".into());
        assert!(judge(&Elf { interpreter: elsewhere, ..elf() }).is_ok());
        assert!(judge(&Elf { interpreter: None, soname: Some(LOADER.into()), ..elf() }).is_ok());
    }

    #[test]
    fn what_cannot() {
        assert!(matches!(judge(&Elf { interpreter: None, ..elf() }), Err(Why::Static)));
        let musl = Some("/lib/ld-musl-x86_64.so.1".into());
        assert!(
            matches!(judge(&Elf { interpreter: musl, ..elf() }), Err(Why::Loader(path)) if path.contains("musl"))
        );
        assert!(matches!(judge(&Elf { wide: false, x86_64: false, ..elf() }), Err(Why::Narrow)));
        assert!(matches!(judge(&Elf { x86_64: false, ..elf() }), Err(Why::Machine)));
        assert!(matches!(judge(&Elf { loadable: false, ..elf() }), Err(Why::Machine)));
    }

    #[test]
    fn only_ollama_loses_its_setuid_bit() {
        let fix = |binary: &str, why| Unsuitable { binary: binary.into(), why }.fix().unwrap();
        let reasons: [fn() -> Why; 2] =
            [|| Why::Secure(Secure::User), || Why::Unreadable { privileged: true }];
        for why in reasons {
            let sudo = fix("/usr/bin/sudo", why());
            assert!(sudo.command.is_none() && sudo.text.contains("sudo vgpu-run PROGRAM"), "{sudo:?}");
            let ollama = fix("/usr/bin/ollama", why()).command;
            assert_eq!(ollama.as_deref(), Some("chmod ug-s /usr/bin/ollama"));
        }
        let plain = fix("/opt/tool", Why::Unreadable { privileged: false }).command;
        assert_eq!(plain.as_deref(), Some("chmod a+r /opt/tool"));
        let scratch = Scratch::new();
        let path = script(&scratch, "sudo", "");
        assert!(!privileged(&path));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4111)).unwrap();
        assert!(privileged(&path));
    }

    /// Writes an executable script that the test only reads. Programs that a test starts are written by
    /// `tests/common/executable.rs`.
    fn script(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
        let path = scratch.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_script_is_its_interpreter() {
        let scratch = Scratch::new();
        let inner = script(&scratch, "inner", "#!/bin/sh\n");
        let outer = script(&scratch, "outer", &format!("#!{} -x\n", inner.display()));
        let program = Program::find(outer.as_os_str(), None).unwrap();
        assert_eq!(
            (program.path.as_path(), program.binary.as_path()),
            (outer.as_path(), Path::new("/bin/sh"))
        );
        assert!(!program.is_binary());
        assert!(program.preloadable().is_ok());
    }

    #[test]
    fn text_without_an_interpreter_is_the_shells() {
        let scratch = Scratch::new();
        let text = script(&scratch, "text", "exit 0\n");
        assert_eq!(Program::find(text.as_os_str(), None).unwrap().binary, Path::new("/bin/sh"));
    }

    #[test]
    fn scripts_in_a_circle_end() {
        let scratch = Scratch::new();
        let path = scratch.join("circle");
        let circle = script(&scratch, "circle", &format!("#!{}\n", path.display()));
        let failure = Failure::from(Program::find(circle.as_os_str(), None).unwrap_err());
        assert_eq!(failure.exit(), Exit::NotExecutable);
    }

    #[test]
    fn exit_codes_are_those_of_env() {
        let scratch = Scratch::new();
        let missing = Failure::from(Program::find(OsStr::new("no-such-program"), None).unwrap_err());
        assert_eq!(
            (missing.exit(), missing.sentence().as_str()),
            (Exit::NotFound, "failed to find no-such-program")
        );
        let lost = script(&scratch, "lost", "#!/no/such/interpreter\n");
        let failure = Failure::from(Program::find(lost.as_os_str(), None).unwrap_err());
        assert_eq!(failure.exit(), Exit::NotFound);
        assert!(
            failure.sentence().ends_with("failed to find /no/such/interpreter"),
            "{}",
            failure.sentence()
        );
        let folder = Failure::from(Program::find(scratch.path().as_os_str(), None).unwrap_err());
        assert_eq!(folder.exit(), Exit::NotExecutable);
    }
}
