//! The descriptors that stay open while the device's process is replaced.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::saved::error::RestoreError;

/// The one table of descriptors that survive the replacement of a process, each with a name such as
/// `session-3/ring`. All of them close on exec. The process that executes clears that of exactly these at the
/// last moment, and the next process makes the table of the numbers that it is told, so that no worker that is
/// started meanwhile inherits one.
#[derive(Debug, Default)]
pub struct KeptDescriptors(BTreeMap<String, OwnedFd>);

impl KeptDescriptors {
    /// Returns the name of a session's descriptor.
    #[must_use]
    pub fn of_session(session: u32, what: &str) -> String {
        format!("session-{session}/{what}")
    }

    /// Adds a copy of a descriptor, which closes on exec like the original.
    pub fn keep(&mut self, name: String, file: impl AsFd) -> io::Result<()> {
        let file = file.as_fd().try_clone_to_owned()?;
        self.insert(name, file).map_err(io::Error::other)
    }

    /// Adds a descriptor.
    pub fn insert(&mut self, name: String, file: OwnedFd) -> Result<(), RestoreError> {
        match self.0.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(file);
                Ok(())
            }
            Entry::Occupied(entry) => Err(RestoreError::TwoDescriptors(entry.key().clone())),
        }
    }

    /// Adds all descriptors of another table.
    pub fn append(&mut self, other: Self) -> Result<(), RestoreError> {
        other.0.into_iter().try_for_each(|(name, file)| self.insert(name, file))
    }

    /// Takes a descriptor out.
    pub fn take(&mut self, name: &str) -> Result<OwnedFd, RestoreError> {
        self.0.remove(name).ok_or_else(|| RestoreError::NoDescriptor(name.to_owned()))
    }

    /// Returns each name with its descriptor, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.0.iter().map(|(name, file)| (name.as_str(), file.as_fd()))
    }
}
