//! Discovery of the first era: the server opens the driver's library by a path that it finds in
//! LD_LIBRARY_PATH and built-in directories.

use std::path::PathBuf;

use vgpu_probe_steps::Fault;

use super::run::{DiscoveryRun, LIMIT};
use crate::check::links::init::lines;
use crate::check::probe;
use crate::check::steps::Steps;
use crate::diagnosis::cause::discovery as cause;
use crate::diagnosis::fix::discovery as fix;
use crate::diagnosis::{Finding, LinkId};
use crate::env::{Environment, LD_LIBRARY_PATH};
use crate::ollama::Ollama;
use crate::ollama::symbols::Symbols;
use crate::program::search;

const LINK: LinkId = LinkId::Discovery;

impl DiscoveryRun<'_> {
    /// Finds the driver's library and opens it.
    pub async fn by_path(&self) -> Result<Finding, String> {
        let Some(driver) = driver_by_path(&driver_folders(self.ollama, &self.environment)) else {
            return Ok(Finding::fail(
                cause::NO_DEVICE,
                "no directory of LD_LIBRARY_PATH has a libcuda.so* that is a regular file",
            )
            .detail("an Ollama before 0.12.4 opens the driver by its path, and follows links by their text")
            .fix(fix::OTHER_PATH));
        };
        let path = driver.file;
        let file = vgpu_paths::open_regular(&path).map_err(|error| error.to_string())?;
        let symbols = Symbols::read(&file).map_err(|error| error.to_string())?;
        let absent: Vec<_> = MANDATORY.iter().filter(|name| !symbols.has(name)).copied().collect();
        if !absent.is_empty() {
            let found = format!("{} lacks {}", path.display(), absent.join(", "));
            return Ok(Finding::fail(cause::BACKEND_NOT_LOADED, found).fix(fix::UPDATE));
        }
        let text = path.to_string_lossy().into_owned();
        let outcome =
            probe::run_probe(self.context, ["resolve", &text], &self.environment, self.left(LIMIT)).await?;
        let steps = Steps::read(&outcome.stdout);
        Ok(match steps.get(&text) {
            Some(report) if report.ok => Finding::pass(LINK, format!("the server opens {}", path.display())),
            Some(report) => {
                let error = report.said::<Fault>().unwrap_or_default().error;
                let denied = error.contains("Permission denied");
                let remedy = if denied { fix::READABLE } else { fix::UPDATE };
                Finding::fail(cause::BACKEND_NOT_LOADED, error).fix(remedy).details(lines(&outcome.stderr))
            }
            None => {
                Finding::unknown(LINK, outcome.trouble().unwrap_or_default()).details(lines(&outcome.stderr))
            }
        })
    }
}

/// Driver functions that an Ollama of the first era requires.
const MANDATORY: [&str; 10] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetUuid",
    "cuDeviceGetName",
    "cuCtxCreate_v3",
    "cuMemGetInfo_v2",
    "cuCtxDestroy",
];

/// Returns the directories that an Ollama of the first era searches for the driver, in order.
pub fn driver_folders(ollama: &Ollama, environment: &Environment) -> Vec<PathBuf> {
    let inherited = environment.get(LD_LIBRARY_PATH).map(search::split).unwrap_or_default();
    std::iter::once(ollama.libraries.clone()).chain(inherited).collect()
}

/// Driver that an Ollama of the first era opens.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundDriver {
    /// Path of the entry in a directory that the Ollama searches, which may be a link.
    pub entry: PathBuf,
    /// Path of the file that is opened.
    pub file: PathBuf,
}

/// Returns the first file that an Ollama of the first era would open. Such an Ollama resolves links by their
/// text, so it does not find a memory file through a link.
pub fn driver_by_path(folders: &[PathBuf]) -> Option<FoundDriver> {
    folders.iter().find_map(|folder| {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .ok()?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libcuda.so"))
            })
            .collect();
        names.sort();
        names.into_iter().find_map(|entry| {
            let mut file = entry.clone();
            while let Ok(next) = std::fs::read_link(&file) {
                file = if next.is_absolute() { next } else { file.parent()?.join(next) };
            }
            file.is_file().then_some(FoundDriver { entry, file })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::OBJECTS;
    use crate::scratch::Scratch;

    #[test]
    fn links_to_memory_files_lead_nowhere_by_their_text() {
        let scratch = Scratch::new();
        let folders = [scratch.path().to_owned()];
        assert_eq!(driver_by_path(&folders), None);
        std::os::unix::fs::symlink("/memfd:libcuda.so.1 (deleted)", scratch.join("libcuda.so.1")).unwrap();
        assert_eq!(driver_by_path(&folders), None);
        std::fs::write(scratch.join("libcuda.so.1.2"), "").unwrap();
        std::os::unix::fs::symlink("libcuda.so.1.2", scratch.join("libcuda.so")).unwrap();
        let found = FoundDriver { entry: scratch.join("libcuda.so"), file: scratch.join("libcuda.so.1.2") };
        assert_eq!(driver_by_path(&folders), Some(found));
    }

    #[test]
    fn the_driver_has_what_the_first_era_wants() {
        let driver = OBJECTS.iter().find(|object| object.soname == "libcuda.so.1").unwrap();
        let symbols = Symbols::read(&driver.bytes).unwrap();
        assert!(MANDATORY.iter().all(|name| symbols.has(name)));
    }
}
