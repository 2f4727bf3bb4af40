//! Builds and links the shims, makes releases.
//!
//! The library is what the launcher's build script uses ([`shims`]) and what tests use. The program of the
//! same name puts a command line over it; only that program prints.

#[cfg(feature = "dist")]
pub mod book;
#[cfg(feature = "dist")]
pub mod dist;
pub mod exports;
#[cfg(feature = "cli")]
pub mod fatal_lines;
#[cfg(feature = "layers")]
pub mod layers;
#[cfg(feature = "dist")]
pub mod release;
pub mod shims;
pub mod workspace;
