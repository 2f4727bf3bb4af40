//! Why a path is rejected that the kernel would open.

use std::io;
use std::path::PathBuf;

/// Why a path is rejected: another user may have created what it names. It is the inner error of an
/// [`io::Error`], so that callers report it with their path like any other error. The kind is
/// `PermissionDenied`; [`open_regular`](crate::open_regular) and the functions that call it return
/// `InvalidInput`, because no permission is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The path contains a symbolic link in a shared directory.
    #[error("{} is a symbolic link in a directory where other users can write", .0.display())]
    Link(PathBuf),
    /// The path does not name a regular file.
    #[error("{} is {kind}, not a regular file", path.display())]
    Kind {
        /// Path that was rejected.
        path: PathBuf,
        /// Kind of the file, such as `a FIFO`.
        kind: &'static str,
    },
    /// The file or directory belongs to another user.
    #[error("{} belongs to the user {uid}", path.display())]
    Owner {
        /// Path that was rejected.
        path: PathBuf,
        /// Id of the owner.
        uid: u32,
    },
    /// The file has more than one name. The others may be in directories that only root can write to.
    #[error("{} is one of several names of a file (hard links)", .0.display())]
    Names(PathBuf),
    /// Other users can replace entries of root or of this user in the directory.
    #[error("other users can replace what is in {}", .0.display())]
    Replaceable(PathBuf),
    /// Other users may read or write the file.
    #[error("other users may open {}", .0.display())]
    Open(PathBuf),
    /// The file is larger than the caller allows.
    #[error("{} has more than {most} bytes", path.display())]
    Large {
        /// Path that was rejected.
        path: PathBuf,
        /// Limit in bytes.
        most: u64,
    },
}

impl Refusal {
    /// Returns a sentence that tells the user what to do.
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

/// Returns the hint of the [`Refusal`] inside an error, or `None` if it contains none.
pub fn hint(error: &io::Error) -> Option<&'static str> {
    error.get_ref()?.downcast_ref::<Refusal>().map(Refusal::hint)
}
