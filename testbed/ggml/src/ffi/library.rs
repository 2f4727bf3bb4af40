//! libggml and libggml-base, which are loaded once for the life of the process, with the functions that need
//! nothing else: types and quantisation.

use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::error::FfiError;
use super::kinds::Type;
use super::raw::{Functions, OBJECT_SIZE, RawTensor, Score, TypeTraits};

/// GGML, loaded into this process. Its backends register themselves in it, so it is never unloaded.
pub struct Ggml {
    pub(super) functions: Functions,
    /// Handle of libggml, which also resolves the functions of libggml-base.
    pub(super) library: Library,
    folder: PathBuf,
}

pub(super) fn open(path: &Path) -> Result<Library, FfiError> {
    // SAFETY: the libraries are GGML's own; their initialisers are those that any user of GGML runs.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    library.map_err(|source| FfiError::Load { path: path.to_owned(), source })
}

/// Returns the libraries of a directory whose names are `wanted`, sorted by name.
fn list(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, FfiError> {
    let entries =
        std::fs::read_dir(folder).map_err(|source| FfiError::Folder { folder: folder.to_owned(), source })?;
    let mut paths: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| wanted(name))
        .map(|name| folder.join(name))
        .collect();
    paths.sort();
    Ok(paths)
}

impl Ggml {
    /// Loads libggml-base and libggml from a directory. They stay loaded until the process ends, because
    /// GGML's registry of backends does.
    pub(super) fn load(folder: &Path) -> Result<&'static Self, FfiError> {
        let missing = |wanted| FfiError::Missing { folder: folder.to_owned(), wanted };
        let base = list(folder, |name| name.starts_with("libggml-base.so"))?;
        let base = open(base.first().ok_or_else(|| missing("libggml-base.so"))?)?;
        let ggml = list(folder, |name| name.starts_with("libggml.") && name.contains(".so"))?;
        let ggml = open(ggml.first().ok_or_else(|| missing("libggml.so"))?)?;
        // SAFETY: the library is GGML's by its name; `check` compares what it says of itself with the types
        // here.
        let functions = unsafe { Functions::load(&ggml) }?;
        std::mem::forget(base);
        let loaded = Self { functions, library: ggml, folder: folder.to_owned() };
        loaded.check()?;
        Ok(Box::leak(Box::new(loaded)))
    }

    /// Checks that the sizes of a tensor and of the types' blocks match those of the headers.
    fn check(&self) -> Result<(), FfiError> {
        let differ = |what: &str, found, expected| {
            if found == expected {
                return Ok(());
            }
            Err(FfiError::Version { what: what.to_owned(), found, expected })
        };
        // SAFETY: the call has no arguments and reads no state.
        let overhead = unsafe { (self.functions.ggml_tensor_overhead)() };
        differ("ggml_tensor_overhead()", overhead, size_of::<RawTensor>() + OBJECT_SIZE)?;
        for kind in Type::ALL {
            let block = usize::try_from(self.traits(kind).block).unwrap_or_default();
            differ(&format!("the block of {}", kind.name()), block, kind.block().unsigned_abs() as usize)?;
        }
        Ok(())
    }

    /// Returns the version string of `ggml_version`.
    pub fn version(&self) -> String {
        // SAFETY: the call has no arguments.
        text(unsafe { (self.functions.ggml_version)() })
    }

    /// Returns the variant of the CPU backend in GGML's directory that GGML itself would choose for this CPU.
    pub fn best_cpu(&self) -> Result<PathBuf, FfiError> {
        let mut best = None;
        for path in list(&self.folder, |name| name.starts_with("libggml-cpu") && name.contains(".so"))? {
            let library = open(&path)?;
            // SAFETY: `ggml-backend-impl.h` declares `int ggml_backend_score(void)` for backends in variants.
            let score = unsafe { library.get::<Score>("ggml_backend_score") };
            let score = match score {
                // SAFETY: the function has no arguments and asks the CPU what it is.
                Ok(score) => unsafe { score() },
                // A build with a single CPU backend has no scores.
                Err(_) => 1,
            };
            if score > 0 && best.as_ref().is_none_or(|(highest, _)| score > *highest) {
                best = Some((score, path));
            }
        }
        let missing = FfiError::Missing { folder: self.folder.clone(), wanted: "libggml-cpu that runs here" };
        best.map(|(_, path)| path).ok_or(missing)
    }

    pub(super) fn traits(&self, kind: Type) -> &'static TypeTraits {
        // SAFETY: the number is one of `enum ggml_type`.
        let traits = unsafe { (self.functions.ggml_get_type_traits)(kind.raw()) };
        // SAFETY: GGML returns an element of its constant table.
        unsafe { &*traits }
    }

    /// Returns the size in bytes of `elements` elements, which must be a whole number of blocks.
    pub fn bytes(&self, kind: Type, elements: i64) -> usize {
        // SAFETY: the number is one of `enum ggml_type`.
        unsafe { (self.functions.ggml_row_size)(kind.raw(), elements) }
    }

    /// Encodes floats as a float or quantised type with `ggml_quantize_chunk`, in rows of `row` elements.
    pub fn quantize(&self, kind: Type, values: &[f32], row: i64) -> Vec<u8> {
        assert!(row > 0 && row % kind.block() == 0 && !kind.is_integer());
        let row_elements = row.unsigned_abs() as usize;
        assert!(values.len().is_multiple_of(row_elements));
        let rows = (values.len() / row_elements) as i64;
        let mut bytes = vec![0; self.bytes(kind, row) * (values.len() / row_elements)];
        // SAFETY: the number is one of `enum ggml_type`.
        let weighted = unsafe { (self.functions.ggml_quantize_requires_imatrix)(kind.raw()) };
        // All columns are equally important.
        let importance = weighted.then(|| vec![1.0_f32; row_elements]);
        let importance = importance.as_ref().map_or(ptr::null(), Vec::as_ptr);
        // SAFETY: `values` has `rows` rows of `row` floats, `bytes` room for as many of the type, and the
        // importances are null or one a column.
        unsafe {
            (self.functions.ggml_quantize_chunk)(
                kind.raw(),
                values.as_ptr(),
                bytes.as_mut_ptr().cast(),
                0,
                rows,
                row,
                importance,
            )
        };
        bytes
    }

    /// Decodes a whole number of blocks of a float or quantised type.
    pub fn dequantize(&self, kind: Type, bytes: &[u8]) -> Vec<f32> {
        assert!(!kind.is_integer());
        let traits = self.traits(kind);
        assert!(bytes.len().is_multiple_of(traits.size));
        let Some(to_float) = traits.to_float else {
            return bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        };
        let elements = bytes.len() / traits.size * traits.block.unsigned_abs() as usize;
        let mut values = vec![0.0; elements];
        // The blocks hold 16-bit scales: they must lie at even addresses.
        let mut aligned = vec![0_u64; bytes.len().div_ceil(8)];
        // SAFETY: `aligned` has room for the bytes, and any bytes are u64 values.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), aligned.as_mut_ptr().cast::<u8>(), bytes.len()) };
        // SAFETY: `aligned` holds as many whole blocks as make `elements` values.
        unsafe { to_float(aligned.as_ptr().cast(), values.as_mut_ptr(), elements as i64) };
        values
    }
}

/// Copies a C string of GGML; a null pointer yields an empty string.
pub(super) fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: GGML's strings are zero-ended and live as long as what they describe.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
