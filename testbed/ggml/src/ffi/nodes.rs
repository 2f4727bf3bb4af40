//! The operations: each adds one node to an arena. GGML checks the shapes and ends the process at a wrong
//! one.

use std::ffi::c_int;
use std::ptr;
use std::sync::OnceLock;

use libloading::os::unix::Library;

use super::arena::{Builder, Tensor};
use super::error::FfiError;
use super::kinds::Type;
use super::library::Ggml;
use super::raw::{ContextPtr, TensorPtr};

/// Values of `enum ggml_unary_op`, except XIELU, which has parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "GGML's names")]
pub enum Unary {
    Abs = 0,
    Sgn,
    Neg,
    Step,
    Tanh,
    Elu,
    Relu,
    Sigmoid,
    Gelu,
    GeluQuick,
    Silu,
    HardSwish,
    HardSigmoid,
    Exp,
    Expm1,
    Softplus,
    GeluErf,
    Floor = 18,
    Ceil,
    Round,
    Trunc,
}

/// Values of `enum ggml_glu_op` without parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "GGML's names")]
pub enum Glu {
    Reglu = 0,
    Geglu,
    Swiglu,
    GegluErf = 4,
    GegluQuick,
}

/// Values of `enum ggml_sort_order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "GGML's names")]
pub enum Order {
    Ascending = 0,
    Descending,
}

/// Values of `enum ggml_prec`: the type in which a product accumulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "GGML's names")]
pub enum Precision {
    Undefined = 0,
    F32 = 10,
}

/// Parameters of a rotary embedding (`ggml_rope_ext`, `ggml_rope_multi`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Number of rotated elements in a row.
    pub dimensions: c_int,
    /// Value of `GGML_ROPE_TYPE_*`: 0 normal, 2 neox, 8 mrope, 24 vision, 40 imrope.
    pub mode: c_int,
    /// Number of rotated elements for each part of a position, used by the modes with bit 8.
    pub sections: [c_int; 4],
    /// Context length of the model's training, used by YaRN.
    pub trained_context: c_int,
    /// Base of the frequencies.
    pub base: f32,
    /// Scale of the frequencies.
    pub scale: f32,
    /// Strength of YaRN's extrapolation.
    pub extrapolation: f32,
    /// Scale of the magnitude.
    pub magnitude: f32,
}

/// Type of a value that a builder passes to GGML.
trait Argument {
    type C;
    fn c(self, builder: &Builder<'_>) -> Self::C;
}

impl Argument for Tensor<'_> {
    type C = TensorPtr;
    fn c(self, builder: &Builder<'_>) -> TensorPtr {
        builder.own(self)
    }
}

impl Argument for Option<Tensor<'_>> {
    type C = TensorPtr;
    fn c(self, builder: &Builder<'_>) -> TensorPtr {
        self.map_or(ptr::null_mut(), |tensor| builder.own(tensor))
    }
}

macro_rules! plain_arguments {
    ($($plain:ty),*) => { $(
        impl Argument for $plain {
            type C = $plain;
            fn c(self, _: &Builder<'_>) -> $plain {
                self
            }
        }
    )* };
}
plain_arguments!(f32, c_int, i64, usize, bool);

macro_rules! enum_arguments {
    ($($kind:ty),*) => { $(
        impl Argument for $kind {
            type C = c_int;
            fn c(self, _: &Builder<'_>) -> c_int {
                self as c_int
            }
        }
    )* };
}
enum_arguments!(Type, Unary, Glu, Order);

/// Expands to the Rust type of an argument.
macro_rules! rust {
    (tensor) => { Tensor<'_> };
    (optional) => { Option<Tensor<'_>> };
    ($plain:ident) => { $plain };
}

/// Expands to the C type of an argument.
macro_rules! c {
    (tensor) => {
        TensorPtr
    };
    (optional) => {
        TensorPtr
    };
    ($plain:ident) => {
        <$plain as Argument>::C
    };
}

macro_rules! nodes {
    ($( $(#[$doc:meta])* $name:ident($($argument:ident: $kind:ident),*) = $symbol:ident; )*) => {
        /// Functions of GGML that add nodes to a graph.
        struct NodeFunctions {
            $( $name: unsafe extern "C" fn(ContextPtr, $(c!($kind)),*) -> TensorPtr, )*
        }

        impl NodeFunctions {
            /// Resolves all functions.
            ///
            /// # Safety
            /// `library` must be GGML of the version whose headers the declarations here are taken from.
            unsafe fn load(library: &Library) -> Result<Self, FfiError> {
                Ok(Self { $( $name: {
                    // SAFETY: the caller says that the library is GGML's, whose header declares this type.
                    let symbol = unsafe {
                        library.get::<unsafe extern "C" fn(ContextPtr, $(c!($kind)),*) -> TensorPtr>(
                            stringify!($symbol)
                        )
                    };
                    *symbol.map_err(|source| FfiError::Symbol { name: stringify!($symbol), source })?
                }, )* })
            }
        }

        #[allow(clippy::too_many_arguments, reason = "as many as GGML's")]
        impl<'c> Builder<'c> { $(
            $(#[$doc])*
            pub fn $name(&self, $($argument: rust!($kind)),*) -> Tensor<'c> {
                $( let $argument = $argument.c(self); )*
                let function = FUNCTIONS.get().expect("`load` found them").$name;
                // SAFETY: the context and the tensors, which are of it, live; GGML checks their shapes.
                let node = unsafe { function(self.context.as_ptr(), $($argument),*) };
                self.adopt(node)
            }
        )* }
    };
}

/// Node functions, resolved once because GGML is never unloaded.
static FUNCTIONS: OnceLock<NodeFunctions> = OnceLock::new();

/// Resolves the functions that add nodes. This must happen before the first [`Builder`] is used.
pub fn load(ggml: &Ggml) -> Result<(), FfiError> {
    // SAFETY: the library is GGML's, of the version that was compared when it was loaded.
    let functions = unsafe { NodeFunctions::load(&ggml.library) }?;
    // If two threads load it at once, either result will do.
    let _ = FUNCTIONS.set(functions);
    Ok(())
}

nodes! {
    /// Creates a leaf with `ggml_new_tensor_4d`.
    leaf(kind: Type, ne0: i64, ne1: i64, ne2: i64, ne3: i64) = ggml_new_tensor_4d;
    /// Appends a `ggml_view_4d` node; strides and offset are in bytes.
    view(a: tensor, ne0: i64, ne1: i64, ne2: i64, ne3: i64, nb1: usize, nb2: usize, nb3: usize, offset: usize)
        = ggml_view_4d;
    /// Appends a `ggml_reshape_4d` node, which views the same elements with other sizes.
    reshape(a: tensor, ne0: i64, ne1: i64, ne2: i64, ne3: i64) = ggml_reshape_4d;
    /// Appends a `ggml_permute` node: dimension i becomes dimension `axis i`.
    permute(a: tensor, axis0: c_int, axis1: c_int, axis2: c_int, axis3: c_int) = ggml_permute;
    /// Appends a `ggml_transpose` node, which views the tensor with the first two dimensions swapped.
    transpose(a: tensor) = ggml_transpose;

    /// Appends a `ggml_dup` node, which copies the tensor.
    dup(a: tensor) = ggml_dup;
    /// Appends a `ggml_cont` node, which copies the tensor to contiguous memory.
    cont(a: tensor) = ggml_cont;
    /// Appends a `ggml_cpy` node, which copies and converts the elements into `to`.
    cpy(a: tensor, to: tensor) = ggml_cpy;
    /// Appends a `ggml_set` node, which copies `a` and overwrites a view of it with `b`.
    set(a: tensor, b: tensor, nb1: usize, nb2: usize, nb3: usize, offset: usize) = ggml_set;
    /// Appends a `ggml_acc` node, which copies `a` and adds `b` to a view of it.
    acc(a: tensor, b: tensor, nb1: usize, nb2: usize, nb3: usize, offset: usize) = ggml_acc;
    /// Appends a `ggml_get_rows` node, which selects the rows of `a` that `rows` lists.
    get_rows(a: tensor, rows: tensor) = ggml_get_rows;
    /// Appends a `ggml_set_rows` node, which stores the rows of `b` at the indices `rows` of `a`.
    set_rows(a: tensor, b: tensor, rows: tensor) = ggml_set_rows;
    /// Appends a `ggml_concat` node, which joins two tensors along a dimension.
    concat(a: tensor, b: tensor, dimension: c_int) = ggml_concat;
    /// Appends a `ggml_repeat` node, which repeats `a` to the size of `like`.
    repeat(a: tensor, like: tensor) = ggml_repeat;
    /// Appends a `ggml_pad_ext` node, which puts zeros before and after each dimension.
    pad(a: tensor, l0: c_int, r0: c_int, l1: c_int, r1: c_int, l2: c_int, r2: c_int, l3: c_int, r3: c_int)
        = ggml_pad_ext;
    /// Appends a `ggml_roll` node, which rotates the elements along each dimension.
    roll(a: tensor, by0: c_int, by1: c_int, by2: c_int, by3: c_int) = ggml_roll;
    /// Appends a `ggml_diag` node, which puts a vector on the diagonal of a matrix.
    diag(a: tensor) = ggml_diag;
    /// Appends a `ggml_tri` node; `kind` is a value of `enum ggml_tri_type`.
    tri(a: tensor, kind: c_int) = ggml_tri;
    /// Appends a `ggml_fill` node, which sets all elements to a value.
    fill(a: tensor, value: f32) = ggml_fill;
    /// Appends a `ggml_arange` node, which creates a sequence of equidistant numbers.
    arange(start: f32, stop: f32, step: f32) = ggml_arange;

    /// Appends a `ggml_add` node, the sum with broadcast of `b`.
    add(a: tensor, b: tensor) = ggml_add;
    /// Appends a `ggml_sub` node, the difference with broadcast of `b`.
    sub(a: tensor, b: tensor) = ggml_sub;
    /// Appends a `ggml_mul` node, the element-wise product with broadcast of `b`.
    mul(a: tensor, b: tensor) = ggml_mul;
    /// Appends a `ggml_div` node, the element-wise quotient with broadcast of `b`.
    div(a: tensor, b: tensor) = ggml_div;
    /// Appends a `ggml_add_id` node, which adds the rows of `b` that `ids` selects.
    add_id(a: tensor, b: tensor, ids: tensor) = ggml_add_id;
    /// Appends a `ggml_scale_bias` node, which multiplies by a scale and adds a bias.
    scale(a: tensor, scale: f32, bias: f32) = ggml_scale_bias;
    /// Appends a `ggml_clamp` node, which limits elements to a range.
    clamp(a: tensor, min: f32, max: f32) = ggml_clamp;
    /// Appends a `ggml_sqr` node, the square of each element.
    sqr(a: tensor) = ggml_sqr;
    /// Appends a `ggml_sqrt` node, the square root of each element.
    sqrt(a: tensor) = ggml_sqrt;
    /// Appends a `ggml_log` node, the natural logarithm of each element.
    log(a: tensor) = ggml_log;
    /// Appends a `ggml_sin` node, the sine of each element.
    sin(a: tensor) = ggml_sin;
    /// Appends a `ggml_cos` node, the cosine of each element.
    cos(a: tensor) = ggml_cos;
    /// Appends a `ggml_unary` node, which applies a unary function to each element.
    unary(a: tensor, op: Unary) = ggml_unary;
    /// Appends a `ggml_leaky_relu` node, which multiplies negative elements by a slope.
    leaky_relu(a: tensor, slope: f32, inplace: bool) = ggml_leaky_relu;
    /// Appends a `ggml_xielu` node, which applies the activation function xIELU.
    xielu(a: tensor, alpha_n: f32, alpha_p: f32, beta: f32, eps: f32) = ggml_xielu;
    /// Appends a `ggml_glu` node, whose operand contains both halves.
    glu(a: tensor, op: Glu, swapped: bool) = ggml_glu;
    /// Appends a `ggml_glu_split` node, whose halves are separate tensors.
    glu_split(a: tensor, b: tensor, op: Glu) = ggml_glu_split;
    /// Appends a `ggml_swiglu_oai` node, the SwiGLU variant of gpt-oss.
    swiglu_oai(a: tensor, b: tensor, alpha: f32, limit: f32) = ggml_swiglu_oai;
    /// Appends a `ggml_swiglu_clamp` node, a SwiGLU whose operands are clamped.
    swiglu_clamp(a: tensor, b: tensor, limit: f32) = ggml_swiglu_clamp;

    /// Appends a `ggml_norm` node, which gives each row zero mean and unit variance.
    norm(a: tensor, eps: f32) = ggml_norm;
    /// Appends a `ggml_rms_norm` node, which divides each row by its root mean square.
    rms_norm(a: tensor, eps: f32) = ggml_rms_norm;
    /// Appends a `ggml_l2_norm` node, which divides each row by its Euclidean norm.
    l2_norm(a: tensor, eps: f32) = ggml_l2_norm;
    /// Appends a `ggml_group_norm` node, which normalises groups of channels.
    group_norm(a: tensor, groups: c_int, eps: f32) = ggml_group_norm;

    /// Appends a `ggml_sum` node, the sum of all elements.
    sum(a: tensor) = ggml_sum;
    /// Appends a `ggml_sum_rows` node, the sum of each row.
    sum_rows(a: tensor) = ggml_sum_rows;
    /// Appends a `ggml_mean` node, the mean of each row.
    mean(a: tensor) = ggml_mean;
    /// Appends a `ggml_cumsum` node, the cumulative sum along each row.
    cumsum(a: tensor) = ggml_cumsum;
    /// Appends a `ggml_argmax` node, the index of each row's largest element.
    argmax(a: tensor) = ggml_argmax;
    /// Appends a `ggml_count_equal` node, the number of equal elements in two tensors.
    count_equal(a: tensor, b: tensor) = ggml_count_equal;
    /// Appends a `ggml_argsort` node, the indices that sort each row.
    argsort(a: tensor, order: Order) = ggml_argsort;
    /// Appends a `ggml_argsort_top_k` node, which views the first columns of a sort.
    argsort_top_k(a: tensor, k: c_int) = ggml_argsort_top_k;
    /// Appends a `ggml_top_k` node, whose results are in no particular order.
    top_k(a: tensor, k: c_int) = ggml_top_k;

    /// Appends a `ggml_mul_mat` node, a matrix product of the rows of `a` with those of `b`.
    mul_mat(a: tensor, b: tensor) = ggml_mul_mat;
    /// Appends a `ggml_mul_mat_id` node, a matrix product with the matrices of `a` that `ids` selects.
    mul_mat_id(a: tensor, b: tensor, ids: tensor) = ggml_mul_mat_id;
    /// Appends a `ggml_out_prod` node, an outer product.
    out_prod(a: tensor, b: tensor) = ggml_out_prod;
    /// Appends a `ggml_solve_tri` node, which solves a triangular system of equations.
    solve_tri(a: tensor, b: tensor, left: bool, lower: bool, unit: bool) = ggml_solve_tri;

    /// Appends a `ggml_diag_mask_inf` node, which sets elements above a diagonal to minus infinity.
    diag_mask_inf(a: tensor, past: c_int) = ggml_diag_mask_inf;
    /// Appends a `ggml_soft_max_ext` node, a softmax of each row with scale and mask.
    soft_max(a: tensor, mask: optional, scale: f32, max_bias: f32) = ggml_soft_max_ext;
    /// Appends a `ggml_flash_attn_ext` node, attention as one fused operation.
    flash_attn(
        q: tensor, k: tensor, v: tensor, mask: optional, scale: f32, max_bias: f32, softcap: f32
    ) = ggml_flash_attn_ext;
    /// Appends a `ggml_rope_ext` node, a rotary position embedding.
    rope_ext(
        a: tensor, positions: tensor, factors: optional, dimensions: c_int, mode: c_int, context: c_int,
        base: f32, scale: f32, extrapolation: f32, magnitude: f32, fast: f32, slow: f32
    ) = ggml_rope_ext;

    /// Appends a `ggml_ssm_conv` node, the convolution of Mamba.
    ssm_conv(x: tensor, kernel: tensor) = ggml_ssm_conv;
    /// Appends a `ggml_ssm_scan` node, the recurrence of Mamba.
    ssm_scan(s: tensor, x: tensor, dt: tensor, a: tensor, b: tensor, c: tensor, ids: tensor, snapshots: i64)
        = ggml_ssm_scan;
    /// Appends a `ggml_rwkv_wkv6` node, the recurrence of RWKV 6.
    rwkv_wkv6(k: tensor, v: tensor, r: tensor, tf: tensor, td: tensor, state: tensor) = ggml_rwkv_wkv6;
    /// Appends a `ggml_rwkv_wkv7` node, the recurrence of RWKV 7.
    rwkv_wkv7(r: tensor, w: tensor, k: tensor, v: tensor, a: tensor, b: tensor, state: tensor)
        = ggml_rwkv_wkv7;
    /// Appends a `ggml_gated_linear_attn` node, the recurrence of gated linear attention.
    gated_linear_attn(k: tensor, v: tensor, q: tensor, g: tensor, state: tensor, scale: f32)
        = ggml_gated_linear_attn;
    /// Appends a `ggml_gated_delta_net` node, the recurrence of gated delta networks.
    gated_delta_net(
        q: tensor, k: tensor, v: tensor, g: tensor, beta: tensor, state: tensor, snapshots: i64
    ) = ggml_gated_delta_net;
    /// Appends a `ggml_lightning_indexer` node, which scores keys for sparse attention.
    lightning_indexer(q: tensor, k: tensor, weights: tensor, mask: tensor) = ggml_lightning_indexer;
    /// Appends a `ggml_dsv4_hc_comb` node, a step of DeepSeek 4's hyper-connections.
    dsv4_hc_comb(mixes: tensor, scale: tensor, base: tensor, eps: f32, iterations: c_int) = ggml_dsv4_hc_comb;
    /// Appends a `ggml_dsv4_hc_pre` node, a step of DeepSeek 4's hyper-connections.
    dsv4_hc_pre(x: tensor, weights: tensor) = ggml_dsv4_hc_pre;
    /// Appends a `ggml_dsv4_hc_pre_gated` node, a gated step of DeepSeek 4's hyper-connections.
    dsv4_hc_pre_gated(x: tensor, gate: tensor, scale: f32) = ggml_dsv4_hc_pre_gated;
    /// Appends a `ggml_dsv4_hc_post` node, the last step of DeepSeek 4's hyper-connections.
    dsv4_hc_post(x: tensor, residual: tensor, post: tensor, comb: optional) = ggml_dsv4_hc_post;
}

impl<'c> Builder<'c> {
    /// Appends a rotary embedding: `ggml_rope_ext`, or `ggml_rope_multi` for the modes whose positions have
    /// parts.
    pub fn rope(
        &self,
        a: Tensor<'_>,
        positions: Tensor<'_>,
        factors: Option<Tensor<'_>>,
        rope: Rope,
    ) -> Tensor<'c> {
        const IN_PARTS: c_int = 8;
        const BETA: f32 = 1.0;
        let Rope { dimensions, mode, mut sections, trained_context, base, scale, extrapolation, magnitude } =
            rope;
        if mode & IN_PARTS == 0 {
            return self.rope_ext(
                a,
                positions,
                factors,
                dimensions,
                mode,
                trained_context,
                base,
                scale,
                extrapolation,
                magnitude,
                BETA,
                BETA,
            );
        }
        let rope_multi = self.ggml.functions.ggml_rope_multi;
        let (a, positions, factors) = (a.c(self), positions.c(self), factors.c(self));
        // SAFETY: the context and the tensors, which are of it, live; the sections are four numbers that GGML
        // copies.
        let node = unsafe {
            rope_multi(
                self.context.as_ptr(),
                a,
                positions,
                factors,
                dimensions,
                sections.as_mut_ptr(),
                mode,
                trained_context,
                base,
                scale,
                extrapolation,
                magnitude,
                BETA,
                BETA,
            )
        };
        self.adopt(node)
    }

    /// Sets the sinks of a softmax node with `ggml_soft_max_add_sinks`.
    pub fn soft_max_sinks(&self, node: Tensor<'_>, sinks: Tensor<'_>) {
        let (node, sinks) = (self.own(node), self.own(sinks));
        // SAFETY: both live; GGML checks the shapes.
        unsafe { (self.ggml.functions.ggml_soft_max_add_sinks)(node, sinks) };
    }

    /// Sets the sinks of an attention node with `ggml_flash_attn_ext_add_sinks`.
    pub fn flash_attn_sinks(&self, node: Tensor<'_>, sinks: Tensor<'_>) {
        let (node, sinks) = (self.own(node), self.own(sinks));
        // SAFETY: both live; GGML checks the shapes.
        unsafe { (self.ggml.functions.ggml_flash_attn_ext_add_sinks)(node, sinks) };
    }

    /// Sets the precision in which a node accumulates with `ggml_prec_set_acc`.
    pub fn accumulate_in(&self, node: Tensor<'_>, precision: Precision) {
        let node = self.own(node);
        // SAFETY: the node lives.
        let taken = unsafe { (self.ggml.functions.ggml_prec_set_acc)(node, precision as c_int) };
        assert!(taken, "the operation has an accumulator");
    }
}
