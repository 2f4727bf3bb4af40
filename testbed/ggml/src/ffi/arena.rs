//! Memory of tensors, in three steps with a type each: an [`Arena`] owns the memory of the nodes, a
//! [`Builder`] adds nodes, and [`Placed`] has allocated all of them on one backend.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::backend::Backend;
use super::error::FfiError;
use super::kinds::Type;
use super::library::{Ggml, text};
use super::raw::{DIMENSIONS, InitParams, RawTensor};

/// Maximum number of tensors in an arena.
const TENSORS: usize = 1024;
/// Maximum number of nodes in a graph.
const NODES: usize = 2048;

/// Owner of a `struct ggml_context`, which holds the nodes but not their elements.
pub struct Arena {
    ggml: &'static Ggml,
    raw: NonNull<std::ffi::c_void>,
}

impl Arena {
    /// Creates an arena with no tensor in it.
    pub fn new(ggml: &'static Ggml) -> Result<Self, FfiError> {
        // SAFETY: the call only computes.
        let tensor = unsafe { (ggml.functions.ggml_tensor_overhead)() };
        // SAFETY: as above.
        let graph = unsafe { (ggml.functions.ggml_graph_overhead_custom)(NODES, false) };
        let params =
            InitParams { mem_size: tensor * TENSORS + graph, mem_buffer: ptr::null_mut(), no_alloc: true };
        // SAFETY: GGML allocates the memory itself, for the buffer is null.
        let raw = unsafe { (ggml.functions.ggml_init)(params) };
        Ok(Self { ggml, raw: NonNull::new(raw).ok_or(FfiError::Null("ggml_init"))? })
    }

    /// Starts a graph. Only one builder exists at a time, and the arena stays borrowed while its tensors are
    /// placed.
    pub fn build(&mut self) -> Builder<'_> {
        Builder { ggml: self.ggml, context: self.raw, life: PhantomData }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: every tensor, builder and placed buffer borrowed the arena, so none is left.
        unsafe { (self.ggml.functions.ggml_free)(self.raw.as_ptr()) };
    }
}

/// Type, sizes and strides of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Type of the elements.
    pub kind: Type,
    /// Number of elements in each dimension.
    pub ne: [i64; DIMENSIONS],
    /// Stride of each dimension in bytes; in dimension 0, from one block to the next.
    pub nb: [usize; DIMENSIONS],
}

/// Handle of a node or leaf of a graph. Copies refer to the same tensor.
#[derive(Clone, Copy)]
pub struct Tensor<'c> {
    pub(super) raw: NonNull<RawTensor>,
    /// Context of the arena that owns the tensor, to detect tensors of other arenas.
    pub(super) context: NonNull<std::ffi::c_void>,
    shape: Shape,
    life: PhantomData<&'c Arena>,
}

impl Tensor<'_> {
    /// Returns type, sizes and strides, which never change.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the number of elements in each dimension.
    pub const fn ne(&self) -> [i64; DIMENSIONS] {
        self.shape.ne
    }

    /// Returns the stride of each dimension in bytes.
    pub const fn nb(&self) -> [usize; DIMENSIONS] {
        self.shape.nb
    }
}

/// Adds tensors to an arena. The operations are defined in `nodes`.
pub struct Builder<'c> {
    pub(super) ggml: &'static Ggml,
    pub(super) context: NonNull<std::ffi::c_void>,
    life: PhantomData<&'c mut Arena>,
}

impl<'c> Builder<'c> {
    /// Returns the library that the builder calls.
    pub const fn ggml(&self) -> &'static Ggml {
        self.ggml
    }

    /// Wraps a tensor that GGML just created in this context.
    pub(super) fn adopt(&self, raw: *mut RawTensor) -> Tensor<'c> {
        let raw = NonNull::new(raw).expect("GGML ends the process when an arena is full, it returns no null");
        // SAFETY: GGML made the tensor in this arena, which lives for 'c, and nothing writes to it meanwhile.
        let tensor = unsafe { raw.as_ref() };
        let kind =
            Type::from_raw(tensor.kind).expect("operations yield types that they were given, or F32, I32");
        let shape = Shape { kind, ne: tensor.ne, nb: tensor.nb };
        Tensor { raw, context: self.context, shape, life: PhantomData }
    }

    /// Returns the raw pointer of a tensor. Panics if the tensor belongs to another arena.
    pub(super) fn own(&self, tensor: Tensor<'_>) -> *mut RawTensor {
        assert!(tensor.context == self.context, "the tensor is of another arena");
        tensor.raw.as_ptr()
    }

    /// Returns all tensors of the context in the order of their creation.
    fn tensors(&self) -> impl Iterator<Item = *mut RawTensor> {
        let functions = &self.ggml.functions;
        // SAFETY: the context lives as long as the builder.
        let first = unsafe { (functions.ggml_get_first_tensor)(self.context.as_ptr()) };
        let next = move |tensor: &*mut RawTensor| {
            // SAFETY: `tensor` is one of the context's.
            let next = unsafe { (functions.ggml_get_next_tensor)(self.context.as_ptr(), *tensor) };
            (!next.is_null()).then_some(next)
        };
        std::iter::successors((!first.is_null()).then_some(first), next)
    }

    /// Returns GGML's names of the operations that a backend does not support.
    pub fn refused_by(&self, backend: &Backend) -> Vec<String> {
        let functions = &self.ggml.functions;
        let mut refused = Vec::new();
        for tensor in self.tensors() {
            // SAFETY: backend and tensor are live; the backend only looks at them.
            if unsafe { (functions.ggml_backend_supports_op)(backend.raw.as_ptr(), tensor) } {
                continue;
            }
            // SAFETY: the tensor is live; the name is GGML's constant.
            refused.push(text(unsafe { (functions.ggml_op_desc)(tensor) }));
        }
        refused
    }

    /// Allocates every tensor on a backend and builds the graph that computes `outputs`. No node can be added
    /// afterwards.
    pub fn place<'b>(self, backend: &'b Backend, outputs: &[Tensor<'c>]) -> Result<Placed<'b, 'c>, FfiError> {
        let functions = &self.ggml.functions;
        let context = self.context;
        // SAFETY: the context lives for 'c.
        let graph = unsafe { (functions.ggml_new_graph_custom)(context.as_ptr(), NODES, false) };
        let graph = NonNull::new(graph).ok_or(FfiError::Null("ggml_new_graph_custom"))?;
        for output in outputs {
            let output = self.own(*output);
            // SAFETY: graph and tensor are of this context.
            unsafe { (functions.ggml_build_forward_expand)(graph.as_ptr(), output) };
        }
        // SAFETY: context and backend are live; no tensor of the context has memory yet.
        let buffer =
            unsafe { (functions.ggml_backend_alloc_ctx_tensors)(context.as_ptr(), backend.raw.as_ptr()) };
        let buffer = NonNull::new(buffer).ok_or(FfiError::Null("ggml_backend_alloc_ctx_tensors"))?;
        Ok(Placed { backend, context, graph, buffer, life: PhantomData })
    }
}

/// Tensors that are allocated on a backend, together with their graph.
pub struct Placed<'b, 'c> {
    backend: &'b Backend,
    context: NonNull<std::ffi::c_void>,
    graph: NonNull<std::ffi::c_void>,
    buffer: NonNull<std::ffi::c_void>,
    life: PhantomData<&'c mut Arena>,
}

impl Placed<'_, '_> {
    /// Returns the number of bytes from the first element of a tensor to the end of the last.
    fn bytes(&self, tensor: Tensor<'_>) -> Result<usize, FfiError> {
        if tensor.context != self.context {
            return Err(FfiError::Stranger);
        }
        // SAFETY: the tensor is of the context that is placed here.
        Ok(unsafe { (self.backend.ggml.functions.ggml_nbytes)(tensor.raw.as_ptr()) })
    }

    /// Writes all elements of a tensor. `bytes` must have the tensor's exact length.
    pub fn set(&self, tensor: Tensor<'_>, bytes: &[u8]) -> Result<(), FfiError> {
        let wanted = self.bytes(tensor)?;
        if bytes.len() != wanted {
            return Err(FfiError::Length { given: bytes.len(), wanted });
        }
        let set = self.backend.ggml.functions.ggml_backend_tensor_set;
        // SAFETY: the tensor has memory, of as many bytes as are written.
        unsafe { set(tensor.raw.as_ptr(), bytes.as_ptr().cast(), 0, wanted) };
        Ok(())
    }

    /// Reads all bytes that a tensor spans. Those of a view include the gaps between its rows.
    pub fn get(&self, tensor: Tensor<'_>) -> Result<Vec<u8>, FfiError> {
        let mut bytes = vec![0; self.bytes(tensor)?];
        let get = self.backend.ggml.functions.ggml_backend_tensor_get;
        // SAFETY: the tensor has memory, of as many bytes as are read.
        unsafe { get(tensor.raw.as_ptr(), bytes.as_mut_ptr().cast(), 0, bytes.len()) };
        Ok(bytes)
    }

    /// Computes the graph and waits until it has completed.
    pub fn compute(&self) -> Result<(), FfiError> {
        let compute = self.backend.ggml.functions.ggml_backend_graph_compute;
        // SAFETY: the graph's tensors are of the context, all of which has memory on this backend.
        let status = unsafe { compute(self.backend.raw.as_ptr(), self.graph.as_ptr()) };
        if status == 0 { Ok(()) } else { Err(FfiError::Compute(status)) }
    }
}

impl Drop for Placed<'_, '_> {
    fn drop(&mut self) {
        // SAFETY: the buffer is live; its tensors are reached through this value alone.
        unsafe { (self.backend.ggml.functions.ggml_backend_buffer_free)(self.buffer.as_ptr()) };
    }
}
