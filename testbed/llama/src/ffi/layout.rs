//! Structures of llama.h 0.5.0 that are passed by value, and the defaults that the library fills in.
//!
//! C's `bool` is a byte here: what comes from the library may be any byte until it is checked.

use std::ffi::c_void;
use std::ptr;

/// Version of llama.cpp whose headers declare these structures.
pub const VERSION: &str = "0.5.0";

/// `struct llama_model_params` of llama.h.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
#[allow(missing_docs, reason = "llama.h says it")]
pub struct ModelParams {
    pub devices: *const c_void,
    pub tensor_buft_overrides: *const c_void,
    /// Number of layers on the GPU; negative means all.
    pub n_gpu_layers: i32,
    pub split_mode: i32,
    pub load_mode: i32,
    pub lazy_mode: i32,
    pub main_gpu: i32,
    pub tensor_split: *const f32,
    pub progress_callback: *const c_void,
    pub progress_callback_user_data: *const c_void,
    pub kv_overrides: *const c_void,
    pub vocab_only: u8,
    pub check_tensors: u8,
    pub use_extra_bufts: u8,
    pub no_host: u8,
    pub no_alloc: u8,
    pub load_mtp: u8,
}

impl ModelParams {
    /// Values that `llama_model_default_params` returns in this version, for comparison.
    pub const DEFAULT: Self = Self {
        devices: ptr::null(),
        tensor_buft_overrides: ptr::null(),
        n_gpu_layers: -1,
        split_mode: 1,
        load_mode: -1,
        lazy_mode: 1,
        main_gpu: 0,
        tensor_split: ptr::null(),
        progress_callback: ptr::null(),
        progress_callback_user_data: ptr::null(),
        kv_overrides: ptr::null(),
        vocab_only: 0,
        check_tensors: 0,
        use_extra_bufts: 1,
        no_host: 0,
        no_alloc: 0,
        load_mtp: 0,
    };
}

/// `struct llama_model_quantize_params` of llama.h.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
#[allow(missing_docs, reason = "llama.h says it")]
pub struct QuantizeParams {
    pub nthread: i32,
    /// Value of `enum llama_ftype`: the encoding of the weights.
    pub ftype: i32,
    pub output_tensor_type: i32,
    pub token_embedding_type: i32,
    pub allow_requantize: u8,
    pub quantize_output_tensor: u8,
    pub only_copy: u8,
    pub pure: u8,
    pub keep_split: u8,
    pub dry_run: u8,
    pub imatrix: *const c_void,
    pub kv_overrides: *const c_void,
    pub tt_overrides: *const c_void,
    pub prune_layers: *const i32,
    pub max_buf_size: usize,
}

impl QuantizeParams {
    /// Values that `llama_model_quantize_default_params` returns in this version, for comparison.
    pub const DEFAULT: Self = Self {
        nthread: 0,
        ftype: 7,
        output_tensor_type: 43,
        token_embedding_type: 43,
        allow_requantize: 0,
        quantize_output_tensor: 1,
        only_copy: 0,
        pure: 0,
        keep_split: 0,
        dry_run: 0,
        imatrix: ptr::null(),
        kv_overrides: ptr::null(),
        tt_overrides: ptr::null(),
        prune_layers: ptr::null(),
        max_buf_size: 8 << 30,
    };
}

/// `struct llama_context_params` of llama.h.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
#[allow(missing_docs, reason = "llama.h says it")]
pub struct ContextParams {
    pub n_ctx: u32,
    pub n_batch: u32,
    pub n_ubatch: u32,
    pub n_seq_max: u32,
    pub n_rs_seq: u32,
    pub n_outputs_max: u32,
    pub n_outputs_max_per_seq: u32,
    pub n_threads: i32,
    pub n_threads_batch: i32,
    pub ctx_type: i32,
    pub rope_scaling_type: i32,
    pub pooling_type: i32,
    pub attention_type: i32,
    /// Value of `enum llama_flash_attn_type`; -1 leaves the choice to the library.
    pub flash_attn_type: i32,
    pub rope_freq_base: f32,
    pub rope_freq_scale: f32,
    pub yarn_ext_factor: f32,
    pub yarn_attn_factor: f32,
    pub yarn_beta_fast: f32,
    pub yarn_beta_slow: f32,
    pub yarn_orig_ctx: u32,
    pub defrag_thold: f32,
    pub cb_eval: *const c_void,
    pub cb_eval_user_data: *const c_void,
    /// Value of `enum ggml_type` for the keys; 1 means 16-bit floats.
    pub type_k: i32,
    pub type_v: i32,
    pub abort_callback: *const c_void,
    pub abort_callback_data: *const c_void,
    pub embeddings: u8,
    pub offload_kqv: u8,
    pub no_perf: u8,
    pub op_offload: u8,
    pub swa_full: u8,
    pub kv_unified: u8,
    pub samplers: *const c_void,
    pub n_samplers: usize,
    pub ctx_other: *const c_void,
}

impl ContextParams {
    /// Values that `llama_context_default_params` returns in this version, for comparison.
    pub const DEFAULT: Self = Self {
        n_ctx: 512,
        n_batch: 2048,
        n_ubatch: 512,
        n_seq_max: 1,
        n_rs_seq: 0,
        n_outputs_max: 0,
        n_outputs_max_per_seq: 1,
        n_threads: 4,
        n_threads_batch: 4,
        ctx_type: 0,
        rope_scaling_type: -1,
        pooling_type: -1,
        attention_type: -1,
        flash_attn_type: -1,
        rope_freq_base: 0.0,
        rope_freq_scale: 0.0,
        yarn_ext_factor: -1.0,
        yarn_attn_factor: -1.0,
        yarn_beta_fast: -1.0,
        yarn_beta_slow: -1.0,
        yarn_orig_ctx: 0,
        defrag_thold: -1.0,
        cb_eval: ptr::null(),
        cb_eval_user_data: ptr::null(),
        type_k: 1,
        type_v: 1,
        abort_callback: ptr::null(),
        abort_callback_data: ptr::null(),
        embeddings: 0,
        offload_kqv: 1,
        no_perf: 1,
        op_offload: 1,
        swa_full: 1,
        kv_unified: 0,
        samplers: ptr::null(),
        n_samplers: 0,
        ctx_other: ptr::null(),
    };
}

/// `struct llama_batch` of llama.h.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "llama.h says it")]
pub struct Batch {
    pub n_tokens: i32,
    pub token: *const i32,
    pub embd: *const f32,
    /// Positions of the tokens; null if they follow each other.
    pub pos: *const i32,
    pub n_seq_id: *const i32,
    /// Sequences of the tokens; null for sequence 0.
    pub seq_id: *const c_void,
    /// Flags of the tokens whose logits are wanted; null for only the last token.
    pub logits: *const i8,
}

/// `struct llama_chat_message` of llama.h.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "llama.h says it")]
pub struct ChatMessage {
    pub role: *const std::ffi::c_char,
    pub content: *const std::ffi::c_char,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// Sizes and offsets equal those that a C compiler computes on x86-64.
    #[test]
    fn as_the_header_says() {
        assert_eq!((size_of::<ModelParams>(), size_of::<ContextParams>(), size_of::<Batch>()), (80, 160, 56));
        assert_eq!(offset_of!(ModelParams, n_gpu_layers), 16);
        assert_eq!(offset_of!(ModelParams, main_gpu), 32);
        assert_eq!(offset_of!(ModelParams, tensor_split), 40);
        assert_eq!(offset_of!(ModelParams, vocab_only), 72);
        assert_eq!((size_of::<QuantizeParams>(), offset_of!(QuantizeParams, imatrix)), (64, 24));
        assert_eq!(offset_of!(ContextParams, ctx_type), 36);
        assert_eq!(offset_of!(ContextParams, rope_freq_base), 56);
        assert_eq!(offset_of!(ContextParams, cb_eval), 88);
        assert_eq!(offset_of!(ContextParams, type_k), 104);
        assert_eq!(offset_of!(ContextParams, abort_callback), 112);
        assert_eq!(offset_of!(ContextParams, embeddings), 128);
        assert_eq!(offset_of!(ContextParams, samplers), 136);
        assert_eq!(offset_of!(ContextParams, ctx_other), 152);
    }
}
