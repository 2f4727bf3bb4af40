//! Code as programs hand it over: which part fits a device, where parameters lie, and why code was refused.

pub mod image;
pub mod image_file;
pub mod jit_log;
pub mod layout;
mod part;
#[cfg(test)]
mod real_images;
pub mod refusal;
