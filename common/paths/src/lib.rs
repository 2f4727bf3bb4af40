//! Opens, creates and removes files in directories where other users can write, without being led elsewhere.
//!
//! A process of root that opens `/tmp/log` by its path opens what anybody has put there: a symbolic link to
//! `/etc/shadow`, a FIFO that blocks it, another name of somebody else's file. All code of this workspace
//! that may run as root opens paths that it did not make up itself through this crate. The rules:
//!
//! - A directory is *shared* if somebody other than root and the effective user of this process owns it or
//!   may write to it.
//! - A symbolic link is followed only in a directory that is not shared, whether it is the last part of a
//!   path or an earlier one ([`Dir::open`]). Where a kernel has `openat2` (Linux 5.6), a path without links
//!   is resolved by one call with `RESOLVE_NO_SYMLINKS`; the others, and older kernels, take a walk of one
//!   `openat(O_PATH | O_NOFOLLOW)` a part.
//! - A file is created with `O_EXCL`. One that is there already is opened with `O_NOFOLLOW | O_NONBLOCK` and
//!   looked at when it is open: in a shared directory it must be a regular file of this user with one name
//!   ([`append`], [`overwrite`]).
//! - What is done with a directory's entries is done through its descriptor, so that renaming or replacing
//!   the directory meanwhile changes nothing ([`Dir`]).
//! - A file that others chose, such as a library in a directory that a variable names, is found by `O_PATH`,
//!   looked at, and opened only if it is regular: a FIFO holds whoever opens it, and a device may do
//!   anything. What is read whole has a limit on its size ([`open_regular`], [`read`]). A file system that
//!   does not answer still holds its callers: who must not be held asks from a process that can be
//!   abandoned.
//! - In the tree of another system ([`Tree`]) links are followed as a process sees them whose root directory
//!   is the tree: `RESOLVE_IN_ROOT`, or a walk that never leaves it.

#![forbid(unsafe_code)]

mod dir;
mod file;
mod kernel;
mod open;
mod refusal;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

pub use dir::{Dir, make_private, private_places, reject_replaceable, replaceable, require_private};
pub use file::{append, overwrite, shared};
pub use open::{Access, open_regular, read, read_to_string};
pub use refusal::{Refusal, hint};
pub use tree::Tree;
