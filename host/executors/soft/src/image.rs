//! Images: the PTX texts of programs. Each is read once for all sessions and found by its digest.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use vgpu_device::{CachedImage, Digest, has_digest};
use vgpu_ptx::ir::Kernel;
use vgpu_ptx::{Effort, Interrupt, Linkage, Module, PtxError, Spent};
use vgpu_wire::facts::DeviceFacts;

use crate::status;

/// Bytes of texts and parsed kernels that are cached although no session uses them.
const KEPT: u64 = 512 << 20;

/// The device's requirements for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Compute capability, as in `sm_61`.
    sm: u32,
    /// Newest PTX version that the device accepts, as major and minor.
    version: (u32, u32),
}

impl Rules {
    pub(crate) fn new(facts: &DeviceFacts) -> Self {
        Self {
            sm: 10 * facts.cc_major + facts.cc_minor,
            version: vgpu_image::ptx::newest(facts.driver_version),
        }
    }
}

/// Reason for which an image cannot be loaded as a module, or a kernel of it cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    /// The image's bytes do not match its digest.
    #[error("the image's bytes are not those of its digest")]
    Digest,
    /// The image's PTX version is newer than the driver's.
    #[error("the image is PTX {}.{}, the driver knows {}.{}", .found.0, .found.1, .newest.0, .newest.1)]
    Version { found: (u32, u32), newest: (u32, u32) },
    /// The image is for a newer architecture.
    #[error("the image is for sm_{target}, the device is sm_{sm}")]
    Target { target: u32, sm: u32 },
    /// The image declares a variable `.extern`, which only a link with another module can define.
    #[error("the image needs the variable {0} of another module")]
    Extern(String),
    /// The front end rejects the text.
    #[error(transparent)]
    Ptx(#[from] PtxError),
    /// The engine rejects a kernel of the image.
    #[error("kernel {name}: {error}")]
    Engine { name: String, error: vgpu_simt::EngineError },
    /// Reading was interrupted, or preparing a kernel takes more work or memory than the device allows.
    #[error("{what}: {spent}")]
    Spent { what: String, spent: Spent },
}

impl ImageError {
    /// Returns the `CUresult` that CUDA returns in this case: from `cuModuleLoadData`, or from
    /// `cuModuleGetFunction` if a kernel is the reason.
    pub(crate) const fn code(&self) -> u32 {
        match self {
            Self::Digest => status::INVALID_IMAGE,
            Self::Version { .. } => status::UNSUPPORTED_PTX_VERSION,
            Self::Target { .. } => status::NO_BINARY_FOR_GPU,
            Self::Ptx(PtxError::NoKernel(_)) => status::NOT_FOUND,
            Self::Spent { spent: Spent::Halted(_), .. } => status::LAUNCH_TIMEOUT,
            Self::Ptx(PtxError::Spent(Spent::NoMemory { .. }))
            | Self::Spent { spent: Spent::NoMemory { .. }, .. } => status::OUT_OF_MEMORY,
            Self::Ptx(PtxError::Spent(_) | PtxError::TooLarge { .. }) | Self::Spent { .. } => {
                status::LAUNCH_OUT_OF_RESOURCES
            }
            Self::Ptx(_) | Self::Extern(_) | Self::Engine { .. } => status::INVALID_PTX,
        }
    }
}

/// A PTX text that has been read, and the kernels parsed so far.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) module: Module,
    /// Digest of the text.
    digest: Digest,
    /// Length of the text in bytes.
    bytes: u64,
    /// Size of the parsed kernels in bytes.
    parsed: AtomicU64,
    /// The parsed kernels, by name.
    kernels: Mutex<HashMap<String, Arc<Kernel>>>,
}

impl Image {
    /// Returns a kernel, and parses it on first use. No lock is held during parsing, so several sessions may
    /// parse the same kernel at once. Fails with `PtxError::NoKernel` if the module has no kernel of this
    /// name.
    pub(crate) fn kernel(&self, name: &str, effort: &Effort) -> Result<Arc<Kernel>, ImageError> {
        let kernels = || self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels().get(name) {
            return Ok(Arc::clone(kernel));
        }
        let spent = |error| match error {
            PtxError::Spent(spent) => ImageError::Spent { what: format!("kernel {name}"), spent },
            error => ImageError::Ptx(error),
        };
        let kernel = Arc::new(self.module.kernel_within(name, effort).map_err(spent)?);
        let mut kernels = kernels();
        let known = kernels.entry(name.to_owned()).or_insert_with(|| {
            self.parsed.fetch_add(kernel_bytes(&kernel), Ordering::Relaxed);
            kernel
        });
        Ok(Arc::clone(known))
    }

    /// Returns the digest of the text, which has been verified.
    pub(crate) const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the length of the text in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns the size in bytes of the host memory that a parsed kernel takes.
pub(crate) fn kernel_bytes(kernel: &Kernel) -> u64 {
    let Kernel { name, params, registers, code, blocks, .. } = kernel;
    let lists =
        size_of_val(&**params) + size_of_val(&**registers) + size_of_val(&**code) + size_of_val(&**blocks);
    (size_of::<Kernel>() + name.len() + lists) as u64
}

impl CachedImage for Image {
    fn kept_bytes(&self) -> u64 {
        self.bytes + self.parsed.load(Ordering::Relaxed)
    }
}

/// The images of all sessions, by digest.
#[derive(Debug)]
pub(crate) struct Images {
    rules: Rules,
    kept: vgpu_device::ImageCache<Image>,
}

impl Images {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, kept: vgpu_device::ImageCache::new(KEPT) }
    }

    /// Returns the image with a digest, or `None` if no session has loaded it or it is no longer cached.
    pub(crate) fn find(&self, digest: &Digest) -> Option<Arc<Image>> {
        self.kept.find(digest)
    }

    /// Verifies the digest of a text, reads the text and caches the image. Kernels are parsed later. Fails if
    /// the device cannot run the image: its PTX version or target is too new, or it has `.extern` variables.
    pub(crate) fn bring(
        &self,
        digest: Digest,
        text: Vec<u8>,
        interrupt: &Interrupt,
    ) -> Result<Arc<Image>, ImageError> {
        let spent = |spent: Spent| ImageError::Spent { what: "read an image".to_owned(), spent };
        if !has_digest(&text, &digest, || interrupt.check().map_err(|halt| spent(halt.into())))? {
            return Err(ImageError::Digest);
        }
        let bytes = text.len() as u64;
        let effort = Effort::unlimited(interrupt.clone());
        let module = Module::parse_within(text, &effort).map_err(|error| match error {
            PtxError::Spent(why) => spent(why),
            error => error.into(),
        })?;
        let Rules { sm, version: newest } = self.rules;
        let (found, target) = (module.version(), module.target());
        if found > newest {
            return Err(ImageError::Version { found, newest });
        }
        if target > sm {
            return Err(ImageError::Target { target, sm });
        }
        if let Some(global) = module.globals().iter().find(|global| global.linkage == Linkage::Extern) {
            return Err(ImageError::Extern(global.name.clone()));
        }
        let image = Image { module, digest, bytes, parsed: AtomicU64::new(0), kernels: Mutex::default() };
        Ok(self.kept.insert(digest, image))
    }

    /// Returns the size of all cached images in bytes. Kernels that were parsed since the last call can
    /// exceed the limit, so this also drops images.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept.kept_bytes()
    }

    /// Returns the device's architecture, as in `sm_61`.
    pub(crate) const fn sm(&self) -> u32 {
        self.rules.sm
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};
    use vgpu_device::GpuConfig;

    use super::*;

    fn images(driver_version: u32) -> Images {
        let config = GpuConfig { driver_version, ..GpuConfig::new("x").unwrap() };
        Images::new(Rules::new(&config.facts(0).unwrap()))
    }

    fn bring(images: &Images, text: &str) -> Result<Arc<Image>, ImageError> {
        images.bring(Sha256::digest(text).into(), text.into(), &Interrupt::default())
    }

    fn text(version: &str, target: &str, rest: &str) -> String {
        format!(".version {version}\n.target {target}\n.address_size 64\n{rest}")
    }

    #[test]
    fn what_the_device_cannot_take_is_refused_as_cuda_does() {
        let images = images(12_040);
        for (text, code) in [
            (text("8.4", "sm_61", ""), 0),
            (text("7.0", "sm_30", ""), 0),
            (text("8.5", "sm_61", ""), status::UNSUPPORTED_PTX_VERSION),
            (text("9.0", "sm_61", ""), status::UNSUPPORTED_PTX_VERSION),
            (text("8.4", "sm_70", ""), status::NO_BINARY_FOR_GPU),
            (text("8.4", "sm_61", ".visible .entry x { foo }"), 0),
            (text("8.4", "sm_61", "foo"), status::INVALID_PTX),
            (text("8.4", "sm_61", ".extern .global .u32 other;"), status::INVALID_PTX),
            (String::new(), status::INVALID_PTX),
        ] {
            let found = bring(&images, &text).map_or_else(|error| error.code(), |_| status::SUCCESS);
            assert_eq!(found, code, "{text}");
        }
        let wrong =
            images.bring([0; 32], text("8.4", "sm_61", "").into(), &Interrupt::default()).unwrap_err();
        assert_eq!(wrong.code(), status::INVALID_IMAGE);
    }
}
