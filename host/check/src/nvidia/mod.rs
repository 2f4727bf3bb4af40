//! What NVIDIA's libraries say. They are asked in a child process ([`ask`]), since they may hang or crash;
//! the child prints what they say line by line ([`answers`]). [`ffi`] is the one module that calls them.

pub mod answers;
pub mod ask;
mod ffi;
