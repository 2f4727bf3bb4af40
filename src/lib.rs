//! Gives a guest VM's Ollama the GPU of its host: `vgpu-run PROGRAM [ARGS]...`.
//!
//! `cli` defines the command line and `commands` executes it. `launch` starts a program with the help of
//! `device`, `program` and `inject`. `check` examines the same path link by link, `service` sets up a systemd
//! service, `status` shows who uses the device, and `trace` reads the records of a program's processes. All
//! of them report with `diagnosis` and `error`, which depend on none of them; `waits` keeps the names of
//! pending operations.

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
mod reap;
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
