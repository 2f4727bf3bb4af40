//! `vgpu-testbed gpu-pack`: all that `vgpu-testbed gpu-run` needs on a machine that has an NVIDIA GPU, its
//! driver, cuBLAS and nothing else, in one file small enough to be carried there, with a script that unpacks
//! and starts it.
//!
//! ```text
//!   DIR/start.sh, SHA256SUMS, pack.tar.xz
//!   DIR.unpacked/bin/        the programs; bin/shims/ our libcuda and cuBLAS, for rehearsals
//!                cache/      GGML and libllama, laid out as in the cache of this user
//!                native/     NVIDIA's libcudart of CUDA 12, and a libcublas.so.12 that calls CUDA 13's
//! ```
//! The backend has the code of one architecture ([`thin`]), compiled here from its PTX ([`ahead`]). The model
//! is not carried: `gpu-run` makes one with random weights.

mod ahead;
mod archive;
mod native;
mod thin;

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use vgpu_image::fatbin::{self, Kind};
use vgpu_image::ptx;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::programs;

use ahead::{Compiler, Count};
use archive::{Archive, in_cache};
use thin::Thinned;

/// The start script, in which `@CC@` is replaced.
const SCRIPT: &str = include_str!("start.sh");
/// File name of the archive.
const ARCHIVE: &str = "pack.tar.xz";
/// Shims that a rehearsal's executor uses in place of NVIDIA's libraries.
const SHIMS: [&str; 3] = ["libcuda.so.1", "libcublas.so.13", "libcublasLt.so.13"];
/// The backend's build: that of CUDA 12, which accepts older drivers than CUDA 13's.
const BACKEND: Backend = Backend::Cuda12;
/// File name of the backend.
const LIBRARY: &str = "libggml-cuda.so";
/// The CPU backend in the pack: that for AVX2, which every processor beside a supported GPU has.
const CPU: &str = "libggml-cpu-haswell.so";
/// NVIDIA's unmodified runtime library: the artifact, and the file in it.
const CUDART: [&str; 2] = ["cudart12", "libcudart.so.12"];

/// Parts of the names of kernels that the model uses for a prompt and for a token, from the profile of a soft
/// device of 9.0. Their modules keep PTX beside the machine code, which a rehearsal without a GPU runs.
const MODEL: [&str; 11] = [
    "flash_attn_ext_f16ILi64ELi64ELi16ELi4E",
    "flash_attn_ext_vecILi64ELi1EL9ggml_type1ELS0_1E",
    "k_bin_bcast",
    "k_get_rows_float",
    "k_set_rows",
    "mul_mat_qIL9ggml_type3E",
    "mul_mat_vec_qIL9ggml_type3E",
    "quantize_mmq_q8_1",
    "quantize_q8_1",
    "rope_norm",
    "unary_gated_op_kernel",
];
/// The kernel whose module has only PTX, to test the driver's compiler. Each layer of the model uses it
/// twice, and it compiles within a second.
const LEFT_TO_THE_DRIVER: &str = "rms_norm_f32";

/// Kind of code in the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Code {
    /// Machine code that ptxas compiles here, and the PTX of what the model uses.
    Ahead,
    /// The best fitting PTX, which the driver compiles.
    Ptx,
}

/// Options of `gpu-pack`.
#[derive(clap::Args)]
pub struct GpuPackArgs {
    /// The directory to create; it must be missing or empty.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Compute capability of the GPU.
    #[arg(long, default_value = "9.0")]
    cc: String,
    /// Kind of code in the backend. With `ptx` nothing is compiled, the pack is larger, and the GPU's driver
    /// must be 550.54.14 or later.
    #[arg(long, value_enum, default_value_t = Code::Ahead)]
    code: Code,
    /// Compression level of the pack, from 0 (fast) to 9.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=9))]
    level: u8,
    /// Maximum size of the pack, such as 50M. A larger pack is an error, because it could not be transferred.
    #[arg(long, default_value = "50M", value_parser = vgpu_serve::parse_size)]
    most: u64,
    /// Print one JSON object: size, bytes removed by thinning, and compiled modules.
    #[arg(long)]
    json: bool,
}

/// Returns the paths of the programs in the pack.
fn carried() -> Result<[PathBuf; 6]> {
    Ok([
        programs::launcher()?,
        programs::device()?,
        programs::testbed()?,
        programs::llama()?,
        programs::ops()?,
        programs::standin()?,
    ])
}

/// Returns `NUMBER` of `sm_NUMBER` for a compute capability.
fn architecture(cc: &str) -> Result<u32> {
    let numbers = cc.split_once('.').and_then(|(major, minor)| {
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok().filter(|&minor| minor < 10)?))
    });
    let (major, minor) = numbers.with_context(|| format!("{cc} is no compute capability such as 9.0"))?;
    Ok(major * 10 + minor)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// Creates the directory, or checks that it is empty.
fn create_empty(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    if fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?.next().is_some() {
        bail!("{} is not empty", folder.display());
    }
    Ok(())
}

/// PTX of a fat binary, with its uses.
struct Module {
    /// Bytes of the fat binary's entry, including its header.
    entry: Vec<u8>,
    /// Text of the PTX.
    text: Vec<u8>,
    /// Whether it contains a kernel that the model uses.
    of_model: bool,
    /// Whether it contains the kernel that is left to the driver.
    left: bool,
}

impl Module {
    fn read(entry: &[u8]) -> Result<Self> {
        // The parser accepts only containers, so the entry is wrapped in one.
        let mut container = fatbin::MAGIC.to_le_bytes().to_vec();
        container.extend([1, 0, 16, 0]);
        container.extend((entry.len() as u64).to_le_bytes());
        container.extend(entry);
        let entries = fatbin::entries(&container)?;
        let [only] = &entries[..] else { bail!("an entry is cut off") };
        if only.kind != Kind::Ptx {
            bail!("an entry that should be PTX is not");
        }
        let text = only.unpack()?;
        let kernels = ptx::kernels(&text).context("list the kernels of a module")?;
        let has = |part: &str| kernels.iter().any(|(kernel, _)| kernel.contains(part));
        let (of_model, left) = (MODEL.into_iter().any(has), has(LEFT_TO_THE_DRIVER));
        Ok(Self { entry: entry.to_vec(), text, of_model, left })
    }
}

/// The backend, with code for one architecture.
struct Library {
    bytes: Vec<u8>,
    thinned: Thinned,
    count: Count,
}

impl Library {
    /// Reduces the backend to the PTX that fits `sm` best.
    fn with_ptx(path: &Path, sm: u32) -> Result<Self> {
        let mut bytes = read(path)?;
        let mut thinned = Thinned::default();
        for binary in thin::fat_binaries(&bytes)? {
            let best: Vec<_> = binary.best(&bytes, sm, true)?.map(<[u8]>::to_vec).into_iter().collect();
            binary.fill(&mut bytes, &best, &mut thinned)?;
        }
        Ok(Self { bytes, thinned, count: Count::default() })
    }

    /// Compiles the backend for `sm`, and keeps PTX where it is needed.
    fn compiled(path: &Path, sm: u32) -> Result<Self> {
        let mut bytes = read(path)?;
        let (mut modules, mut texts) = (Vec::new(), Vec::new());
        for binary in thin::fat_binaries(&bytes)? {
            let Some(entry) = binary.best(&bytes, sm, true)? else { continue };
            let mut module = Module::read(entry)?;
            if !module.left {
                texts.push(std::mem::take(&mut module.text));
            }
            modules.push((binary, module));
        }
        if !modules.iter().any(|(_, module)| module.left) {
            bail!("no module has the kernel {LEFT_TO_THE_DRIVER}");
        }
        let (images, count) = Compiler::new(sm)?.compile(&texts)?;
        let (mut thinned, mut images) = (Thinned::default(), images.into_iter());
        for (binary, module) in modules {
            let mut entries = Vec::new();
            if !module.left {
                let image = images.next().context("a module was not compiled")?;
                entries.push(binary.cubin(&bytes, sm, &image)?);
            }
            if module.left || module.of_model {
                entries.push(module.entry);
            }
            binary.fill(&mut bytes, &entries, &mut thinned)?;
        }
        Ok(Self { bytes, thinned, count })
    }
}

/// Writes the archive with the programs, libraries and artifacts of the pack.
fn pack(arguments: &GpuPackArgs, library: &Library, path: &Path) -> Result<()> {
    let scratch = TempDir::with_prefix("vgpu-gpu-pack-").context("make a temporary directory")?;
    let mut archive = Archive::new(path, arguments.level)?;
    for program in carried()? {
        let program = native::stripped(&program, scratch.path())?;
        let name = program.file_name().context("a program without a name")?.to_string_lossy().into_owned();
        archive.file(&format!("bin/{name}"), 0o755, &program)?;
    }
    for name in SHIMS {
        archive.file(&format!("bin/shims/{name}"), 0o644, &programs::shim(name)?)?;
    }
    let folder = BACKEND.folder()?;
    archive
        .artifact(&folder, |name| name != LIBRARY && (name == CPU || !name.starts_with("libggml-cpu-")))?;
    archive.add(&in_cache(&folder, LIBRARY)?, 0o644, &library.bytes)?;
    let [artifact, cudart] = CUDART;
    archive.file(&format!("native/{cudart}"), 0o644, &vgpu_artifacts::fetch(artifact)?.join(cudart))?;
    archive.file(&format!("native/{}", native::BLAS), 0o644, &native::blas(scratch.path())?)?;
    archive.finish()
}

/// Writes the files that accompany the archive: the start script and the checksums.
fn finish(arguments: &GpuPackArgs, path: &Path) -> Result<()> {
    let sums = format!("{}  {ARCHIVE}\n", hex::encode(Sha256::digest(read(path)?)));
    let script = SCRIPT.replace("@CC@", &arguments.cc);
    for (name, text, mode) in [("SHA256SUMS", sums, 0o644), ("start.sh", script, 0o755)] {
        let path = arguments.out.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .with_context(|| format!("change the mode of {}", path.display()))?;
    }
    Ok(())
}

/// Creates the pack and prints the report.
pub fn run_gpu_pack(arguments: &GpuPackArgs) -> Result<ExitCode> {
    let start = Instant::now();
    let sm = architecture(&arguments.cc)?;
    create_empty(&arguments.out)?;
    let library = BACKEND.folder()?.join(LIBRARY);
    let thinned = match arguments.code {
        Code::Ahead => Library::compiled(&library, sm),
        Code::Ptx => Library::with_ptx(&library, sm),
    };
    let library = thinned.with_context(|| format!("thin {}", library.display()))?;
    let compiled_s = start.elapsed().as_secs_f64();
    let path = arguments.out.join(ARCHIVE);
    pack(arguments, &library, &path)?;
    finish(arguments, &path)?;
    let bytes = path.metadata().with_context(|| format!("look at {}", path.display()))?.len();
    let Library { thinned, count, .. } = library;
    let report = json!({
        "cc": arguments.cc,
        "backend": BACKEND.name(),
        "bytes": bytes,
        "thinned": {
            "containers": thinned.containers,
            "images": thinned.images,
            "kept_bytes": thinned.kept,
            "dropped_bytes": thinned.dropped,
        },
        "compiled": { "now": count.compiled, "before": count.found, "seconds": compiled_s },
        "seconds": start.elapsed().as_secs_f64(),
    });
    print(arguments, &report)?;
    if bytes > arguments.most {
        bail!("the pack has {bytes} bytes, which are more than --most {}", arguments.most);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(arguments: &GpuPackArgs, report: &Value) -> Result<()> {
    let mut out = io::stdout().lock();
    if arguments.json {
        return Ok(writeln!(out, "{report:#}")?);
    }
    let mib = |bytes: &Value| bytes.as_u64().unwrap_or(0) >> 20;
    writeln!(
        out,
        "{} MiB in {}, made in {:.0} s; of {} fat binaries {} MiB stayed and {} MiB went.\n\
         Carry the directory to the machine with the GPU and run there: sh start.sh",
        mib(&report["bytes"]),
        arguments.out.display(),
        report["seconds"].as_f64().unwrap_or(0.0),
        report["thinned"]["containers"],
        mib(&report["thinned"]["kept_bytes"]),
        mib(&report["thinned"]["dropped_bytes"]),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use vgpu_image::cubin;

    use super::*;

    /// A module of the real backend that compiles within a moment.
    const KERNEL: &str = "_Z9scale_f32PKfPfffl";

    #[test]
    fn a_module_of_the_backend_gets_machine_code_before_its_ptx() {
        let mut bytes = read(&BACKEND.folder().unwrap().join(LIBRARY)).unwrap();
        let whole = bytes.len();
        let binaries = thin::fat_binaries(&bytes).unwrap();
        assert!(binaries.len() > 100, "{}", binaries.len());
        let found = binaries.iter().find_map(|binary| {
            let module = Module::read(binary.best(&bytes, 90, true).unwrap()?).unwrap();
            module
                .text
                .windows(KERNEL.len())
                .any(|part| part == KERNEL.as_bytes())
                .then_some((binary, module))
        });
        let (binary, module) = found.expect("the kernel is in a module");
        let (images, _) = Compiler::new(90).unwrap().compile(&[module.text]).unwrap();
        let entry = binary.cubin(&bytes, 90, &images[0]).unwrap();
        binary.fill(&mut bytes, &[entry, module.entry], &mut Thinned::default()).unwrap();
        assert_eq!(bytes.len(), whole);
        let container = &bytes[binary.place.clone()];
        let entries = fatbin::entries(container).unwrap();
        let kinds: Vec<_> = entries.iter().map(|entry| (entry.kind, entry.sm)).collect();
        assert_eq!(kinds, [(Kind::Cubin, 90), (Kind::Ptx, 80)]);
        let kernels = cubin::kernels(entries[0].payload).unwrap();
        assert!(kernels.iter().any(|(kernel, _)| kernel == KERNEL), "{kernels:?}");
        assert_eq!(ptx::kernels(&entries[1].unpack().unwrap()).unwrap().len(), kernels.len());
    }
}
