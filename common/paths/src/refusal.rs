//! Why a path is not opened although the kernel would allow it.

use std::io;
use std::path::PathBuf;

/// What another user may have put there. It travels as the inner error of an [`io::Error`], so that callers
/// report it with the path that they were given, as they report every other failure. Its kind is
/// `PermissionDenied`, except from [`open_regular`](crate::open_regular) and the functions above it, which
/// say `InvalidInput`: there no right is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A symbolic link in a shared directory.
    #[error("{} is a symbolic link in a directory where other users can write", .0.display())]
    Link(PathBuf),
    /// Not a regular file.
    #[error("{} is {kind}, not a regular file", path.display())]
    Kind {
        /// Where it is.
        path: PathBuf,
        /// What it is, such as `a FIFO`.
        kind: &'static str,
    },
    /// A file or directory of another user.
    #[error("{} belongs to the user {uid}", path.display())]
    Owner {
        /// Where it is.
        path: PathBuf,
        /// Its owner's id.
        uid: u32,
    },
    /// A file with more than one name: the others may be in directories that only root writes to.
    #[error("{} is one of several names of a file (hard links)", .0.display())]
    Names(PathBuf),
    /// A directory in which other users can replace an entry that is not theirs.
    #[error("other users can replace what is in {}", .0.display())]
    Replaceable(PathBuf),
    /// A file that other users may read or write.
    #[error("other users may open {}", .0.display())]
    Open(PathBuf),
    /// A file that is larger than anything of its kind.
    #[error("{} has more than {most} bytes", path.display())]
    Large {
        /// Where it is.
        path: PathBuf,
        /// The limit.
        most: u64,
    },
}

impl Refusal {
    /// What the user can do about it, as a whole sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Link(_) => "Name the path that the link leads to, or a directory where only you can write.",
            Self::Kind { .. } | Self::Large { .. } => "Remove it, or name another file.",
            Self::Owner { .. } | Self::Names(_) | Self::Open(_) | Self::Replaceable(_) => {
                "Name a path in a directory where only you can write."
            }
        }
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, refusal)
    }
}

/// The hint of the [`Refusal`] that `error` carries, if it carries one.
pub fn hint(error: &io::Error) -> Option<&'static str> {
    error.get_ref()?.downcast_ref::<Refusal>().map(Refusal::hint)
}
