//! Code as programs pass it: which part fits a device, how parameters are laid out, and why code was refused.

pub mod image;
pub mod image_file;
pub mod jit_log;
pub mod layout;
mod part;
#[cfg(test)]
mod real_images;
pub mod refusal;
