//! Stand-in for an Ollama from 0.30 on: children, llama-server twice and `ollama gpu-discover`, search for
//! GPUs.

use std::process::ExitCode;

use vgpu_standins::ollama::{Era, Lines, Way};

/// Section that Go puts into every binary, by which launchers recognise Ollama.
#[used]
// SAFETY: a section of its own that nothing else is in.
#[unsafe(link_section = ".go.buildinfo")]
static BUILD_INFO: [u8; 32] = *b"\xff Go buildinf:\x08\x02stand-in\0\0\0\0\0\0\0\0";

fn main() -> ExitCode {
    vgpu_standins::ollama::main(&Era {
        way: Way::LlamaServer,
        version: "0.33.0",
        lines: Lines {
            looking: "discovering available GPUs...",
            listing: "llama-server --list-devices failed: ",
        },
    })
}
