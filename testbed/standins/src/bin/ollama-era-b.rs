//! Stand-in for an Ollama of 0.12.4 to 0.24: a child, `ollama runner`, searches for GPUs and reports them
//! over HTTP.

use std::process::ExitCode;

use vgpu_standins::ollama::{Era, Lines, Way};

/// Section that Go puts into every binary, by which launchers recognise Ollama.
#[used]
// SAFETY: a section of its own that nothing else is in.
#[unsafe(link_section = ".go.buildinfo")]
static BUILD_INFO: [u8; 32] = *b"\xff Go buildinf:\x08\x02stand-in\0\0\0\0\0\0\0\0";

fn main() -> ExitCode {
    vgpu_standins::ollama::main(&Era {
        way: Way::Runner,
        version: "0.24.0",
        lines: Lines { looking: "discovering available GPUs...", listing: "" },
    })
}
