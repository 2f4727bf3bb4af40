//! Handles: numbers that look like pointers. The library knows the kind and age of each, and whether its
//! object still exists.

use crate::rule::{CallResult, Rule};

/// First handle. No address of a program on x86-64 is this large.
const BASE: usize = 0x5ec0_0000_0000_0000;
/// Number of bits that distinguish handles of one kind.
const INDEX_BITS: u32 = 32;
/// Distance of two handles, so that they look aligned.
const STEP: usize = 16;

/// Declares the kinds of handles, with their names in a record.
macro_rules! kinds {
    ($( $(#[$meta:meta])* $name:ident $word:literal; )*) => {
        /// Kind of the object that a handle stands for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum HandleKind { $( $(#[$meta])* $name, )* }

        impl HandleKind {
            const ALL: &'static [Self] = &[ $( Self::$name, )* ];

            const fn word(self) -> &'static str {
                match self { $( Self::$name => $word, )* }
            }
        }
    };
}

kinds! {
    /// A handle of a context, `CUcontext`.
    Context "context";
    /// A handle of a stream, `CUstream`.
    Stream "stream";
    /// A handle of an event, `CUevent`.
    Event "event";
    /// A handle of a module, `CUmodule`.
    Module "module";
    /// A handle of a function, `CUfunction`.
    Function "function";
    /// A handle of a graph, `CUgraph`.
    Graph "graph";
    /// A handle of a node of a graph, `CUgraphNode`.
    Node "node";
    /// A handle of an instantiated graph, `CUgraphExec`.
    Exec "exec";
    /// A handle of physical memory, `CUmemGenericAllocationHandle`.
    Physical "physical";
    /// A handle of cuBLAS, `cublasHandle_t`.
    Blas "blas";
    /// A handle of a link, `CUlinkState`.
    Link "link";
    /// A descriptor of a product, `cublasLtMatmulDesc_t`.
    Product "product";
    /// A descriptor of a matrix, `cublasLtMatrixLayout_t`.
    Layout "layout";
    /// A descriptor of a preference, `cublasLtMatmulPreference_t`.
    Preference "preference";
}

/// Returns the number of a handle among those of its kind, from 0.
pub const fn index(raw: usize) -> usize {
    (raw & ((1 << INDEX_BITS) - 1)) / STEP
}

/// Returns the name of a handle in a record: its kind, and its number in the order of creation, from 1.
pub fn name(raw: usize) -> Option<String> {
    let rest = raw.checked_sub(BASE)?;
    let kind = HandleKind::ALL.get(rest >> INDEX_BITS)?;
    Some(format!("{}#{}", kind.word(), index(raw) + 1))
}

/// Objects of one kind, by handle.
#[derive(Debug)]
pub struct Handles<T> {
    kind: HandleKind,
    /// Rule that is broken by a handle that was never created.
    unknown: Rule,
    /// Rule that is broken by a handle whose object was destroyed.
    destroyed: Rule,
    objects: Vec<Option<T>>,
}

impl<T> Handles<T> {
    pub const fn new(kind: HandleKind) -> Self {
        Self::answering(kind, Rule::UnknownHandle, Rule::DestroyedHandle)
    }

    /// Creates a table whose bad handles break these rules.
    pub const fn answering(kind: HandleKind, unknown: Rule, destroyed: Rule) -> Self {
        Self { kind, unknown, destroyed, objects: Vec::new() }
    }

    /// Adds an object and returns its handle.
    pub fn add(&mut self, object: T) -> usize {
        self.objects.push(Some(object));
        BASE + ((self.kind as usize) << INDEX_BITS) + (self.objects.len() - 1) * STEP
    }

    fn index(&self, raw: usize) -> CallResult<usize> {
        let first = BASE + ((self.kind as usize) << INDEX_BITS);
        let at = raw.checked_sub(first).filter(|at| at % STEP == 0).map(|at| at / STEP);
        Ok(at.filter(|&at| at < self.objects.len()).ok_or(self.unknown)?)
    }

    pub fn get(&self, raw: usize) -> CallResult<&T> {
        Ok(self.objects[self.index(raw)?].as_ref().ok_or(self.destroyed)?)
    }

    pub fn get_mut(&mut self, raw: usize) -> CallResult<&mut T> {
        let (at, destroyed) = (self.index(raw)?, self.destroyed);
        Ok(self.objects[at].as_mut().ok_or(destroyed)?)
    }

    /// Removes the object of a handle.
    pub fn remove(&mut self, raw: usize) -> CallResult<T> {
        let (at, destroyed) = (self.index(raw)?, self.destroyed);
        Ok(self.objects[at].take().ok_or(destroyed)?)
    }

    /// Removes the objects for which `stays` returns false.
    pub fn retain(&mut self, mut stays: impl FnMut(&T) -> bool) {
        for object in &mut self.objects {
            if object.as_ref().is_some_and(|object| !stays(object)) {
                *object = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_numbered_and_told_apart() {
        let mut streams = Handles::new(HandleKind::Stream);
        let mut events = Handles::new(HandleKind::Event);
        let (one, two, event) = (streams.add('a'), streams.add('b'), events.add(()));
        assert_eq!(name(one).as_deref(), Some("stream#1"));
        assert_eq!(name(event).as_deref(), Some("event#1"));
        assert_eq!(name(0x7fff_0000_1000), None);
        assert_eq!(streams.get(two), Ok(&'b'));
        assert_eq!(streams.get(event), Err(Rule::UnknownHandle.into()));
        assert_eq!(streams.get(two + 1), Err(Rule::UnknownHandle.into()));
        assert_eq!(streams.get(two + STEP), Err(Rule::UnknownHandle.into()));
        assert_eq!(streams.remove(one), Ok('a'));
        assert_eq!(streams.remove(one), Err(Rule::DestroyedHandle.into()));
    }
}
