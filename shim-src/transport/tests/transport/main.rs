//! Tests of the transport against the real device model, in this process or in another one, and against a
//! scripted one that breaks the contract on purpose.

mod copies;
mod fake;
mod lost;
mod messages;
mod nonsense;
mod pages;
mod processes;
mod roles;
mod sessions;
mod tracer;
