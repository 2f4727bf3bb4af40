//! What `service install` wrote, word for word, so that it can be taken away again and nothing else.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::ServiceError;
use super::root::SystemRoot;

/// Path of the receipt.
pub const PATH: &str = "/var/lib/vgpu-run/service.json";
/// Schema name in the receipt.
const SCHEMA: &str = "vgpu-run.service/1";

/// The receipt; empty if nothing is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    schema: String,
    /// The units that are set up.
    pub units: BTreeMap<String, UnitEntry>,
    /// The files, with their content.
    pub files: BTreeMap<PathBuf, String>,
    /// The folders that were made for them, the deepest last.
    pub folders: Vec<PathBuf>,
    /// The group was made.
    pub group_made: bool,
    /// Users that were put into the group.
    pub members: Vec<String>,
}

/// A unit that is set up.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UnitEntry {
    /// Command that the unit started without vgpu-run.
    pub own: String,
    /// Path of its drop-in, which is among `files`.
    pub drop_in: PathBuf,
}

impl Receipt {
    /// The one of a system.
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

    /// Whether there is nothing to take away.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Writes it; an empty one is taken away.
    pub fn save(&mut self, root: &SystemRoot) -> Result<(), ServiceError> {
        let path = Path::new(PATH);
        let error = |source| ServiceError::File { path: root.path(path), source };
        self.folders.extend(root.make_folders(path).map_err(error)?);
        SCHEMA.clone_into(&mut self.schema);
        let text = serde_json::to_string_pretty(self).map_err(|source| error(io::Error::from(source)))?;
        root.write(path, &(text + "\n")).map_err(error)
    }

    /// Takes it away, and the folders of the receipt that are empty then.
    pub fn discard(&self, root: &SystemRoot) -> Result<(), ServiceError> {
        if let Err(source) = root.remove(Path::new(PATH)) {
            return Err(ServiceError::File { path: root.path(PATH), source });
        }
        for folder in self.folders.iter().rev() {
            // One that somebody else uses by now stays.
            let _ = root.remove_folder(folder);
        }
        Ok(())
    }
}
