//! Errors of loading and calling the library.

use std::path::PathBuf;

use super::layout::VERSION;

/// Errors of loading and calling the library.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum LlamaError {
    #[error("load {path}")]
    Load { path: PathBuf, source: libloading::Error },
    #[error("list {path}")]
    List { path: PathBuf, source: std::io::Error },
    #[error("find {name} in {folder}")]
    Missing { name: &'static str, folder: PathBuf },
    #[error("find the function {name}")]
    Symbol { name: &'static str, source: libloading::Error },
    #[error("use llama.cpp {0}: this program is written for {VERSION}")]
    Version(String),
    #[error(
        "use this libllama: its default {what} parameters are {found}, but llama.h of {VERSION} says {expected}"
    )]
    Layout { what: &'static str, found: String, expected: String },
    #[error("load the backend {0}: the log says why")]
    Backend(PathBuf),
    #[error("load the model {0}: the log says why")]
    Model(PathBuf),
    #[error("write the weights of {from} anew: llama_model_quantize returned {status}")]
    Encode { from: PathBuf, status: u32 },
    #[error("make a context: the log says why")]
    Context,
    #[error("pass `{0}` to C: it has a zero byte")]
    Zero(String),
    #[error("tokenize the prompt")]
    Tokenize,
    #[error("apply the model's chat template")]
    Template,
    #[error("decode {tokens} tokens: llama_decode returned {status}")]
    Decode { tokens: usize, status: i32 },
    #[error("get logits: the last call to llama_decode made none")]
    Logits,
}
