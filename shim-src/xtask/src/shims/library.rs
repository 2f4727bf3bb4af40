//! The libraries of NVIDIA's that shims stand in for.

/// How an object uses libcuda.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// It is libcuda.
    Is,
    /// It always needs it.
    Needs,
    /// It needs it if it calls it.
    MayNeed,
}

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

/// libcuda, which the others need or may need.
pub const LIBCUDA: Library = Library {
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

/// Where a library stands in [`LIBRARIES`]; behind them all if it is none of them.
pub fn position(soname: &str) -> usize {
    LIBRARIES.iter().position(|library| library.soname == soname).unwrap_or(LIBRARIES.len())
}
