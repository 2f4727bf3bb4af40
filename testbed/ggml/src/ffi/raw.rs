//! C types of ggml.h, ggml-backend.h and ggml-alloc.h, and the table of the functions that this crate calls.

use std::ffi::{c_char, c_int, c_void};

use libloading::os::unix::Library;

use super::error::FfiError;

/// Number of dimensions of every tensor (`GGML_MAX_DIMS`).
pub const DIMENSIONS: usize = 4;

/// `struct ggml_init_params` of ggml.h.
#[repr(C)]
pub struct InitParams {
    pub mem_size: usize,
    pub mem_buffer: *mut c_void,
    pub no_alloc: bool,
}

/// `struct ggml_tensor` of ggml.h.
#[repr(C)]
pub struct RawTensor {
    pub kind: c_int,
    pub buffer: *mut c_void,
    pub ne: [i64; DIMENSIONS],
    pub nb: [usize; DIMENSIONS],
    pub op: c_int,
    pub op_params: [i32; 16],
    pub flags: i32,
    pub src: [*mut Self; 10],
    pub view_src: *mut Self,
    pub view_offs: usize,
    pub data: *mut c_void,
    pub name: [c_char; 64],
    pub extra: *mut c_void,
    pub padding: [u8; 8],
}

/// Size in bytes of `struct ggml_object`, which `ggml_tensor_overhead` adds to that of a tensor.
pub const OBJECT_SIZE: usize = 32;

/// `struct ggml_type_traits` of ggml.h.
#[repr(C)]
pub struct TypeTraits {
    pub name: *const c_char,
    pub block: i64,
    pub block_interleave: i64,
    pub size: usize,
    pub quantized: bool,
    pub to_float: Option<unsafe extern "C" fn(*const c_void, *mut f32, i64)>,
    pub from_float_ref: Option<unsafe extern "C" fn(*const f32, *mut c_void, i64)>,
}

/// Opaque pointer to a `struct ggml_context`.
pub type ContextPtr = *mut c_void;
/// `ggml_backend_t`, an opaque pointer.
pub type BackendPtr = *mut c_void;
/// `ggml_backend_buffer_t`, an opaque pointer.
pub type BufferPtr = *mut c_void;
/// Opaque pointer to a `struct ggml_cgraph`.
pub type GraphPtr = *mut c_void;
/// Pointer to a `struct ggml_tensor`.
pub type TensorPtr = *mut RawTensor;

/// Signature of `ggml_backend_set_n_threads_t`, which a registry returns by name.
pub type SetThreads = unsafe extern "C" fn(BackendPtr, c_int);
/// Signature of `ggml_backend_score_t`, which rates how well a variant of the CPU backend suits this CPU; 0
/// means that it cannot run.
pub type Score = unsafe extern "C" fn() -> c_int;

macro_rules! functions {
    ($( $name:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?; )*) => {
        /// Functions of libggml and libggml-base, named as in C.
        pub struct Functions { $( pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?, )* }

        impl Functions {
            /// Resolves all functions.
            ///
            /// # Safety
            /// `library` must be GGML of the version whose headers the types here are taken from.
            pub unsafe fn load(library: &Library) -> Result<Self, FfiError> {
                Ok(Self { $( $name: {
                    // SAFETY: the caller says that the library is GGML's, whose headers declare this type.
                    let symbol = unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(stringify!($name))
                    };
                    *symbol.map_err(|source| FfiError::Symbol { name: stringify!($name), source })?
                }, )* })
            }
        }
    };
}

functions! {
    ggml_version: fn() -> *const c_char;
    ggml_tensor_overhead: fn() -> usize;
    ggml_graph_overhead_custom: fn(usize, bool) -> usize;
    ggml_get_type_traits: fn(c_int) -> *const TypeTraits;
    ggml_row_size: fn(c_int, i64) -> usize;
    ggml_nbytes: fn(*const RawTensor) -> usize;
    ggml_op_desc: fn(*const RawTensor) -> *const c_char;
    ggml_quantize_requires_imatrix: fn(c_int) -> bool;
    ggml_quantize_chunk: fn(c_int, *const f32, *mut c_void, i64, i64, i64, *const f32) -> usize;

    ggml_init: fn(InitParams) -> ContextPtr;
    ggml_free: fn(ContextPtr);
    ggml_get_first_tensor: fn(ContextPtr) -> TensorPtr;
    ggml_get_next_tensor: fn(ContextPtr, TensorPtr) -> TensorPtr;
    ggml_new_graph_custom: fn(ContextPtr, usize, bool) -> GraphPtr;
    ggml_build_forward_expand: fn(GraphPtr, TensorPtr);

    ggml_backend_load: fn(*const c_char) -> *mut c_void;
    ggml_backend_reg_dev_count: fn(*mut c_void) -> usize;
    ggml_backend_reg_dev_get: fn(*mut c_void, usize) -> *mut c_void;
    ggml_backend_reg_get_proc_address: fn(*mut c_void, *const c_char) -> *mut c_void;
    ggml_backend_dev_description: fn(*mut c_void) -> *const c_char;
    ggml_backend_dev_init: fn(*mut c_void, *const c_char) -> BackendPtr;
    ggml_backend_free: fn(BackendPtr);
    ggml_backend_supports_op: fn(BackendPtr, *const RawTensor) -> bool;
    ggml_backend_graph_compute: fn(BackendPtr, GraphPtr) -> c_int;
    ggml_backend_alloc_ctx_tensors: fn(ContextPtr, BackendPtr) -> BufferPtr;
    ggml_backend_buffer_free: fn(BufferPtr);
    ggml_backend_tensor_set: fn(TensorPtr, *const c_void, usize, usize);
    ggml_backend_tensor_get: fn(*const RawTensor, *mut c_void, usize, usize);

    ggml_soft_max_add_sinks: fn(TensorPtr, TensorPtr);
    ggml_flash_attn_ext_add_sinks: fn(TensorPtr, TensorPtr);
    ggml_prec_set_acc: fn(TensorPtr, c_int) -> bool;
    ggml_rope_multi: fn(
        ContextPtr, TensorPtr, TensorPtr, TensorPtr, c_int, *mut c_int, c_int, c_int,
        f32, f32, f32, f32, f32, f32,
    ) -> TensorPtr;
}
