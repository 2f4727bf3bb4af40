//! The path of a message between the ring and the executor: [`dispatcher::Dispatcher`] and the tables that it
//! checks messages against.

pub(crate) mod check;
pub(crate) mod dispatcher;
pub(crate) mod graph;
pub(crate) mod handles;
pub(crate) mod refusals;
