//! `vgpu-testbed gpu-pack`: all that `vgpu-testbed gpu-run` needs on a machine that has an NVIDIA GPU, its
//! driver and nothing else, as parts small enough to be carried there, with a script that joins them.
//!
//! ```text
//!   DIR/start.sh, SHA256SUMS, part-000, part-001, ...
//!         └─ joined/bin/     the programs; bin/shims/ our libcuda and cuBLAS, for rehearsals
//!            joined/cache/   the artifacts, laid out as in the cache of this user
//! ```
//! The backend is thinned to one architecture ([`thin`]). NVIDIA's libraries are carried as NVIDIA made them.

mod parts;
mod thin;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use flate2::{Compression, GzBuilder};
use serde_json::json;
use vgpu_artifacts::Cache;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::programs;

use parts::{Part, Parts};
use thin::Thinned;

/// The script; `@CC@` and `@MODEL@` are filled in.
const SCRIPT: &str = include_str!("start.sh");
/// Libraries of ours that a rehearsal's executor takes for NVIDIA's.
const SHIMS: [&str; 3] = ["libcuda.so.1", "libcublas.so.13", "libcublasLt.so.13"];
/// The backend, in each of GGML's folders.
const BACKEND: &str = "libggml-cuda.so";

/// Options of `gpu-pack`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The directory to make; it must not be there, or be empty.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Compute capability to thin the backend to. Up to 8.0 it is the build with CUDA 12, whose PTX later
    /// GPUs take too, and which needs NVIDIA's driver 550.54.14 or later; above, the one with CUDA 13
    /// (590.44.01).
    #[arg(long, default_value = "9.0")]
    cc: String,
    /// The model: a name among the artifacts.
    #[arg(long, default_value = "smollm2")]
    model: String,
    /// Bytes of a part at most, such as 48M.
    #[arg(long, default_value = "47M")]
    part: String,
    /// Leave out NVIDIA's libcudart, libcublas and libcublasLt: most of the pack. Without them on the machine
    /// nothing is measured natively, and the executor computes no products.
    #[arg(long)]
    without_nvidia: bool,
    /// Print one JSON object: the parts, and what thinning took away.
    #[arg(long)]
    json: bool,
}

/// The programs that are carried.
fn programs() -> Result<[PathBuf; 6]> {
    Ok([
        programs::launcher()?,
        programs::device()?,
        programs::testbed()?,
        programs::llama()?,
        programs::ops()?,
        programs::standin()?,
    ])
}

/// `sm_NUMBER` of a compute capability.
fn architecture(cc: &str) -> Result<u32> {
    let numbers = cc.split_once('.').and_then(|(major, minor)| {
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok().filter(|&minor| minor < 10)?))
    });
    let (major, minor) = numbers.with_context(|| format!("{cc} is no compute capability such as 9.0"))?;
    Ok(major * 10 + minor)
}

/// The archive that is cut into parts.
struct Archive {
    tar: tar::Builder<flate2::write::GzEncoder<Parts>>,
}

impl Archive {
    fn new(parts: Parts) -> Self {
        let gzip = GzBuilder::new().mtime(0).write(parts, Compression::default());
        Self { tar: tar::Builder::new(gzip) }
    }

    fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        self.tar.append_data(&mut header, name, content).with_context(|| format!("pack {name}"))
    }

    fn program(&mut self, path: &Path) -> Result<()> {
        let name = path.file_name().context("a program without a name")?.to_string_lossy();
        self.add(&format!("bin/{name}"), 0o755, &read(path)?)
    }

    /// All files of an artifact, but for those that `instead` names.
    fn artifact(&mut self, folder: &Path, instead: &[(&str, &[u8])]) -> Result<()> {
        let artifact = folder.file_name().context("an artifact without a name")?.to_string_lossy();
        let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            let name = path.file_name().context("a file without a name")?.to_string_lossy();
            let place = format!("cache/vgpu-run/{artifact}/{name}");
            match instead.iter().find(|(other, _)| *other == name) {
                Some((_, content)) => self.add(&place, 0o644, content)?,
                None => self.add(&place, 0o644, &read(&path)?)?,
            }
        }
        Ok(())
    }

    fn finish(self) -> io::Result<Vec<Part>> {
        self.tar.into_inner()?.finish()?.finish()
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// Makes the directory, which holds nothing yet.
fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    if fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?.next().is_some() {
        bail!("{} is not empty", folder.display());
    }
    Ok(())
}

/// The backend of a build, thinned.
fn thinned(backend: Backend, sm: u32) -> Result<(Vec<u8>, Thinned)> {
    let path = backend.folder()?.join(BACKEND);
    let mut library = read(&path)?;
    let thinned = thin::thin(&mut library, sm).with_context(|| format!("thin {}", path.display()))?;
    Ok((library, thinned))
}

/// Writes what lies beside the parts.
fn finish(arguments: &Arguments, parts: &[Part]) -> Result<()> {
    let mut sums = String::new();
    for part in parts {
        _ = writeln!(sums, "{}  {}", part.sha256, part.name);
    }
    let script = SCRIPT.replace("@CC@", &arguments.cc).replace("@MODEL@", &arguments.model);
    for (name, text, mode) in [("SHA256SUMS", sums, 0o644), ("start.sh", script, 0o755)] {
        let path = arguments.out.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .with_context(|| format!("change the mode of {}", path.display()))?;
    }
    Ok(())
}

/// Packs and prints.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let sm = architecture(&arguments.cc)?;
    let backend = Backend::for_capability(&arguments.cc)?;
    let most = vgpu_device::parse_bytes(&arguments.part).context("read the size of a part")?;
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !arguments.model.chars().all(plain) {
        bail!("{} is no name of an artifact", arguments.model);
    }
    make(&arguments.out)?;
    let (library, thinned) = thinned(backend, sm)?;
    let mut archive = Archive::new(Parts::new(&arguments.out, most));
    for program in programs()? {
        archive.program(&program)?;
    }
    for name in SHIMS {
        archive.add(&format!("bin/shims/{name}"), 0o644, &read(&programs::shim(name)?)?)?;
    }
    archive.artifact(&backend.folder()?, &[(BACKEND, &library)])?;
    archive.artifact(&Cache::open()?.fetch(&arguments.model)?, &[])?;
    if !arguments.without_nvidia {
        archive.artifact(&backend.nvidia()?, &[])?;
    }
    let parts = archive.finish().with_context(|| format!("write parts in {}", arguments.out.display()))?;
    finish(arguments, &parts)?;
    report(arguments, backend, &thinned, &parts)?;
    Ok(ExitCode::SUCCESS)
}

fn report(arguments: &Arguments, backend: Backend, thinned: &Thinned, parts: &[Part]) -> Result<()> {
    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    let mut out = io::stdout().lock();
    if arguments.json {
        let parts: Vec<_> = parts
            .iter()
            .map(|part| json!({ "name": part.name, "bytes": part.bytes, "sha256": part.sha256 }))
            .collect();
        let report = json!({
            "cc": arguments.cc,
            "backend": backend.name(),
            "oldest_driver": backend.oldest_driver(),
            "model": arguments.model,
            "nvidia": !arguments.without_nvidia,
            "thinned": {
                "containers": thinned.containers,
                "kept_bytes": thinned.kept,
                "dropped_bytes": thinned.dropped,
            },
            "bytes": bytes,
            "parts": parts,
        });
        return Ok(writeln!(out, "{report:#}")?);
    }
    let mib = |bytes: u64| bytes >> 20;
    writeln!(
        out,
        "{} parts, {} MiB, in {}; of {} fat binaries {} MiB stayed and {} MiB went.\n\
         Carry the directory to the machine with the GPU, whose driver is {} or later, and run there: \
         sh start.sh",
        parts.len(),
        mib(bytes),
        arguments.out.display(),
        thinned.containers,
        mib(thinned.kept as u64),
        mib(thinned.dropped as u64),
        backend.oldest_driver()
    )?;
    Ok(())
}
