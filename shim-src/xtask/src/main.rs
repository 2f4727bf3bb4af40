//! The command line of xtask.
fn main() {}
