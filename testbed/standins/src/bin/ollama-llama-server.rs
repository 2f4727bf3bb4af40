//! Stand-in for lib/ollama/llama-server of an Ollama from 0.30 on.

use std::process::ExitCode;

fn main() -> ExitCode {
    vgpu_standins::ollama::llama_server::main()
}
