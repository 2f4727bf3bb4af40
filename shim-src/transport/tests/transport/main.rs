//! The transport against a device: the real device model in this process or in another one, and a
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
