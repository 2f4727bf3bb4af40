//! Gives a guest VM's Ollama the GPU of its host.
fn main() {}
