//! The arbiter of a GPU's time: the node process ([`Node`]), which grants slices, and devices that follow its
//! orders ([`follow`]).
//!
//! They talk by words of the GPU's file. Each word has one writer. The node process stores an order in a
//! device's slot and wakes it by a futex; the device stores its answer and rings the node's bell, which is
//! one too. The node process stores the time in the header again and again, and a device that must wait looks
//! at it: when it is old, the node process has ended or hangs, and messages pass.

mod clock;
mod follow;
mod node;
#[cfg(test)]
mod tests;
mod words;

pub use follow::{FollowEnd, OrderChange, OrderFollower, follow};
pub use node::{Node, NodeError, NodeOptions};
pub use words::answer;
