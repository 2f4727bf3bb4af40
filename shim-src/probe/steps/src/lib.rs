//! Messages that `vgpu-run check`'s child processes print: steps, one JSON object a line.
//!
//! A step is announced by `{"step":"open","begin":true}` and reported by `{"step":"open","ok":true,…}` when
//! it has ended, so the last one that was announced names the step that hung or crashed. [`Line`] is such a
//! line, of `vgpu-probe` and of the launcher's own worker; the other types are what `vgpu-probe` reports in
//! its steps. The worker's are the launcher's own.
//!
//! Fields that a line lacks have their default, and unknown fields are ignored.

#![forbid(unsafe_code)]

mod line;
mod probe;

pub use line::{Line, Message};
pub use probe::{
    Allocated, BackendDevice, Bandwidth, Devices, Driver, Elapsed, Ended, Fault, Gpu, Latency, Mapped, Nvml,
    Opened, Product, Resolved, Runtime, Started,
};
