//! Gives a guest VM's Ollama the GPU of its host: `vgpu-run PROGRAM [ARGS]...`.
//!
//! `cli` defines the command line and `commands` carries it out. The way to a program is `launch`; it
//! uses `device`, `program` and `inject`. `check` examines the same way link by link, `service`
//! sets up a systemd service, `status` shows who uses the device, and `trace` reads what a program's
//! processes recorded. All of them report with `diagnosis` and `error`, at the bottom; `waits` has the name
//! of what is waited for.

mod check;
mod cli;
mod commands;
mod device;
mod diagnosis;
mod embedded;
mod env;
mod error;
mod exit;
mod inject;
mod launch;
mod log;
mod ollama;
mod pages;
mod program;
mod report;
#[cfg(test)]
mod scratch;
mod service;
mod stack;
mod status;
mod systemd;
mod trace;
mod version;
mod waits;

pub use commands::main;
