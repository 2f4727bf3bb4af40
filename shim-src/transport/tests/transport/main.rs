//! The transport against a device: the real device model in this process or in another one, and a
//! scripted one that breaks the contract on purpose.

mod bed;
mod conform1;
mod copies;
mod fake;
mod killed1;
mod lost;
mod messages;
mod nonsense;
mod old;
mod pages;
mod processes;
mod roles;
mod sessions;
mod tracer;
mod version1;
