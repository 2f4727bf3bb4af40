//! Queries of NVIDIA's libraries. A child process makes them ([`ask`]), because the libraries may hang or
//! crash. The child prints the answers line by line ([`answers`]). [`ffi`] is the only module that calls the
//! libraries.

pub mod answers;
pub mod ask;
mod ffi;
