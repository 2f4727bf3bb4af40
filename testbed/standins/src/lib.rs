//! What the stand-in Ollamas share: one server of each era ([`ollama`]), and the llama-server that the newest
//! one starts.

pub mod ollama;
