//! Delivers the shim libraries to a process.
//!
//! A [`DeliveryPlan`] lists the libraries, their order, and the mode; it is data, made by a pure function.
//! [`Injection::carry_out`] stores the libraries accordingly, and [`Injection::apply`] adds their paths to an
//! environment.

pub mod environment;
pub mod folder;
mod image;
mod mappable;
pub mod memfd;
pub mod owner;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::Uid;

use self::memfd::{MemfdError, Sealed};
use crate::diagnosis::{Cause, Fix, cause, fix};
use crate::embedded::{EmbeddedObject, OBJECTS, TRACE};
use crate::env::Environment;
use crate::error::{LauncherError, chain};
use environment::Places;
use folder::{Content, PrivateFolder, Unfit};
use owner::Owner;

/// CUDA major versions that have shims. The first one is preferred for a program whose needs are unknown.
pub const MAJORS: [u32; 2] = [12, 13];

/// How the shim libraries reach the process: sealed memory files, or a private directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryMode {
    /// Sealed memory files, opened through `/proc/PID/fd`. Nothing is written to disk.
    Memory,
    /// Files in a private directory on a tmpfs.
    Folder,
}

/// Plan for the delivery of the libraries to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryPlan {
    /// Mode that is tried first.
    pub mode: DeliveryMode,
    /// Whether only this mode is tried, because the user requested it or because no other works.
    pub fixed: bool,
    /// Libraries in the order in which they are preloaded.
    pub objects: Vec<&'static EmbeddedObject>,
}

impl DeliveryPlan {
    /// Creates the plan for a program. `asked` is the mode that the user requested, `by_path` tells whether
    /// the program looks for the driver's library by its path, and `majors` are the CUDA major versions of
    /// its backends, of which the newest is preloaded first.
    pub fn new(asked: Option<DeliveryMode>, by_path: bool, majors: &BTreeSet<u32>) -> Self {
        let mode = asked.unwrap_or(if by_path { DeliveryMode::Folder } else { DeliveryMode::Memory });
        let first = majors.iter().rev().copied().find(|major| MAJORS.contains(major)).unwrap_or(MAJORS[0]);
        let mut objects: Vec<_> = OBJECTS.iter().collect();
        objects.sort_by_key(|object| rank(object.soname, first));
        Self { mode, fixed: asked.is_some() || by_path, objects }
    }

    /// Inserts the tracer before the libraries.
    pub fn traced(mut self) -> Self {
        self.objects.insert(0, &TRACE);
        self
    }
}

/// Returns the rank of a library in the preload order: those without a CUDA major version with libcuda first,
/// then those of the major version `first`, then all others.
fn rank(soname: &str, first: u32) -> u8 {
    let major = soname.rsplit_once(".so.").and_then(|(_, version)| version.parse().ok());
    match soname {
        "libcuda.so.1" => 0,
        "libnvidia-ml.so.1" => 1,
        _ if major == Some(first) => 2,
        _ => 3,
    }
}

/// Reason why the libraries could not be delivered.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// `/proc` does not show this process.
    #[error("failed to find this process in /proc")]
    Process(#[source] io::Error),
    /// Memory files failed, and no other mode was permitted.
    #[error("failed to hand over the libraries in memory")]
    Memory(#[source] MemfdError),
    /// The limit on the size of files is below the size of the largest library. It applies to all modes.
    #[error(
        "failed to write the libraries, of which the largest has {0} bytes: the limit on the size of files is lower"
    )]
    TooLarge(usize),
    /// No directory can hold the libraries, and memory failed if it was tried.
    #[error("failed to find a place for the libraries ({0})")]
    Nowhere(Tried),
}

/// Directories and modes that were tried, each with the reason why it failed.
#[derive(Debug)]
pub struct Tried(Vec<(String, String)>);

impl std::fmt::Display for Tried {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (place, why)) in self.0.iter().enumerate() {
            write!(out, "{}{place}: {why}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl LauncherError for InjectError {
    fn diagnosis(&self) -> Option<Cause> {
        Some(match self {
            Self::Process(_) => cause::kernel::NO_PROC,
            Self::TooLarge(_) => cause::shims::FILE_SIZE_LIMIT,
            Self::Memory(_) | Self::Nowhere(_) => cause::kernel::NO_EXECUTABLE_MAPPING,
        })
    }

    fn fix(&self) -> Option<Fix> {
        match self {
            Self::Memory(_) => Some(fix::kernel::OTHER_MODE.into()),
            _ => self.diagnosis()?.remedy().map(Fix::from),
        }
    }
}

/// Libraries that are delivered. Dropping this removes them unless they were kept; they survive exec.
#[derive(Debug)]
pub struct Injection {
    mode: DeliveryMode,
    memory: Vec<Sealed>,
    folder: Option<PrivateFolder>,
    sonames: Vec<&'static str>,
}

impl Injection {
    /// Delivers the libraries to the process `owner`. Memory files can only be delivered to this process.
    pub fn carry_out(
        plan: &DeliveryPlan,
        environment: &Environment,
        owner: Owner,
    ) -> Result<Self, InjectError> {
        let sonames = plan.objects.iter().map(|object| object.soname).collect();
        let mut tried = Vec::new();
        let largest = plan.objects.iter().map(|object| object.bytes.len()).max().unwrap_or_default();
        if file_size_limit().is_some_and(|limit| limit < largest as u64) {
            return Err(InjectError::TooLarge(largest));
        }
        if plan.mode == DeliveryMode::Memory {
            match memfd::all(&plan.objects, owner.pid()) {
                Ok(memory) => {
                    let folder = links(&plan.objects, &memory, environment, owner);
                    return Ok(Self { mode: DeliveryMode::Memory, memory, folder, sonames });
                }
                Err(error) if plan.fixed => return Err(InjectError::Memory(error)),
                Err(error) => tried.push(("memory".to_owned(), chain(&error))),
            }
        }
        match place(environment, owner, Content::Files(&plan.objects), &mut tried) {
            Some(folder) => {
                Ok(Self { mode: DeliveryMode::Folder, memory: Vec::new(), folder: Some(folder), sonames })
            }
            None => Err(InjectError::Nowhere(Tried(tried))),
        }
    }

    /// Returns the mode that was used.
    pub fn mode(&self) -> DeliveryMode {
        self.mode
    }

    /// Returns the SONAME of each library and the path by which it is preloaded.
    pub fn objects(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        self.sonames.iter().enumerate().map(|(index, soname)| {
            let path = match (&self.folder, self.memory.get(index)) {
                (_, Some(sealed)) => sealed.path(),
                (Some(folder), None) => folder.path().join(soname),
                (None, None) => PathBuf::from(soname),
            };
            (*soname, path)
        })
    }

    /// Returns the paths of the libraries as owned data.
    pub fn placed(&self) -> Placed {
        Placed {
            mode: self.mode,
            objects: self.objects().collect(),
            folder: self.folder().map(Path::to_owned),
        }
    }

    /// Returns the path of the private directory, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(PrivateFolder::path)
    }

    /// Adds the libraries to `environment`, replacing those of an earlier launcher.
    pub fn apply(&self, environment: &mut Environment) {
        self.placed().apply(environment);
    }

    /// Keeps the private directory when this is dropped. It is removed after its owner has ended.
    pub fn leave_in_place(&mut self) {
        if let Some(folder) = &mut self.folder {
            folder.persist();
        }
    }
}

/// Returns the limit on the size of a file that this process writes, in bytes (`ulimit -f`).
fn file_size_limit() -> Option<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE).ok()?;
    (limit != RLIM_INFINITY).then_some(limit)
}

/// Paths of delivered libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Mode that was used.
    pub mode: DeliveryMode,
    /// SONAME of each library and the path by which it is preloaded.
    pub objects: Vec<(&'static str, PathBuf)>,
    /// Path of the private directory, if there is one.
    pub folder: Option<PathBuf>,
}

impl Placed {
    /// Adds the libraries to `environment`, replacing those of an earlier launcher.
    pub fn apply(&self, environment: &mut Environment) {
        let places = Places {
            preload: self.objects.iter().map(|(_, path)| path.clone().into_os_string()).collect(),
            folder: self.folder.clone().map(OsString::from),
        };
        environment::compose(environment, &places, |entry| {
            let path = Path::new(entry);
            folder::is_ours(path)
                || memfd::is_ours(path, OBJECTS.iter().chain([&TRACE]).map(|object| object.soname))
        });
    }
}

/// Creates a directory of links to the libraries in memory, for programs that load `libcuda.so` without a
/// version or that are started without LD_PRELOAD. Most programs do not need it, so failing to create it is
/// not an error.
fn links(
    objects: &[&'static EmbeddedObject],
    memory: &[Sealed],
    environment: &Environment,
    owner: Owner,
) -> Option<PrivateFolder> {
    let links: Vec<_> =
        objects.iter().zip(memory).map(|(object, sealed)| (object.soname, sealed.path())).collect();
    let mut tried = Vec::new();
    let folder = place(environment, owner, Content::Links(&links), &mut tried);
    if folder.is_none() {
        tracing::warn!(tried = %Tried(tried), "no place for a folder of links");
    }
    folder
}

/// Creates a directory in the first candidate that works.
fn place(
    environment: &Environment,
    owner: Owner,
    content: Content<'_>,
    tried: &mut Vec<(String, String)>,
) -> Option<PrivateFolder> {
    for place in folder::candidates(environment, Uid::effective()) {
        match PrivateFolder::create(&place, owner, content) {
            Ok(folder) => return Some(folder),
            Err(unfit) => tried.push((place.display().to_string(), reason(&unfit))),
        }
    }
    None
}

fn reason(unfit: &Unfit) -> String {
    match unfit {
        Unfit::System(error) if error.kind() == io::ErrorKind::NotFound => "not there".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(majors: &[u32]) -> Vec<&'static str> {
        let plan = DeliveryPlan::new(None, false, &majors.iter().copied().collect());
        plan.objects.iter().map(|object| object.soname).collect()
    }

    #[test]
    fn every_library_is_there_once() {
        let mut sonames = order(&[]);
        sonames.sort_unstable();
        let mut embedded: Vec<_> = OBJECTS.iter().map(|object| object.soname).collect();
        embedded.sort_unstable();
        assert_eq!(sonames, embedded);
        for soname in ["libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.12", "libcudart.so.13"] {
            assert!(sonames.contains(&soname), "{soname}");
        }
    }

    #[test]
    fn the_driver_is_first_then_the_major_that_is_needed_first() {
        for (majors, first, last) in [
            (&[][..], "12", "13"),
            (&[12], "12", "13"),
            (&[13], "13", "12"),
            (&[12, 13], "13", "12"),
            (&[11], "12", "13"),
        ] {
            let order = order(majors);
            assert_eq!(order[..2], ["libcuda.so.1", "libnvidia-ml.so.1"]);
            let half = 2 + (order.len() - 2) / 2;
            assert!(order[2..half].iter().all(|soname| soname.ends_with(first)), "{majors:?}: {order:?}");
            assert!(order[half..].iter().all(|soname| soname.ends_with(last)), "{majors:?}: {order:?}");
        }
    }

    #[test]
    fn the_way_is_what_was_asked_for_or_what_works() {
        let mode = |asked, by_path| {
            let plan = DeliveryPlan::new(asked, by_path, &BTreeSet::new());
            (plan.mode, plan.fixed)
        };
        assert_eq!(mode(None, false), (DeliveryMode::Memory, false));
        assert_eq!(mode(None, true), (DeliveryMode::Folder, true));
        assert_eq!(mode(Some(DeliveryMode::Folder), false), (DeliveryMode::Folder, true));
        assert_eq!(mode(Some(DeliveryMode::Memory), true), (DeliveryMode::Memory, true));
    }

    #[test]
    fn memory_comes_with_a_folder_of_links_and_both_are_named() {
        let plan = DeliveryPlan::new(Some(DeliveryMode::Memory), false, &BTreeSet::new());
        let mut environment = Environment::inherited();
        let injection = Injection::carry_out(&plan, &environment, Owner::this().unwrap()).unwrap();
        assert_eq!(injection.mode(), DeliveryMode::Memory);
        injection.apply(&mut environment);
        let preload = environment.get(crate::env::LD_PRELOAD).unwrap().to_str().unwrap();
        let folder = injection.folder().unwrap();
        for ((soname, path), entry) in injection.objects().zip(preload.split(':')) {
            assert_eq!(path, Path::new(entry));
            assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(folder.join(soname)).unwrap());
        }
        let search = environment.get(crate::env::LD_LIBRARY_PATH).unwrap().to_str().unwrap();
        assert_eq!(search.split(':').next().map(Path::new), Some(folder));
        // A second launcher in the same process takes the first one's place.
        let again = Injection::carry_out(&plan, &environment, Owner::this().unwrap()).unwrap();
        let mut twice = environment.clone();
        again.apply(&mut twice);
        let count = |environment: &Environment| {
            environment.get(crate::env::LD_PRELOAD).unwrap().to_str().unwrap().split(':').count()
        };
        assert_eq!(count(&twice), count(&environment));
    }

    #[test]
    fn a_folder_holds_the_preloaded_files_themselves() {
        let plan = DeliveryPlan::new(Some(DeliveryMode::Folder), false, &BTreeSet::new());
        let environment = Environment::inherited();
        let injection = Injection::carry_out(&plan, &environment, Owner::this().unwrap()).unwrap();
        let folder = injection.folder().unwrap().to_owned();
        for (soname, path) in injection.objects() {
            assert_eq!(path, folder.join(soname));
            assert!(std::fs::symlink_metadata(path).unwrap().is_file());
        }
        drop(injection);
        assert!(!folder.exists());
    }
}
