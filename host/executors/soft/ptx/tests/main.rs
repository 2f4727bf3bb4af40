//! All tests of the PTX front end, as one program.

mod analysis;
mod bodies;
mod forms;
mod ggml;
mod link;
mod model;
mod robust;
mod sample;
