//! Asks a CUDA driver what no documentation says and what the cuda executor relies on: where it reserves
//! addresses, what it registers, which calls wait while a stream is held, what a launch costs beside a thread
//! that polls.
//!
//! A question may hang or crash its process, or leave the driver in a state that answers the next question
//! differently. So each is asked by a child process ([`answer`]), within its own time limit. The child
//! frees nothing: its end does. [`ask`] starts the children and merges their answers to one JSON object,
//! which can be recorded as data (`testbed/bench/drivers`).
//!
//! ```text
//!  ask        the parent: a child for each question, and the report
//!  questions  what is asked
//!  driver     libcuda's calls: the module with unsafe code
//!  mapping    memory of the child that other processes could share
//! ```

mod ask;
mod driver;
mod mapping;
mod questions;

pub use ask::{Probe, Report, answer, ask};
pub use questions::Question;
