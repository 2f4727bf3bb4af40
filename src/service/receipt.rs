//! The receipt of `service install`. It records the written files with their content, so that exactly these
//! can be removed later.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::ServiceError;
use super::root::SystemRoot;

/// Path of the receipt file.
pub const PATH: &str = "/var/lib/vgpu-run/service.json";
/// Schema name in the receipt.
const SCHEMA: &str = "vgpu-run.service/1";

/// Record of everything that is installed; empty if nothing is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    schema: String,
    /// Units that are set up, by name.
    pub units: BTreeMap<String, UnitEntry>,
    /// Written files with their content, by path.
    pub files: BTreeMap<PathBuf, String>,
    /// Directories that were created for the files, the deepest last.
    pub folders: Vec<PathBuf>,
    /// Whether the installation created the group.
    pub group_made: bool,
    /// Names of the users that were added to the group.
    pub members: Vec<String>,
}

/// Entry of a unit that is set up.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UnitEntry {
    /// Command that the unit starts without vgpu-run.
    pub own: String,
    /// Path of its drop-in, which is among `files`.
    pub drop_in: PathBuf,
}

impl Receipt {
    /// Loads the receipt of a system. Returns an empty receipt if there is none.
    pub fn load(root: &SystemRoot) -> Result<Self, ServiceError> {
        let path = Path::new(PATH);
        let error = |source| ServiceError::File { path: root.path(path), source };
        let Some(bytes) = root.read_if_there(path).map_err(error)? else { return Ok(Self::default()) };
        let receipt: Self =
            serde_json::from_slice(&bytes).map_err(|source| error(io::Error::from(source)))?;
        if receipt.schema != SCHEMA {
            return Err(error(io::Error::other(format!("it is a {}, not a {SCHEMA}", receipt.schema))));
        }
        Ok(receipt)
    }

    /// Returns whether nothing is installed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Writes the receipt to its file.
    pub fn save(&mut self, root: &SystemRoot) -> Result<(), ServiceError> {
        let path = Path::new(PATH);
        let error = |source| ServiceError::File { path: root.path(path), source };
        self.folders.extend(root.make_folders(path).map_err(error)?);
        SCHEMA.clone_into(&mut self.schema);
        let text = serde_json::to_string_pretty(self).map_err(|source| error(io::Error::from(source)))?;
        root.write(path, &(text + "\n")).map_err(error)
    }

    /// Removes the receipt's file, and the directories of the receipt that are then empty.
    pub fn discard(&self, root: &SystemRoot) -> Result<(), ServiceError> {
        if let Err(source) = root.remove(Path::new(PATH)) {
            return Err(ServiceError::File { path: root.path(PATH), source });
        }
        for folder in self.folders.iter().rev() {
            // A directory that others use by now is kept.
            let _ = root.remove_folder(folder);
        }
        Ok(())
    }
}
