//! Names of the status codes of the CUDA libraries.

use std::ffi::CStr;

use vgpu_abi::CUresult;

use crate::embedded::OBJECTS;

/// Returns the name of a status code. `library` is the library's index in the tracer's table, with libcuda at
/// 0.
pub fn name(library: u16, code: u32) -> Option<&'static str> {
    let name = match library {
        0 => CUresult(code).name(),
        1 => vgpu_abi::runtime::CudaError(code).name(12),
        2 => vgpu_abi::runtime::CudaError(code).name(13),
        3..=6 => Some(vgpu_abi::blas::BlasStatus(code).name()),
        7 => Some(vgpu_abi::nvml::NvmlReturn(code).text()),
        _ => None,
    };
    name.map(CStr::to_str)?.ok()
}

/// Returns the SONAME of the library with this index in the tracer's table.
pub fn soname(library: u16) -> Option<&'static str> {
    OBJECTS.get(usize::from(library)).map(|object| object.soname)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_library_has_its_names() {
        assert_eq!(name(0, 100), Some("CUDA_ERROR_NO_DEVICE"));
        assert_eq!(name(1, 0), Some("cudaSuccess"));
        assert_eq!(name(3, 15), Some("CUBLAS_STATUS_NOT_SUPPORTED"));
        assert_eq!(name(7, 3), Some("Not Supported"));
        assert_eq!((name(8, 0), name(0, 123_456)), (None, None));
    }

    #[test]
    fn numbers_are_those_of_the_tracers_table() {
        for (number, library) in ["libcuda.so.1", "libcudart.so.12", "libcudart.so.13"].iter().enumerate() {
            assert_eq!(soname(number as u16), Some(*library));
        }
    }
}
