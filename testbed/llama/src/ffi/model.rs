//! A model and its context: the C objects with their lifetimes and functions.

use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr;

use super::api::{Api, Opaque};
use super::error::LlamaError;
use super::files::c_path;
use super::layout::{Batch, ChatMessage, ContextParams, ModelParams};

/// Setting of the fused attention operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlashAttention {
    /// Attention is fused if the device supports it.
    #[default]
    Auto,
    /// Attention is always fused.
    On,
    /// Attention is never fused.
    Off,
}

/// Parameters with which a context is created.
#[derive(Clone, Copy, Debug)]
pub struct ContextOptions {
    /// Number of tokens that fit into the context.
    pub tokens: u32,
    /// Setting of fused attention.
    pub flash_attention: FlashAttention,
    /// Number of threads of the CPU backend.
    pub threads: u32,
    /// Whether keys and values are stored on the GPU.
    pub kv_on_gpu: bool,
}

impl ContextOptions {
    pub(super) fn apply(&self, defaults: ContextParams) -> ContextParams {
        let threads = i32::try_from(self.threads).unwrap_or(i32::MAX);
        ContextParams {
            n_ctx: self.tokens,
            // A prompt is one batch.
            n_batch: self.tokens,
            n_threads: threads,
            n_threads_batch: threads,
            flash_attn_type: match self.flash_attention {
                FlashAttention::Auto => -1,
                FlashAttention::Off => 0,
                FlashAttention::On => 1,
            },
            offload_kqv: self.kv_on_gpu.into(),
            ..defaults
        }
    }
}

/// A loaded model, which is freed when the value is dropped.
#[derive(Debug)]
pub struct Model {
    api: &'static Api,
    raw: Opaque,
    /// Vocabulary of the model, valid as long as the model.
    vocab: *const c_void,
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: the model is alive; contexts borrow this value, so there is none.
        unsafe { (self.api.llama_model_free)(self.raw) };
    }
}

impl Model {
    pub(super) fn load(api: &'static Api, path: &Path, params: ModelParams) -> Result<Self, LlamaError> {
        let file = c_path(path)?;
        // SAFETY: the path is zero-ended; the structure was found to be the library's, and its pointers are
        // null.
        let raw = unsafe { (api.llama_model_load_from_file)(file.as_ptr(), params) };
        if raw.is_null() {
            return Err(LlamaError::Model(path.to_owned()));
        }
        // SAFETY: the model is alive.
        let vocab = unsafe { (api.llama_model_get_vocab)(raw) };
        Ok(Self { api, raw, vocab })
    }

    /// Returns the number of tokens in the vocabulary.
    pub fn vocab(&self) -> usize {
        // SAFETY: the vocabulary lives as long as the model.
        let count = unsafe { (self.api.llama_vocab_n_tokens)(self.vocab) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Returns the tokens of `text`, preceded by the token for the start of a text if the model requires it.
    /// With `special`, names of special tokens are converted to these.
    pub fn tokenize(&self, text: &str, special: bool) -> Result<Vec<i32>, LlamaError> {
        let bytes = i32::try_from(text.len()).map_err(|_| LlamaError::Tokenize)?;
        // A token is a byte at least, but for those that are added around the text.
        let mut tokens = vec![0; text.len() + 8];
        let room = i32::try_from(tokens.len()).map_err(|_| LlamaError::Tokenize)?;
        let into = tokens.as_mut_ptr();
        // SAFETY: the text has `bytes` bytes, `into` has `room` elements, and the vocabulary lives as long as
        // the model.
        let count =
            unsafe { (self.api.llama_tokenize)(self.vocab, text.as_ptr(), bytes, into, room, true, special) };
        // A negative count is the number of tokens that are needed.
        tokens.truncate(usize::try_from(count).map_err(|_| LlamaError::Tokenize)?);
        Ok(tokens)
    }

    /// Returns the bytes of a token, which are empty for special tokens.
    pub fn piece(&self, token: i32) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        loop {
            let room = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
            let into = bytes.as_mut_ptr();
            // SAFETY: `into` has `room` bytes; a token that does not exist has no piece.
            let count = unsafe { (self.api.llama_token_to_piece)(self.vocab, token, into, room, 0, false) };
            match usize::try_from(count) {
                Ok(count) => {
                    bytes.truncate(count);
                    return bytes;
                }
                // The negated count is the number of bytes that are needed.
                Err(_) => bytes.resize(count.unsigned_abs() as usize, 0),
            }
        }
    }

    /// Returns whether a token ends a text.
    pub fn is_end(&self, token: i32) -> bool {
        // SAFETY: the vocabulary lives as long as the model.
        unsafe { (self.api.llama_vocab_is_eog)(self.vocab, token) }
    }

    /// Returns a user's `question`, formatted with the model's chat template.
    pub fn chat(&self, question: &str) -> Result<String, LlamaError> {
        let content = CString::new(question).map_err(|_| LlamaError::Zero(question.to_owned()))?;
        let message = ChatMessage { role: c"user".as_ptr(), content: content.as_ptr() };
        // SAFETY: the model is alive; null asks for the default template.
        let template = unsafe { (self.api.llama_model_chat_template)(self.raw, ptr::null()) };
        if template.is_null() {
            return Err(LlamaError::Template);
        }
        let mut bytes = vec![0; 256 + 2 * question.len()];
        loop {
            let room = i32::try_from(bytes.len()).map_err(|_| LlamaError::Template)?;
            let into = bytes.as_mut_ptr();
            // SAFETY: one message of two zero-ended strings that live through the call, and `room` bytes.
            let count = unsafe {
                (self.api.llama_chat_apply_template)(template, &raw const message, 1, true, into, room)
            };
            let count = usize::try_from(count).map_err(|_| LlamaError::Template)?;
            if count <= bytes.len() {
                bytes.truncate(count);
                return String::from_utf8(bytes).map_err(|_| LlamaError::Template);
            }
            bytes.resize(count, 0);
        }
    }
}

/// A context, which stores keys and values of the tokens decoded so far, as one sequence.
#[derive(Debug)]
pub struct Context<'a> {
    api: &'static Api,
    raw: Opaque,
    vocab: usize,
    _model: PhantomData<&'a Model>,
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: the context is alive, and so is its model, which this value borrows.
        unsafe { (self.api.llama_free)(self.raw) };
    }
}

impl<'a> Context<'a> {
    pub(super) fn new(model: &'a Model, params: ContextParams) -> Result<Self, LlamaError> {
        // SAFETY: the model is alive; the structure was found to be the library's, and its pointers are null.
        let raw = unsafe { (model.api.llama_init_from_model)(model.raw, params) };
        if raw.is_null() {
            return Err(LlamaError::Context);
        }
        Ok(Self { api: model.api, raw, vocab: model.vocab(), _model: PhantomData })
    }

    /// Decodes `tokens` as one batch after the earlier ones. Afterwards [`Context::logits`] returns those of
    /// the last token.
    pub fn decode(&mut self, tokens: &[i32]) -> Result<(), LlamaError> {
        let failed = |status| LlamaError::Decode { tokens: tokens.len(), status };
        let batch = Batch {
            n_tokens: i32::try_from(tokens.len()).map_err(|_| failed(-1))?,
            token: tokens.as_ptr(),
            embd: ptr::null(),
            pos: ptr::null(),
            n_seq_id: ptr::null(),
            seq_id: ptr::null(),
            logits: ptr::null(),
        };
        // SAFETY: the context is alive; the batch's tokens outlive the call, which copies them; null arrays
        // have the meaning that the header gives them; tokens that do not exist are refused.
        let status = unsafe { (self.api.llama_decode)(self.raw, batch) };
        if status == 0 { Ok(()) } else { Err(failed(status)) }
    }

    /// Waits for the raw logits after the last token and returns them, one for each token of the vocabulary.
    pub fn logits(&mut self) -> Result<&[f32], LlamaError> {
        // SAFETY: the context is alive; -1 is the last output.
        let logits = unsafe { (self.api.llama_get_logits_ith)(self.raw, -1) };
        if logits.is_null() {
            return Err(LlamaError::Logits);
        }
        // SAFETY: a row has a float for each token and stays until the next decode, for which the context
        // must be borrowed again.
        Ok(unsafe { std::slice::from_raw_parts(logits, self.vocab) })
    }

    /// Removes all tokens from the context.
    pub fn clear(&mut self) {
        // SAFETY: the context is alive.
        let memory = unsafe { (self.api.llama_get_memory)(self.raw) };
        // SAFETY: the memory is the context's. Its buffers keep their bytes, which nothing refers to any
        // more.
        unsafe { (self.api.llama_memory_clear)(memory, false) };
    }
}
