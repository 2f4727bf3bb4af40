//! Remedies by the kind of the line with which a program says why it fails.

#![allow(missing_docs, reason = "the texts say it")]

use vgpu_findings::Remedy;

pub const BROUGHT: Remedy = Remedy::new("Unset {variable}, which brings {file}.").command("unset {variable}");
pub const UNSUITABLE: Remedy = Remedy::new("Remove that file, or replace it by the one of Ollama's release.")
    .command("ls -l {file}; file -L {file}");
pub const LOADER: Remedy = Remedy::new("Install the missing library, or Ollama's release for this system.");
pub const INTERPRETER: Remedy =
    Remedy::new("Use the file of Ollama's release, or install the interpreter that its first line names.");
pub const SETTING: Remedy =
    Remedy::new("Unset the variable that has this value.").command("env | grep -e ^LLAMA_ -e ^OLLAMA_");
pub const VARIABLE: Remedy = Remedy::new("Unset {variable}, or give it a value that this release accepts.")
    .command("unset {variable}");
pub const FILE: Remedy =
    Remedy::new("Fetch the model again: this file of it is damaged, missing or unreadable.")
        .command("ls -l {file}; ollama list");
pub const OTHER_FILE: Remedy =
    Remedy::new("Let Ollama's user open that file, or name another one where it is set.")
        .command("ls -l {file}");
pub const MODEL: Remedy = Remedy::new("Fetch the model again; its file is damaged or of another release.")
    .command("ollama pull MODEL");
pub const MANIFEST: Remedy =
    Remedy::new("Fetch the model again; its manifest is damaged.").command("ollama pull MODEL");
pub const MEMORY: Remedy =
    Remedy::new("End programs that hold the device's memory, or use a smaller model or context.")
        .command("export OLLAMA_CONTEXT_LENGTH=4096");
pub const DIRECTORY: Remedy =
    Remedy::new("Let Ollama's user read and write that directory.").command("ls -ld {file}");
pub const BACKEND: Remedy = Remedy::new("Install Ollama again; its files do not fit together.");
pub const TIMEOUT: Remedy = Remedy::new("Give loads more time, and read the log of the device's host.")
    .command("export OLLAMA_LOAD_TIMEOUT=30m");
pub const DRIVER: Remedy = Remedy::new("Update the driver on the host, or use another release of Ollama.");
pub const HOST: Remedy =
    Remedy::new("Read the log of the device's host.").command("vgpu-run check --only host,data-path");
pub const ADDRESS: Remedy =
    Remedy::new("Give Ollama another address, or end what has this one.").command("ss -ltnp");
