//! vgpu-probe: the tests that `vgpu-run check` runs in a separate process, because they need a dynamic loader
//! (the launcher has none), or because they may crash or hang. It runs in the environment that Ollama would
//! get.
//!
//! ```text
//! vgpu-probe resolve SONAME...              which file each name gets
//! vgpu-probe load BACKEND [--with LIB]...   a GGML backend, as Ollama opens it, and the devices that it
//! finds vgpu-probe facts [--runtime SONAME]       what the driver, the runtime and NVML say of each device
//! vgpu-probe data-path [--blas SONAME]      memory, copies, a kernel, a graph, a matrix product, and how
//! fast
//! ```
//!
//! It prints one JSON object a line: `{"step":"copy","begin":true}`, then the same step with `"ok"` and the
//! results. The last `begin` without an `ok` is the step during which it died. Exit codes: 0 success, 1 a
//! step failed, 2 wrong usage.

mod blas;
mod data_path;
mod driver;
mod facts;
mod ggml;
mod library;
mod load;
mod maps;
mod nvml;
mod resolve;
mod runtime;
mod say;
mod speed;

use std::ffi::OsString;
use std::process::ExitCode;

use say::Say;

const USAGE: u8 = 2;

/// The arguments that follow a command.
struct ProbeArguments {
    /// The arguments that are not options.
    names: Vec<OsString>,
    /// Values of the command's only option.
    values: Vec<OsString>,
}

impl ProbeArguments {
    /// Parses the arguments after the command. `None` if they are wrong.
    fn parse(option: &str, rest: impl Iterator<Item = OsString>) -> Option<Self> {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        let mut rest = rest;
        while let Some(word) = rest.next() {
            if word == option {
                values.push(rest.next()?);
            } else if word.as_encoded_bytes().starts_with(b"--") {
                return None;
            } else {
                names.push(word);
            }
        }
        Some(Self { names, values })
    }
}

/// Runs the command. Returns false if a step failed, and `None` if there is no such command or its arguments
/// are wrong.
fn try_step(mut words: impl Iterator<Item = OsString>, say: &mut Say) -> Option<bool> {
    let command = words.next()?;
    let option = match command.to_str()? {
        "load" => "--with",
        "facts" => "--runtime",
        "data-path" => "--blas",
        _ => "--",
    };
    let arguments = ProbeArguments::parse(option, words)?;
    let first = arguments.values.first().and_then(|value| value.to_str());
    match (command.to_str()?, &arguments.names[..]) {
        ("resolve", names) if !names.is_empty() => resolve::show_addresses(names, say),
        ("load", [backend]) => load::load_backend(backend, &arguments.values, say),
        ("facts", []) => facts::show_facts(first, say),
        ("data-path", []) => data_path::try_data_path(first, say),
        _ => return None,
    }
    Some(say.all_well())
}

/// Runs the probe. The C library calls it.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main() -> std::ffi::c_int {
    // There is no Rust runtime around this function, and a panic must not leave an extern function.
    let code = std::panic::catch_unwind(start).unwrap_or(ExitCode::FAILURE);
    std::ffi::c_int::from(code != ExitCode::SUCCESS) * if code == ExitCode::from(USAGE) { 2 } else { 1 }
}

/// Reads the arguments, runs the test that they name, and returns its exit code.
#[cfg_attr(test, allow(dead_code, reason = "tests have a main of their own"))]
fn start() -> ExitCode {
    let mut say = Say::default();
    match try_step(std::env::args_os().skip(1), &mut say) {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            eprintln!(
                "usage: vgpu-probe resolve SONAME... | load BACKEND [--with LIB]... | facts [--runtime SONAME] | data-path [--blas SONAME]"
            );
            ExitCode::from(USAGE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> impl Iterator<Item = OsString> {
        text.split_whitespace().map(OsString::from).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn what_does_not_fit_is_usage() {
        for text in ["", "x", "resolve", "load", "load a b", "load a --with", "facts x", "data-path --with x"]
        {
            assert_eq!(try_step(words(text), &mut Say::default()), None, "{text}");
        }
    }

    #[test]
    fn options_may_stand_anywhere() {
        let arguments = ProbeArguments::parse("--with", words("--with a b --with c")).unwrap();
        assert_eq!(arguments.names, ["b"]);
        assert_eq!(arguments.values, ["a", "c"]);
    }
}
