//! The descriptors that stay open while the device's process is replaced.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::saved::error::RestoreError;

/// Table of the descriptors that survive the replacement of a process, each with a name such as
/// `session-3/ring`. All of them close on exec, so that no worker that is started meanwhile inherits one.
/// Immediately before the exec, the old process clears that flag of exactly these. The new process makes its
/// table from the numbers that it is told.
#[derive(Debug, Default)]
pub struct KeptDescriptors(BTreeMap<String, OwnedFd>);

impl KeptDescriptors {
    /// Returns the name of a session's descriptor.
    #[must_use]
    pub fn of_session(session: u32, what: &str) -> String {
        format!("session-{session}/{what}")
    }

    /// Adds a duplicate of a descriptor, which closes on exec. Fails if the descriptor cannot be duplicated,
    /// or if the table has one of that name.
    pub fn keep(&mut self, name: String, file: impl AsFd) -> io::Result<()> {
        let file = file.as_fd().try_clone_to_owned()?;
        self.insert(name, file).map_err(io::Error::other)
    }

    /// Adds a sealed memory file with these bytes, which are too many for the state's text.
    pub fn keep_bytes<'a>(
        &mut self,
        name: String,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        let file = memfd_create("saved", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(file);
        parts.into_iter().try_for_each(|part| file.write_all(part))?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
        self.insert(name, file.into()).map_err(io::Error::other)
    }

    /// Takes a file out that [`KeptDescriptors::keep_bytes`] has added, and returns its bytes, of which there
    /// must be `count`.
    pub fn take_bytes(&mut self, name: &str, count: u64) -> Result<Vec<u8>, RestoreError> {
        let file = File::from(self.take(name)?);
        let read = || {
            let found = file.metadata()?.len();
            if found != count {
                return Err(io::Error::other(format!("its file has {found} bytes, not {count}")));
            }
            let mut bytes = vec![0; count as usize];
            file.read_exact_at(&mut bytes, 0).map(|()| bytes)
        };
        read().map_err(|source| RestoreError::Descriptor { name: name.to_owned(), source })
    }

    /// Adds a descriptor. Fails if the table has one of that name.
    pub fn insert(&mut self, name: String, file: OwnedFd) -> Result<(), RestoreError> {
        match self.0.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(file);
                Ok(())
            }
            Entry::Occupied(entry) => Err(RestoreError::TwoDescriptors(entry.key().clone())),
        }
    }

    /// Adds all descriptors of another table. Fails at the first name that both have.
    pub fn append(&mut self, other: Self) -> Result<(), RestoreError> {
        other.0.into_iter().try_for_each(|(name, file)| self.insert(name, file))
    }

    /// Removes the descriptor of a name and returns it. Fails if there is none.
    pub fn take(&mut self, name: &str) -> Result<OwnedFd, RestoreError> {
        self.0.remove(name).ok_or_else(|| RestoreError::NoDescriptor(name.to_owned()))
    }

    /// Drops all descriptors of a session.
    pub(crate) fn forget_session(&mut self, session: u32) {
        let prefix = Self::of_session(session, "");
        self.0.retain(|name, _| !name.starts_with(&prefix));
    }

    /// Returns each name with its descriptor, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.0.iter().map(|(name, file)| (name.as_str(), file.as_fd()))
    }
}
