//! Tests of how the executor finds and loads NVIDIA's other libraries: cuBLAS with cuBLASLt, and NVML. The
//! libraries are stand-ins that note when they are loaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;
use vgpu_device::{Executor, GpuConfig};
use vgpu_executor_cuda::{Cuda, CudaOptions};
use vgpu_host_testing::bench::{Bench, config};
use vgpu_host_testing::commands::{allocate, synchronize};
use vgpu_recording_cuda::Recording;
use vgpu_wire::facts::exec;

use crate::products::product;

/// A directory in place of `/`, with libraries.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles the library `part` of `library.c` to a file, with these arguments as well.
    fn library(&self, part: &str, file: &str, arguments: &[String]) -> PathBuf {
        let path = self.path(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        let soname = path.file_name().expect("a name").to_string_lossy().into_owned();
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-w", "-x", "c"])
            .arg(format!("-D{part}"))
            .arg(format!("-DLOG=\"{}\"", self.path("log").display()))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/library.c"))
            .args(["-x", "none"])
            .args(arguments)
            .arg(format!("-Wl,-soname,{soname}"))
            .arg("-o")
            .arg(&path)
            .status()
            .expect("a C compiler");
        assert!(built.success(), "{file}");
        path
    }

    /// Adds cuBLAS of CUDA 13 and its cuBLASLt, which the loader alone does not find. Returns the path of
    /// cuBLAS.
    fn add_blas(&self, directory: &str) -> PathBuf {
        let lt = self.library("LT", &format!("{directory}/libcublasLt.so.13"), &[]);
        self.library("BLAS", &format!("{directory}/libcublas.so.13"), &[lt.display().to_string()])
    }

    /// Returns the names of the libraries that were loaded, in their order.
    fn loaded(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Creates an executor with a recording libcuda, whose other libraries are searched here.
    fn executor(&self, change: impl FnOnce(&mut CudaOptions)) -> (Cuda, Recording) {
        let recording = Recording::new(&json!({})).expect("a recording libcuda");
        let addresses = GpuConfig::new("any").expect("a range of addresses").addresses;
        let mut options = CudaOptions {
            libcuda: Some(recording.library()),
            root: self.0.path().to_owned(),
            ..CudaOptions::new(addresses)
        };
        change(&mut options);
        (Cuda::new(&options).expect("a cuda executor"), recording)
    }
}

/// Returns the extensions of the contract that cuBLAS and cuBLASLt make possible.
fn extensions(cuda: &Cuda) -> u32 {
    cuda.facts().abilities & (exec::VECTORS | exec::EPILOGUES)
}

/// Checks that an executor announces the libraries' extensions without loading them, and loads them, cuBLASLt
/// first, when a guest multiplies.
fn loads_at_the_first_product(root: &Root, change: impl FnOnce(&mut CudaOptions)) {
    let (cuda, _recording) = root.executor(change);
    assert_eq!(extensions(&cuda), exec::VECTORS | exec::EPILOGUES);
    let bench = Bench::with(config(cuda));
    let mut guest = bench.guest(0);
    let memory = allocate(&mut guest, 4096);
    synchronize(&mut guest);
    assert_eq!(root.loaded(), [] as [&str; 0]);
    guest.send(&product(0, memory), &[]);
    synchronize(&mut guest);
    assert_eq!((guest.late(), root.loaded()), (None, vec!["libcublasLt".to_owned(), "libcublas".to_owned()]));
}

#[test]
fn cublas_of_a_toolkit_is_found_and_loaded_at_the_first_product() {
    let root = Root::new();
    root.add_blas("usr/local/cuda-13.0/lib64");
    loads_at_the_first_product(&root, |_| ());
}

#[test]
fn a_named_cublas_is_loaded_with_the_cublaslt_beside_it() {
    let root = Root::new();
    let path = root.add_blas("anywhere");
    loads_at_the_first_product(&root, |options| options.libcublas = Some(path));
}

#[test]
fn a_cublas_that_lacks_functions_is_passed_over() {
    let root = Root::new();
    let lt = root.library("LT", "lib64/libcublasLt.so.13", &[]);
    let arguments = ["-DINCOMPLETE".to_owned(), lt.display().to_string()];
    let incomplete = root.library("BLAS", "lib64/libcublas.so.13", &arguments);
    let only = |options: &mut CudaOptions| options.libcublas = Some(incomplete.clone());
    assert_eq!(extensions(&root.executor(only).0), 0);
    let path = root.add_blas("usr/local/lib/python3.12/site-packages/nvidia/cu13/lib");
    assert_eq!(extensions(&root.executor(|_| ()).0), exec::VECTORS | exec::EPILOGUES);
    // Without a cuBLASLt of its version beside it.
    fs::remove_file(path.with_file_name("libcublasLt.so.13")).expect("a file");
    let alone = |options: &mut CudaOptions| options.libcublas = Some(path.clone());
    assert_eq!(extensions(&root.executor(alone).0), exec::VECTORS);
    assert_eq!(root.loaded(), [] as [&str; 0]);
}

#[test]
fn nvml_tells_the_drivers_version_where_the_kernel_module_does_not() {
    let root = Root::new();
    let nvml = root.library("NVML", "nvml/libnvidia-ml.so.1", &[]);
    let version = |library: &Path| {
        let library = library.to_owned();
        let (cuda, _recording) = root.executor(|options| options.libnvidia_ml = Some(library));
        let text = cuda.facts().driver_text;
        String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned()
    };
    assert_eq!(version(Path::new("/does/not/exist.so")), "");
    assert_eq!((version(&nvml), root.loaded()), ("580.159.04".to_owned(), vec!["libnvidia-ml".to_owned()]));
    fs::create_dir_all(root.path("proc/driver/nvidia")).expect("a directory");
    let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:09:38 UTC 2025\n";
    fs::write(root.path("proc/driver/nvidia/version"), text).expect("a file");
    assert_eq!((version(&nvml), root.loaded().len()), ("580.65.06".to_owned(), 1));
}
