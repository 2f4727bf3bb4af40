//! The libraries of NVIDIA that shims replace.

/// A library of NVIDIA that a shim replaces.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// SONAME of the library, and file name in `embedded/`.
    pub soname: &'static str,
    /// Crate that implements the library. In the static library of all shims, its exports are prefixed with
    /// this name.
    pub implementation: &'static str,
    /// CUDA major version, for libraries with one object per major.
    pub major: Option<u8>,
    /// Whether all exports carry a version node, whose name is the SONAME.
    pub versioned: bool,
    /// Status that unimplemented functions of the library return.
    pub not_supported: i32,
    /// Status that functions return in a process whose libcuda.so.1 is not from the same build.
    pub not_initialized: i32,
}

impl Library {
    /// Returns the version node of the exports, if they have one.
    pub fn node(&self) -> Option<&'static str> {
        self.versioned.then_some(self.soname)
    }

    const fn of_major(mut self, soname: &'static str, major: u8, implementation: &'static str) -> Self {
        self.soname = soname;
        self.major = Some(major);
        self.implementation = implementation;
        self
    }
}

/// Entry of libcuda, which contains the code of all shims.
pub const LIBCUDA: Library = Library {
    soname: "libcuda.so.1",
    implementation: "vgpu_libcuda",
    major: None,
    versioned: false,
    not_supported: 801, // CUDA_ERROR_NOT_SUPPORTED
    not_initialized: 3, // CUDA_ERROR_NOT_INITIALIZED
};
const CUDART: Library = Library {
    versioned: true,
    not_supported: 801, // cudaErrorNotSupported
    not_initialized: 3, // cudaErrorInitializationError
    ..LIBCUDA
};
const CUBLAS: Library = Library {
    not_supported: 15,  // CUBLAS_STATUS_NOT_SUPPORTED
    not_initialized: 1, // CUBLAS_STATUS_NOT_INITIALIZED
    ..CUDART
};
const NVML: Library = Library {
    soname: "libnvidia-ml.so.1",
    implementation: "vgpu_libnvidia_ml",
    not_supported: 3,   // NVML_ERROR_NOT_SUPPORTED
    not_initialized: 9, // NVML_ERROR_DRIVER_NOT_LOADED
    ..LIBCUDA
};

/// All shims. Libcuda is the first, because the others are linked against it.
pub const LIBRARIES: [Library; 8] = [
    LIBCUDA,
    CUDART.of_major("libcudart.so.12", 12, "vgpu_libcudart"),
    CUDART.of_major("libcudart.so.13", 13, "vgpu_libcudart13"),
    CUBLAS.of_major("libcublas.so.12", 12, "vgpu_libcublas"),
    CUBLAS.of_major("libcublas.so.13", 13, "vgpu_libcublas13"),
    CUBLAS.of_major("libcublasLt.so.12", 12, "vgpu_libcublaslt"),
    CUBLAS.of_major("libcublasLt.so.13", 13, "vgpu_libcublaslt13"),
    NVML,
];

/// Returns the index of a library in [`LIBRARIES`], or their number if it is not among them.
pub fn position(soname: &str) -> usize {
    LIBRARIES.iter().position(|library| library.soname == soname).unwrap_or(LIBRARIES.len())
}
