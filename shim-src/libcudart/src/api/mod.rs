//! The exports, by the chapters of the manual of CUDA's runtime API. Each checks what the runtime API checks,
//! ensures that there is a context, and calls the driver. Calls that the driver does not support are not
//! supported here.

mod capture;
mod copy;
mod device;
mod error;
mod event;
mod function;
mod graph;
mod host;
mod launch;
mod library;
mod memory;
mod memset;
mod peer;
mod pointer;
mod pool;
mod properties;
mod registration;
mod stream;
mod symbol;
mod version;
