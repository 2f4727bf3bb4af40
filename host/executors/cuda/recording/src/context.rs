//! Contexts, and which of them is current in which thread.

use std::collections::HashMap;
use std::thread::{self, ThreadId};

use vgpu_abi::CUresult;

use crate::handle::{Handles, Kind};
use crate::rule::{Answer, Refusal, Rule};

/// A context.
#[derive(Debug)]
pub struct Context {
    /// Ordinal of its device.
    pub device: i32,
    /// The error that it was lost by.
    pub fault: Option<CUresult>,
}

/// A thread of the program.
#[derive(Debug)]
struct Thread {
    ordinal: u32,
    /// The current context is the last; null contexts are there too.
    stack: Vec<usize>,
}

/// All contexts and threads.
#[derive(Debug)]
pub struct Contexts {
    contexts: Handles<Context>,
    threads: HashMap<ThreadId, Thread>,
}

impl Contexts {
    /// No context is current anywhere.
    pub fn new() -> Self {
        let contexts = Handles::answering(Kind::Context, Rule::UnknownContext, Rule::DestroyedContext);
        Self { contexts, threads: HashMap::new() }
    }

    fn thread(&mut self) -> &mut Thread {
        let ordinal = self.threads.len() as u32;
        let new = || Thread { ordinal, stack: Vec::new() };
        self.threads.entry(thread::current().id()).or_insert_with(new)
    }

    /// Number of the calling thread, in the order of first calls.
    pub fn ordinal(&mut self) -> u32 {
        self.thread().ordinal
    }

    /// The calling thread's current context, if it has one, alive or not.
    pub fn top(&mut self) -> Option<usize> {
        self.thread().stack.last().copied().filter(|&context| context != 0)
    }

    /// The calling thread's current context: alive, and not lost.
    pub fn current(&mut self) -> Answer<usize> {
        let context = self.top().ok_or(Rule::NoContext)?;
        match self.contexts.get(context)?.fault {
            Some(status) => Err(Refusal::Expected(status)),
            None => Ok(context),
        }
    }

    /// A context.
    pub fn get(&self, context: usize) -> Answer<&Context> {
        self.contexts.get(context)
    }

    /// A context, to be changed.
    pub fn get_mut(&mut self, context: usize) -> Answer<&mut Context> {
        self.contexts.get_mut(context)
    }

    /// Adds a context that is current nowhere.
    pub fn add(&mut self, device: i32) -> usize {
        self.contexts.add(Context { device, fault: None })
    }

    /// `cuCtxPushCurrent`
    pub fn push(&mut self, context: usize) -> Answer {
        self.contexts.get(context)?;
        self.thread().stack.push(context);
        Ok(())
    }

    /// `cuCtxSetCurrent`: replaces the top of the stack; null leaves the thread without.
    pub fn set(&mut self, context: usize) -> Answer {
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

    /// `cuCtxDestroy`: pops the context if it is current here.
    pub fn destroy(&mut self, context: usize) -> Answer<Context> {
        self.contexts.get(context)?;
        let here = thread::current().id();
        let elsewhere = |(id, thread): (&ThreadId, &Thread)| *id != here && thread.stack.contains(&context);
        if self.threads.iter().any(elsewhere) {
            return Err(Rule::CurrentElsewhere.into());
        }
        if self.top() == Some(context) {
            self.thread().stack.pop();
        }
        self.contexts.remove(context)
    }
}
