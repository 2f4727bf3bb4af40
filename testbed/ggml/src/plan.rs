//! A case under construction: a builder that remembers its inputs, and puts a guard behind each.
//!
//! GGML lays tensors out in one buffer in the order of their making. A guard that the device changed is a
//! store beside a tensor, which the buffer's own bounds do not show.

use std::cell::RefCell;
use std::ops::Deref;

use crate::ffi::{Builder, Tensor, Type};
use crate::fill::{Fill, Leaf};

/// Number of elements in a guard.
const GUARD: i64 = 256;

/// A leaf of the graph together with its contents.
#[derive(Clone, Copy)]
pub struct Input<'c> {
    /// The leaf of the graph.
    pub tensor: Tensor<'c>,
    /// Description of the values to upload.
    pub leaf: Leaf,
    /// Whether the input is a guard, whose bytes must not change.
    pub guard: bool,
}

/// Graph to which a case's function adds its nodes. It dereferences to the [`Builder`], which has the
/// operations.
pub struct GraphPlan<'c> {
    builder: Builder<'c>,
    inputs: RefCell<Vec<Input<'c>>>,
}

impl<'c> Deref for GraphPlan<'c> {
    type Target = Builder<'c>;

    fn deref(&self) -> &Builder<'c> {
        &self.builder
    }
}

impl<'c> GraphPlan<'c> {
    /// Creates an empty graph, which starts with a guard.
    pub fn new(builder: Builder<'c>) -> Self {
        let plan = Self { builder, inputs: RefCell::default() };
        plan.guard();
        plan
    }

    fn push(&self, kind: Type, ne: [i64; 4], fill: Fill, guard: bool) -> Tensor<'c> {
        let tensor = self.leaf(kind, ne[0], ne[1], ne[2], ne[3]);
        self.inputs.borrow_mut().push(Input { tensor, leaf: Leaf { kind, ne, fill }, guard });
        tensor
    }

    fn guard(&self) {
        self.push(Type::F32, [GUARD, 1, 1, 1], Fill::Uniform(-1.0, 1.0), true);
    }

    /// Adds an input with these contents and returns its tensor.
    pub fn input(&self, kind: Type, ne: [i64; 4], fill: Fill) -> Tensor<'c> {
        let tensor = self.push(kind, ne, fill, false);
        self.guard();
        tensor
    }

    /// Adds an input of floats between -1 and 1 and returns its tensor.
    pub fn uniform(&self, kind: Type, ne: [i64; 4]) -> Tensor<'c> {
        self.input(kind, ne, Fill::Uniform(-1.0, 1.0))
    }

    /// Adds an input that is `times` as large in each dimension and returns a view of its first part.
    pub fn part(&self, kind: Type, ne: [i64; 4], times: [i64; 4], fill: Fill) -> Tensor<'c> {
        let whole = self.input(kind, std::array::from_fn(|axis| ne[axis] * times[axis]), fill);
        let nb = whole.nb();
        self.view(whole, ne[0], ne[1], ne[2], ne[3], nb[1], nb[2], nb[3], 0)
    }

    /// Adds a tensor of size `ne` with permuted memory: dimension i of the underlying input is the tensor's
    /// dimension `axes[i]`.
    pub fn permuted(&self, kind: Type, ne: [i64; 4], axes: [i32; 4], fill: Fill) -> Tensor<'c> {
        let stored = axes.map(|axis| ne[axis.unsigned_abs() as usize]);
        let input = self.input(kind, stored, fill);
        self.permute(input, axes[0], axes[1], axes[2], axes[3])
    }

    /// Appends a final guard and returns the builder with the inputs in the order of their creation.
    pub fn finish(self) -> (Builder<'c>, Vec<Input<'c>>) {
        self.guard();
        (self.builder, self.inputs.into_inner())
    }
}
