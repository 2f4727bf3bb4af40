//! Implements `vgpu-run env`, which prints the variables instead of starting a program.
//!
//! Paths of memory files would become invalid when this process ends, so the libraries are stored in a
//! private directory. Its owner is the calling process, and the next start after that process has ended
//! removes it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;

use super::{Ready, allow_cpu, become_user};
use crate::cli::Options;
use crate::diagnosis::Fix;
use crate::env::{Environment, PATH};
use crate::error::{Failure, LauncherError};
use crate::inject::DeliveryMode;
use crate::inject::owner::Owner;
use crate::ollama::era::Era;
use crate::program::Program;

/// Reason why the variables cannot be printed.
#[derive(Debug, thiserror::Error)]
enum ShowError {
    #[error("failed to print")]
    Print(#[source] io::Error),
    #[error("failed to print names of libraries in memory: they would end with vgpu-run itself")]
    Memory,
    #[error("failed to print: env takes one PROGRAM and no more")]
    Arguments,
}

impl LauncherError for ShowError {
    fn fix(&self) -> Option<Fix> {
        match self {
            Self::Memory => Some("Leave --via out: env uses a folder.".into()),
            Self::Arguments => Some("To start the program env: vgpu-run -- env NAME=VALUE PROGRAM.".into()),
            Self::Print(_) => None,
        }
    }
}

/// The object that `--json` prints. Bytes that are not UTF-8 are replaced.
#[derive(Serialize)]
struct EnvReport {
    /// Variables to set.
    set: BTreeMap<String, String>,
    /// Variables to remove.
    unset: Vec<String>,
    /// Path of the file that the program's name refers to.
    program: Option<String>,
    /// Properties of the program if it is an Ollama.
    ollama: Option<OllamaReport>,
    /// Delivery mode of the libraries. `None` if they are not delivered (`--allow-cpu`).
    way: Option<DeliveryMode>,
    /// Path of the private directory with the libraries.
    folder: Option<String>,
    /// Libraries in the order in which they are preloaded.
    libraries: Vec<LibraryReport>,
}

#[derive(Serialize)]
struct OllamaReport {
    era: Era,
    libraries: String,
}

#[derive(Serialize)]
struct LibraryReport {
    soname: &'static str,
    path: String,
    bytes: usize,
}

/// Prints the variables for the program named `name`, or for any program. `rest` holds superfluous arguments,
/// which are an error.
pub fn show(options: &Options, name: Option<OsString>, rest: &[OsString], json: bool) -> Result<(), Failure> {
    let assignment = name.as_ref().is_some_and(|name| name.as_bytes().contains(&b'='));
    if assignment || !rest.is_empty() {
        return Err(ShowError::Arguments.into());
    }
    if options.via == Some(DeliveryMode::Memory) {
        return Err(ShowError::Memory.into());
    }
    let before = Environment::inherited();
    let mut environment = before.clone();
    let functions = become_user(options, &mut environment)?;
    let program = name.map(|name| Program::find(&name, environment.get(PATH))).transpose()?;
    let options = Options { via: Some(DeliveryMode::Folder), ..options.clone() };
    let ready = Ready::new(&options, program.as_ref(), functions, &mut environment, Owner::parent());
    let mut ready = allow_cpu(&options, ready)?;

    let text = if json {
        let report = report(&before, &environment, program.as_ref(), ready.as_ref());
        let mut text = serde_json::to_string(&report).map_err(|error| ShowError::Print(error.into()))?;
        text.push('\n');
        text.into_bytes()
    } else {
        changed(&before, &environment).flat_map(|(name, value)| line(name, value)).collect()
    };
    io::stdout().write_all(&text).map_err(ShowError::Print)?;
    if let Some(ready) = &mut ready {
        ready.injection.leave_in_place();
    }
    Ok(())
}

/// Returns the variables of `after` that are missing in `before` or have another value there.
fn changed<'a>(
    before: &'a Environment,
    after: &'a Environment,
) -> impl Iterator<Item = (&'a OsStr, &'a OsStr)> {
    after.iter().filter(|entry| !before.iter().any(|old| old == *entry))
}

/// Formats `NAME=VALUE`, quoted for a shell if necessary.
fn line(name: &OsStr, value: &OsStr) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+:,@%=".contains(byte);
    let mut line = name.as_bytes().to_vec();
    line.push(b'=');
    if value.as_bytes().iter().all(plain) {
        line.extend_from_slice(value.as_bytes());
    } else {
        line.push(b'\'');
        for byte in value.as_bytes() {
            match byte {
                b'\'' => line.extend_from_slice(br"'\''"),
                byte => line.push(*byte),
            }
        }
        line.push(b'\'');
    }
    line.push(b'\n');
    line
}

fn report(
    before: &Environment,
    after: &Environment,
    program: Option<&Program>,
    ready: Option<&Ready>,
) -> EnvReport {
    let text = |text: &OsStr| text.to_string_lossy().into_owned();
    let gone = |name: &OsStr| !after.iter().any(|(kept, _)| kept == name);
    let libraries = ready.map(|ready| {
        ready.plan.objects.iter().zip(ready.injection.objects()).map(|(object, (soname, path))| {
            LibraryReport { soname, path: text(path.as_os_str()), bytes: object.bytes.len() }
        })
    });
    EnvReport {
        set: changed(before, after).map(|(name, value)| (text(name), text(value))).collect(),
        unset: before.iter().filter(|(name, _)| gone(name)).map(|(name, _)| text(name)).collect(),
        program: program.map(|program| text(program.path.as_os_str())),
        ollama: ready
            .and_then(|ready| ready.ollama.as_ref())
            .map(|ollama| OllamaReport { era: ollama.era, libraries: text(ollama.libraries.as_os_str()) }),
        way: ready.map(|ready| ready.injection.mode()),
        folder: ready.and_then(|ready| ready.injection.folder()).map(|folder| text(folder.as_os_str())),
        libraries: libraries.into_iter().flatten().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(name: &str, value: &str) -> String {
        String::from_utf8(line(OsStr::new(name), OsStr::new(value))).unwrap()
    }

    #[test]
    fn lines_are_plain_where_they_can_be() {
        let folder = "/run/user/0/vgpu-run.4026531836.12.345.AbC123";
        assert_eq!(printed("LD_LIBRARY_PATH", folder), format!("LD_LIBRARY_PATH={folder}\n"));
        assert_eq!(printed("A", ""), "A=\n");
        assert_eq!(printed("A", "b c"), "A='b c'\n");
        assert_eq!(printed("A", "it's $x"), "A='it'\\''s $x'\n");
    }

    #[test]
    fn a_shell_reads_lines_back() {
        for value in ["plain", "two words", "it's", "$HOME `x` \"y\" \\", "a;b", "new\nline", "~", "*"] {
            let script = format!("{}printf %s \"$A\"", printed("A", value));
            let output = std::process::Command::new("/bin/sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
        }
    }

    #[test]
    fn only_what_changed_is_printed() {
        let before = Environment::from_iter([("A", "1"), ("B", "2"), ("C", "3")]);
        let mut after = before.clone();
        after.set("B", "4");
        after.set("D", "5");
        after.remove("C");
        let names: Vec<_> = changed(&before, &after).map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["B", "D"]);
        let report = report(&before, &after, None, None);
        assert_eq!(report.unset, ["C"]);
        assert!(report.libraries.is_empty() && report.way.is_none());
    }
}
