//! Remedies by the kind of the line with which a program says why it fails.

#![allow(missing_docs, reason = "the texts say it")]

use vgpu_findings::Remedy;

pub const BROUGHT: Remedy = Remedy::new("Unset {variable}, which brings {file}.").command("unset {variable}");
pub const BROUGHT_IN_UNIT: Remedy =
    Remedy::new("Remove {variable}, which brings {file}, from the environment of {unit}, and restart it.")
        .command("systemctl edit {unit}")
        .as_root();
pub const UNSUITABLE: Remedy = Remedy::new(
    "Replace {file} by the one of Ollama's release, or move it away if the release has none of that name.",
)
.command("file -L {file}");
pub const LOADER: Remedy = Remedy::new("Install the missing library, or Ollama's release for this system.");
pub const INTERPRETER: Remedy =
    Remedy::new("Use the file of Ollama's release, or install the interpreter that its first line names.");
pub const SETTING: Remedy =
    Remedy::new("Unset the variable that has this value.").command("env | grep -e ^LLAMA_ -e ^OLLAMA_");
pub const VARIABLE: Remedy = Remedy::new("Unset {variable}, or give it a value that this release accepts.")
    .command("unset {variable}");
pub const FILE: Remedy =
    Remedy::new("Fetch the model again: its file {file} is damaged, missing or unreadable.")
        .command("ls -l {file}");
pub const OTHER_FILE: Remedy =
    Remedy::new("Let Ollama's user open {file}, or change the setting that names it.")
        .command("ls -l {file}");
pub const MODEL: Remedy = Remedy::new("Fetch the model again; its file is damaged or of another release.")
    .command("ollama pull MODEL");
pub const MANIFEST: Remedy =
    Remedy::new("Fetch the model again; its manifest is damaged.").command("ollama pull MODEL");
pub const MEMORY: Remedy =
    Remedy::new("End programs that hold the device's memory, or use a smaller model or context.")
        .command("export OLLAMA_CONTEXT_LENGTH=4096");
pub const DIRECTORY: Remedy =
    Remedy::new("Let Ollama's user read and write {file}.").command("ls -ld {file}");
pub const BACKEND: Remedy = Remedy::new("Install Ollama again; its files do not fit together.");
pub const TIMEOUT: Remedy = Remedy::new("Give loads more time: the model's disk or the device is slow.")
    .command("export OLLAMA_LOAD_TIMEOUT=30m");
pub const ARCHITECTURE: Remedy =
    Remedy::new("Use a release of Ollama that was built for this GPU's compute capability.");
pub const DRIVER: Remedy = Remedy::new("Update the driver on the host, or use another release of Ollama.");
pub const HOST: Remedy = Remedy::new("Read the device process's log on the VM's host.")
    .command("vgpu-run check --only host,data-path");
pub const ADDRESS: Remedy =
    Remedy::new("Give Ollama another address, or end what has this one.").command("ss -ltnp");
