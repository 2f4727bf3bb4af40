//! Contexts, and which of them is current in each thread.

use std::collections::HashMap;
use std::thread::{self, ThreadId};

use vgpu_abi::CUresult;

use crate::handle::{HandleKind, Handles};
use crate::rule::{CallRefusal, CallResult, Rule};

/// Device memory that a context takes, in bytes.
pub const CONTEXT_BYTES: u64 = 256 << 20;

#[derive(Debug)]
pub struct ContextState {
    /// Error by which the context was lost.
    pub fault: Option<CUresult>,
}

#[derive(Debug)]
struct ThreadState {
    ordinal: u32,
    /// Stack of contexts. The last is current.
    stack: Vec<usize>,
}

#[derive(Debug)]
pub struct Contexts {
    contexts: Handles<ContextState>,
    threads: HashMap<ThreadId, ThreadState>,
}

impl Contexts {
    pub fn new() -> Self {
        let contexts = Handles::answering(HandleKind::Context, Rule::UnknownContext, Rule::DestroyedContext);
        Self { contexts, threads: HashMap::new() }
    }

    fn thread(&mut self) -> &mut ThreadState {
        let ordinal = self.threads.len() as u32;
        let new = || ThreadState { ordinal, stack: Vec::new() };
        self.threads.entry(thread::current().id()).or_insert_with(new)
    }

    /// Returns the number of the calling thread, in the order of the threads' first calls.
    pub fn ordinal(&mut self) -> u32 {
        self.thread().ordinal
    }

    /// Returns the current context of the calling thread, even if it was destroyed.
    pub fn top(&mut self) -> Option<usize> {
        self.thread().stack.last().copied().filter(|&context| context != 0)
    }

    /// Returns the current context of the calling thread, which must be neither destroyed nor lost.
    pub fn current(&mut self) -> CallResult<usize> {
        let context = self.top().ok_or(Rule::NoContext)?;
        match self.contexts.get(context)?.fault {
            Some(status) => Err(CallRefusal::Expected(status)),
            None => Ok(context),
        }
    }

    pub fn get(&self, context: usize) -> CallResult<&ContextState> {
        self.contexts.get(context)
    }

    pub fn get_mut(&mut self, context: usize) -> CallResult<&mut ContextState> {
        self.contexts.get_mut(context)
    }

    /// Adds a context that is not current in any thread.
    pub fn add(&mut self) -> usize {
        self.contexts.add(ContextState { fault: None })
    }

    /// Carries out `cuCtxPushCurrent`.
    pub fn push(&mut self, context: usize) -> CallResult {
        self.contexts.get(context)?;
        self.thread().stack.push(context);
        Ok(())
    }

    /// Carries out `cuCtxSetCurrent`. It replaces the top of the stack, or removes it for a null context.
    pub fn set(&mut self, context: usize) -> CallResult {
        if context != 0 {
            self.contexts.get(context)?;
        }
        let stack = &mut self.thread().stack;
        stack.pop();
        if context != 0 {
            stack.push(context);
        }
        Ok(())
    }

    /// Carries out `cuCtxDestroy`. Also pops the context if it is current in the calling thread.
    pub fn destroy(&mut self, context: usize) -> CallResult<ContextState> {
        self.contexts.get(context)?;
        let here = thread::current().id();
        let elsewhere =
            |(id, thread): (&ThreadId, &ThreadState)| *id != here && thread.stack.contains(&context);
        if self.threads.iter().any(elsewhere) {
            return Err(Rule::CurrentElsewhere.into());
        }
        if self.top() == Some(context) {
            self.thread().stack.pop();
        }
        self.contexts.remove(context)
    }
}
