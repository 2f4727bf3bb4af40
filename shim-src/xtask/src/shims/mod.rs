//! Builds the shims: compile each crate to a static library ([`compile`]), generate a stub for every listed
//! name that it does not define ([`stub`]), link ([`link`]), examine the result ([`inspect`]) and
//! describe it ([`manifest`]). And what goes with them: the helper program ([`probe`]), the tracer ([`trace`]). Nothing is done for an object whose inputs are unchanged ([`inputs`]).

pub mod archive;
pub mod compile;
pub mod first;
pub mod inputs;
pub mod inspect;
pub mod link;
pub mod manifest;
pub mod probe;
pub mod stub;
pub mod symbols;
pub mod trace;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

use inputs::Inputs;
use inspect::{Expected, Object};
use link::{Driver, Job, Linker};
use manifest::{Entry, Manifest, Program};
use symbols::Symbol;

/// A library of NVIDIA's that a shim stands in for.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// SONAME, and file name in `embedded/`.
    pub soname: &'static str,
    /// The crate that implements it.
    pub package: &'static str,
    /// Whether it is the crate's CUDA 13 build.
    pub cuda13: bool,
    /// The CUDA major, where there is one object for each.
    pub major: Option<u8>,
    /// Whether all exports carry a version node, which is named as the SONAME.
    pub versioned: bool,
    /// The library's code for not-supported.
    pub not_supported: i32,
    /// How it uses libcuda.
    pub driver: Driver,
    /// Beginnings of its names.
    pub prefixes: &'static [&'static str],
}

impl Library {
    /// The version node of the exports.
    pub fn node(&self) -> Option<&'static str> {
        self.versioned.then_some(self.soname)
    }

    const fn of_major(mut self, soname: &'static str, major: u8) -> Self {
        self.soname = soname;
        self.major = Some(major);
        self.cuda13 = major == 13;
        self
    }
}

const LIBCUDA: Library = Library {
    soname: "libcuda.so.1",
    package: "vgpu-libcuda",
    cuda13: false,
    major: None,
    versioned: false,
    not_supported: 801, // CUDA_ERROR_NOT_SUPPORTED
    driver: Driver::Is,
    prefixes: &["cu"],
};
const CUDART: Library = Library {
    soname: "",
    package: "vgpu-libcudart",
    versioned: true,
    not_supported: 801, // cudaErrorNotSupported
    driver: Driver::Needs,
    prefixes: &["cuda", "__cuda"],
    ..LIBCUDA
};
const CUBLAS: Library = Library {
    package: "vgpu-libcublas",
    not_supported: 15, // CUBLAS_STATUS_NOT_SUPPORTED
    prefixes: &["cublas"],
    ..CUDART
};
const CUBLASLT: Library =
    Library { package: "vgpu-libcublaslt", driver: Driver::MayNeed, prefixes: &["cublasLt"], ..CUBLAS };
const NVML: Library = Library {
    soname: "libnvidia-ml.so.1",
    package: "vgpu-libnvidia-ml",
    not_supported: 3, // NVML_ERROR_NOT_SUPPORTED
    driver: Driver::Needs,
    prefixes: &["nvml"],
    ..LIBCUDA
};

/// All shims. libcuda is the first: the others are linked against it.
pub const LIBRARIES: [Library; 8] = [
    LIBCUDA,
    CUDART.of_major("libcudart.so.12", 12),
    CUDART.of_major("libcudart.so.13", 13),
    CUBLAS.of_major("libcublas.so.12", 12),
    CUBLAS.of_major("libcublas.so.13", 13),
    CUBLASLT.of_major("libcublasLt.so.12", 12),
    CUBLASLT.of_major("libcublasLt.so.13", 13),
    NVML,
];

/// How to build, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The workspace.
    pub root: PathBuf,
    /// Where the objects and their manifest go.
    pub out: PathBuf,
    /// cargo's target folder for the shims, which nothing else uses.
    pub target: PathBuf,
    /// What links.
    pub linker: Linker,
    /// Whether `Cargo.lock` must be as it is.
    pub locked: bool,
    /// The objects to build, by file name; all if empty.
    pub only: Vec<String>,
}

impl Options {
    /// Into `embedded/`, for this machine's glibc.
    pub fn embedded(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            out: root.join("embedded"),
            target: root.join("target/shims"),
            linker: Linker::from_env(),
            locked: false,
            only: Vec::new(),
        }
    }
}

/// Why a shim was not built.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum ShimError {
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("read the symbol list {path}")]
    List { path: PathBuf, source: symbols::ParseError },
    #[error("hash what the shims are made from")]
    Inputs(#[from] inputs::InputError),
    #[error("compile the shim")]
    Compile(#[from] compile::CompileError),
    #[error("link the shim")]
    Link(#[from] link::LinkError),
    #[error("examine {path}")]
    Object { path: PathBuf, source: goblin::error::Error },
    #[error("make {soname} as it should be: {problems}")]
    Wrong { soname: String, problems: String },
    #[error("handle the manifest of the shims")]
    Manifest(#[from] manifest::ManifestError),
    #[error("ask {program} for its version")]
    Tool { program: String, source: io::Error },
    #[error("ask {program} for its version: {status}")]
    ToolStatus { program: String, status: std::process::ExitStatus },
    #[error("find a shim named {0}")]
    Unknown(String),
    #[error("use {0}, which is not what its manifest says; build the shims anew")]
    Differs(PathBuf),
    #[error("build shims on this machine: stubs and linking are for x86-64 Linux")]
    Machine,
    #[error("find {soname} in {folder}")]
    Absent { soname: String, folder: PathBuf },
}

/// What [`update`] did.
#[derive(Debug)]
pub struct Report {
    /// What lies in the output folder now.
    pub manifest: Manifest,
    /// SONAMEs of the objects that were built.
    pub built: Vec<&'static str>,
    /// SONAMEs of those that could not be; their old objects stay.
    pub failed: Vec<(&'static str, ShimError)>,
    /// Files and folders on which the objects depend.
    pub watch: BTreeSet<PathBuf>,
}

/// One object as it is and as its inputs would have it.
struct State {
    library: &'static Library,
    digest: String,
    /// Why it must be built, if it must.
    stale: Option<String>,
}

/// Builds every shim whose inputs have changed, or whose object is not what the manifest says. Two
/// processes that do this at once do it one after the other.
pub fn update(options: &Options) -> Result<Report, ShimError> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(ShimError::Machine);
    }
    create_folder(&options.out)?;
    create_folder(&options.target)?;
    let _lock = lock(&options.target.join("xtask.lock"))?;
    let tools = Tools::ask(&options.linker)?;
    let (states, mut watch) = states(options, &tools)?;
    let companions = companion_states(options, &tools)?;
    watch.extend(companions.iter().flat_map(|state| state.watch.clone()));
    let mut manifest = Manifest::read(&options.out).unwrap_or_default().unwrap_or_default();
    let mut report = Report { manifest: Manifest::default(), built: Vec::new(), failed: Vec::new(), watch };
    for state in states.iter().filter(|state| state.stale.is_some()) {
        match build(options, &tools, state) {
            Ok(entry) => {
                manifest.shims.retain(|other| other.soname != entry.soname);
                manifest.shims.push(entry);
                manifest.shims.sort_by_key(|entry| position(&entry.soname));
                manifest.write(&options.out)?;
                report.built.push(state.library.soname);
            }
            Err(error) => report.failed.push((state.library.soname, error)),
        }
    }
    for state in companions.iter().filter(|state| state.stale.is_some()) {
        match build_companion(options, &tools, state) {
            Ok(program) => {
                *state.companion.entry_mut(&mut manifest) = Some(program);
                manifest.write(&options.out)?;
                report.built.push(state.companion.file());
            }
            Err(error) => report.failed.push((state.companion.file(), error)),
        }
    }
    report.manifest = manifest;
    Ok(report)
}

/// Says of each shim that [`update`] would build why it would.
pub fn stale(options: &Options) -> Result<Vec<(&'static str, String)>, ShimError> {
    let tools = Tools::ask(&options.linker)?;
    let (states, _) = states(options, &tools)?;
    let companions = companion_states(options, &tools)?.into_iter();
    let companions = companions.filter_map(|state| Some((state.companion.file(), state.stale?)));
    let shims = states.into_iter().filter_map(|state| Some((state.library.soname, state.stale?)));
    Ok(shims.chain(companions).collect())
}

/// Reads the manifest of a folder of finished shims, and checks that every one is there and is what it says.
pub fn open(folder: &Path) -> Result<Manifest, ShimError> {
    let manifest = Manifest::read(folder)?.unwrap_or_default();
    for library in &LIBRARIES {
        let absent = || ShimError::Absent { soname: library.soname.into(), folder: folder.to_owned() };
        let entry = manifest.entry(library.soname).ok_or_else(absent)?;
        let path = folder.join(library.soname);
        let bytes = fs::read(&path).map_err(|source| ShimError::File { path: path.clone(), source })?;
        if sha256(&bytes) != entry.sha256 {
            return Err(ShimError::Differs(path));
        }
    }
    for companion in Companion::ALL {
        let absent = || ShimError::Absent { soname: companion.file().into(), folder: folder.to_owned() };
        let program = companion.entry(&manifest).ok_or_else(absent)?;
        let path = folder.join(companion.file());
        let bytes = fs::read(&path).map_err(|source| ShimError::File { path: path.clone(), source })?;
        if sha256(&bytes) != program.sha256 {
            return Err(ShimError::Differs(path));
        }
    }
    Ok(manifest)
}

/// The symbol list of a library.
pub fn listed(root: &Path, library: &Library) -> Result<Vec<Symbol>, ShimError> {
    let path = root.join("shim-src/abi/symbols").join(format!("{}.list", library.soname));
    let text = fs::read_to_string(&path).map_err(|source| ShimError::File { path: path.clone(), source })?;
    symbols::parse(&text).map_err(|source| ShimError::List { path, source })
}

/// Reads a shared object.
pub fn object(path: &Path) -> Result<Object, ShimError> {
    let bytes = fs::read(path).map_err(|source| ShimError::File { path: path.to_owned(), source })?;
    Object::parse(&bytes).map_err(|source| ShimError::Object { path: path.to_owned(), source })
}

fn states(options: &Options, tools: &Tools) -> Result<(Vec<State>, BTreeSet<PathBuf>), ShimError> {
    let known = |name: &str| {
        position(name) < LIBRARIES.len() || Companion::ALL.iter().any(|companion| companion.file() == name)
    };
    if let Some(name) = options.only.iter().find(|name| !known(name)) {
        return Err(ShimError::Unknown(name.clone()));
    }
    // A manifest that cannot be read is as good as none: everything is built anew.
    let manifest = Manifest::read(&options.out).unwrap_or_default().unwrap_or_default();
    let mut inputs = Inputs::open(&options.root)?;
    let mut watch = BTreeSet::new();
    let mut states = Vec::new();
    for library in &LIBRARIES {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == library.soname) {
            continue;
        }
        let digest = inputs.digest(library, &tools.all)?;
        watch.extend(digest.watch);
        let entry = manifest.entry(library.soname).map(Built::from);
        let stale = reason(&options.out.join(library.soname), entry, &digest.hex, tools);
        states.push(State { library, digest: digest.hex, stale });
    }
    Ok((states, watch))
}

/// What the manifest says of the making of an object.
struct Built<'a> {
    rustc: &'a str,
    linker: &'a str,
    inputs: &'a str,
    sha256: &'a str,
}

impl<'a> From<&'a Entry> for Built<'a> {
    fn from(entry: &'a Entry) -> Self {
        let Entry { rustc, linker, inputs, sha256, .. } = entry;
        Self { rustc, linker, inputs, sha256 }
    }
}

impl<'a> From<&'a Program> for Built<'a> {
    fn from(program: &'a Program) -> Self {
        let Program { rustc, linker, inputs, sha256, .. } = program;
        Self { rustc, linker, inputs, sha256 }
    }
}

fn reason(path: &Path, entry: Option<Built<'_>>, digest: &str, tools: &Tools) -> Option<String> {
    let Some(entry) = entry else { return Some("it has not been built".into()) };
    if entry.rustc != tools.rustc {
        Some(format!("it was made by {}, this is {}", entry.rustc, tools.rustc))
    } else if entry.linker != tools.linker {
        Some(format!("it was linked by {}, this is {}", entry.linker, tools.linker))
    } else if entry.inputs != digest {
        Some("its sources have changed".into())
    } else {
        match fs::read(path) {
            Ok(bytes) if sha256(&bytes) == entry.sha256 => None,
            Ok(_) => Some("the object is not the one that was built".into()),
            Err(error) => Some(format!("the object cannot be read: {error}")),
        }
    }
}

fn build(options: &Options, tools: &Tools, state: &State) -> Result<Entry, ShimError> {
    let library = state.library;
    let symbols = listed(&options.root, library)?;
    let archive = compile::compile(&options.root, &options.target, library, options.locked)?;
    let libcuda = options.out.join(LIBCUDA.soname);
    let work = options.target.join("link").join(library.soname);
    let job = Job {
        soname: library.soname,
        node: library.node(),
        status: library.not_supported,
        symbols: &symbols,
        prefixes: library.prefixes,
        archive: &archive,
        driver: Some((&libcuda, library.driver)),
        work: &work,
    };
    let linked = link::link(&options.linker, &job)?;
    let bytes =
        fs::read(&linked.path).map_err(|source| ShimError::File { path: linked.path.clone(), source })?;
    let object =
        Object::parse(&bytes).map_err(|source| ShimError::Object { path: linked.path.clone(), source })?;
    let names: BTreeSet<&str> = symbols.iter().map(|symbol| symbol.name.as_str()).collect();
    let needed: &[_] = if library.driver == Driver::Needs { &[LIBCUDA.soname] } else { &[] };
    let expected = Expected { soname: library.soname, node: library.node(), names: &names, needed };
    let problems = inspect::problems(&object, &expected);
    if !problems.is_empty() {
        return Err(ShimError::Wrong { soname: library.soname.into(), problems: problems.join("; ") });
    }
    let path = options.out.join(library.soname);
    replace(&path, &bytes).map_err(|source| ShimError::File { path, source })?;
    Ok(Entry {
        soname: library.soname.into(),
        major: library.major,
        sha256: sha256(&bytes),
        bytes: bytes.len() as u64,
        exports: object.exports.len(),
        glibc: object.glibc.map(|version| version.to_string()),
        needed: object.needed,
        rustc: tools.rustc.clone(),
        linker: tools.linker.clone(),
        inputs: state.digest.clone(),
        implemented: linked.implemented.into_iter().collect(),
    })
}

/// What is built beside the shims and is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Companion {
    /// [`probe`].
    Probe,
    /// [`trace`].
    Trace,
}

impl Companion {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Probe, Self::Trace];

    /// File name in `embedded/`.
    pub fn file(self) -> &'static str {
        match self {
            Self::Probe => probe::FILE,
            Self::Trace => trace::FILE,
        }
    }

    /// What the manifest says of it.
    pub fn entry(self, manifest: &Manifest) -> Option<&Program> {
        match self {
            Self::Probe => manifest.probe.as_ref(),
            Self::Trace => manifest.trace.as_ref(),
        }
    }

    fn entry_mut(self, manifest: &mut Manifest) -> &mut Option<Program> {
        match self {
            Self::Probe => &mut manifest.probe,
            Self::Trace => &mut manifest.trace,
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Probe => probe::PACKAGE,
            Self::Trace => trace::PACKAGE,
        }
    }

    fn flags(self, linker: &Linker) -> String {
        match self {
            Self::Probe => probe::flags(linker),
            Self::Trace => trace::flags(linker),
        }
        .join(" ")
    }

    fn mode(self) -> u32 {
        match self {
            // It is run from there by nobody but people.
            Self::Probe => 0o755,
            Self::Trace => 0o644,
        }
    }
}

/// A companion as it is and as its inputs would have it.
struct CompanionState {
    companion: Companion,
    digest: String,
    stale: Option<String>,
    watch: BTreeSet<PathBuf>,
}

/// Of those that were asked for.
fn companion_states(options: &Options, tools: &Tools) -> Result<Vec<CompanionState>, ShimError> {
    let manifest = Manifest::read(&options.out).unwrap_or_default().unwrap_or_default();
    let mut inputs = Inputs::open(&options.root)?;
    let mut states = Vec::new();
    for companion in Companion::ALL {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == companion.file()) {
            continue;
        }
        let about = companion.flags(&options.linker);
        let digest = inputs.digest_package(companion.package(), &about, &tools.all)?;
        let program = companion.entry(&manifest).map(Built::from);
        let stale = reason(&options.out.join(companion.file()), program, &digest.hex, tools);
        states.push(CompanionState { companion, digest: digest.hex, stale, watch: digest.watch });
    }
    Ok(states)
}

fn build_companion(options: &Options, tools: &Tools, state: &CompanionState) -> Result<Program, ShimError> {
    let companion = state.companion;
    let package = companion.package();
    let archive = compile::compile_package(&options.root, &options.target, package, &[], options.locked)?;
    let work = options.target.join("link").join(companion.file());
    let lists = LIBRARIES.iter().map(|library| listed(&options.root, library));
    let lists = lists.collect::<Result<Vec<_>, _>>()?;
    let path = match companion {
        Companion::Probe => probe::link(&options.linker, &archive, &work)?,
        Companion::Trace => trace::link(&options.linker, &archive, &lists, &work)?,
    };
    let bytes = fs::read(&path).map_err(|source| ShimError::File { path: path.clone(), source })?;
    let object = Object::parse(&bytes).map_err(|source| ShimError::Object { path, source })?;
    let problems = match companion {
        Companion::Probe => probe::problems(&object),
        Companion::Trace => trace::problems(&object, &lists),
    };
    if !problems.is_empty() {
        return Err(ShimError::Wrong { soname: companion.file().into(), problems: problems.join("; ") });
    }
    let path = options.out.join(companion.file());
    replace(&path, &bytes).map_err(|source| ShimError::File { path: path.clone(), source })?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(companion.mode());
    fs::set_permissions(&path, mode).map_err(|source| ShimError::File { path, source })?;
    Ok(Program {
        sha256: sha256(&bytes),
        bytes: bytes.len() as u64,
        glibc: object.glibc.map(|version| version.to_string()),
        needed: object.needed,
        rustc: tools.rustc.clone(),
        linker: tools.linker.clone(),
        inputs: state.digest.clone(),
    })
}

/// Versions of compiler and linker.
struct Tools {
    rustc: String,
    linker: String,
    /// Both in full, and the linker's options.
    all: Vec<String>,
}

impl Tools {
    fn ask(linker: &Linker) -> Result<Self, ShimError> {
        let rustc = version(compile::rustc().arg("-vV"))?;
        let linked = version(&mut linker.version_command())?;
        let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
        let mut all = vec![rustc.clone(), linked.clone()];
        all.extend(linker.flags().into_iter().map(str::to_owned));
        let linker = match linker {
            Linker::Cc(_) => first(&linked),
            Linker::Zig { .. } => format!("zig {} for {}", first(&linked), link::ZIG_TARGET),
        };
        Ok(Self { rustc: first(&rustc), linker, all })
    }
}

fn version(command: &mut Command) -> Result<String, ShimError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| ShimError::Tool { program: program.clone(), source })?;
    if !output.status.success() {
        return Err(ShimError::ToolStatus { program, status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn position(soname: &str) -> usize {
    LIBRARIES.iter().position(|library| library.soname == soname).unwrap_or(LIBRARIES.len())
}

fn create_folder(path: &Path) -> Result<(), ShimError> {
    fs::create_dir_all(path).map_err(|source| ShimError::File { path: path.to_owned(), source })
}

/// Waits for the exclusive lock on `path`, which lasts as long as the file stays open.
pub(crate) fn lock(path: &Path) -> Result<File, ShimError> {
    let fail = |source| ShimError::File { path: path.to_owned(), source };
    let file = File::options().create(true).truncate(false).write(true).open(path).map_err(fail)?;
    file.lock().map_err(fail)?;
    Ok(file)
}

/// Writes a file under another name and gives it its own at once: who has the old one open or mapped keeps it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let mut file = File::create(&new)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The first failure is the one to report.
        let _ = fs::remove_file(&new);
    }
    written
}

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
