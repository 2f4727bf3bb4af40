//! Common parts of the stand-ins for Ollama: one server of each era ([`ollama`]), and the llama-server that
//! the newest one starts.

pub mod ollama;
