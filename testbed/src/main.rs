//! The command line of the test bed.
fn main() {}
