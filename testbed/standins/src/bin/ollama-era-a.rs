//! Stand-in for an Ollama up to 0.12.3: `ollama serve` itself opens the driver's library, by its path.

use std::process::ExitCode;

use vgpu_standins::ollama::{Era, Lines, Way};

/// Section that Go puts into every binary, by which launchers recognise Ollama.
#[used]
// SAFETY: a section of its own that nothing else is in.
#[unsafe(link_section = ".go.buildinfo")]
static BUILD_INFO: [u8; 32] = *b"\xff Go buildinf:\x08\x02stand-in\0\0\0\0\0\0\0\0";

fn main() -> ExitCode {
    vgpu_standins::ollama::main(&Era {
        way: Way::OwnProcess,
        version: "0.12.3",
        lines: Lines { looking: "looking for compatible GPUs", listing: "" },
    })
}
