//! All tests of the workspace's tasks, as one program.

mod inputs;
mod layers;
mod link;
mod shims;
