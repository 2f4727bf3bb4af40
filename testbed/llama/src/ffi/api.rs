//! The functions of the libraries, resolved by name.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;

use libloading::os::unix::Library;

use super::error::LlamaError;
use super::layout::{Batch, ChatMessage, ContextParams, ModelParams, QuantizeParams};

/// Pointer to an opaque object of the library.
pub(super) type Opaque = *mut c_void;

/// A returned structure with spare room behind it, so that a longer one of another version overwrites nothing
/// before the mismatch is detected.
#[repr(C)]
pub(super) struct Returned<T> {
    pub(super) value: T,
    room: MaybeUninit<[u8; 512]>,
}

/// Signature of `ggml_log_callback` in ggml.h.
pub(super) type LogCallback = extern "C" fn(c_int, *const c_char, *mut c_void);

/// Handles of the libraries that contain the functions.
pub(super) struct Libraries {
    /// Handle of libggml-base.
    pub(super) base: Library,
    /// Handle of libggml.
    pub(super) ggml: Library,
    /// Handle of libllama.
    pub(super) llama: Library,
}

macro_rules! functions {
    ($( $library:ident: $name:ident($($argument:ty),*) $(-> $result:ty)?; )*) => {
        /// Functions of the libraries, with the types of llama.h and ggml-backend.h.
        pub(super) struct Api {
            $( pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?, )*
            /// Libraries of the functions, which must stay loaded while these can be called.
            _libraries: Libraries,
        }

        impl Api {
            /// Resolves every function of the table, and keeps the libraries loaded.
            pub(super) fn find(libraries: Libraries) -> Result<Self, LlamaError> {
                $(
                    // SAFETY: the field's type is the function's in the header.
                    let $name = unsafe { libraries.$library.get(concat!(stringify!($name), "\0").as_bytes()) };
                    let $name = *$name.map_err(|source| LlamaError::Symbol { name: stringify!($name), source })?;
                )*
                Ok(Self { $( $name, )* _libraries: libraries })
            }
        }
    };
}

functions! {
    base: ggml_backend_dev_name(Opaque) -> *const c_char;
    base: ggml_backend_dev_description(Opaque) -> *const c_char;
    base: ggml_backend_dev_type(Opaque) -> c_int;
    ggml: ggml_backend_dev_count() -> usize;
    ggml: ggml_backend_dev_get(usize) -> Opaque;
    ggml: ggml_backend_load(*const c_char) -> Opaque;
    llama: llama_version() -> *const c_char;
    llama: llama_log_set(LogCallback, *mut c_void);
    llama: llama_backend_init();
    llama: llama_model_default_params() -> Returned<ModelParams>;
    llama: llama_context_default_params() -> Returned<ContextParams>;
    llama: llama_model_quantize_default_params() -> Returned<QuantizeParams>;
    llama: llama_model_quantize(*const c_char, *const c_char, *const QuantizeParams) -> u32;
    llama: llama_model_load_from_file(*const c_char, ModelParams) -> Opaque;
    llama: llama_model_free(Opaque);
    llama: llama_model_get_vocab(Opaque) -> *const c_void;
    llama: llama_model_chat_template(Opaque, *const c_char) -> *const c_char;
    llama: llama_chat_apply_template(*const c_char, *const ChatMessage, usize, bool, *mut u8, i32) -> i32;
    llama: llama_vocab_n_tokens(*const c_void) -> i32;
    llama: llama_vocab_is_eog(*const c_void, i32) -> bool;
    llama: llama_tokenize(*const c_void, *const u8, i32, *mut i32, i32, bool, bool) -> i32;
    llama: llama_token_to_piece(*const c_void, i32, *mut u8, i32, i32, bool) -> i32;
    llama: llama_init_from_model(Opaque, ContextParams) -> Opaque;
    llama: llama_free(Opaque);
    llama: llama_get_memory(Opaque) -> Opaque;
    llama: llama_memory_clear(Opaque, bool);
    llama: llama_decode(Opaque, Batch) -> i32;
    llama: llama_get_logits_ith(Opaque, i32) -> *const f32;
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

/// Copies a string of the library; a null pointer yields `None`.
pub(super) fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the library's strings are zero-ended and live as long as what they belong to: callers pass what
    // they just got.
    let text = unsafe { CStr::from_ptr(pointer) };
    Some(text.to_string_lossy().into_owned())
}
