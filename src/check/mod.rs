//! `vgpu-run check`: walks the chain by which Ollama finds a GPU and names the link that is broken.

pub mod catalogue;
pub mod finding;
