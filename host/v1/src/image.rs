//! Images as version 1 guests send them: whole fat binaries, PTX, cubins. The part that the executor gets is
//! chosen as CUDA's driver chooses, by the same rules that version 2 guests apply themselves.

use std::collections::HashMap;

use vgpu_image::fatbin::{self, FatbinError, Kind};
use vgpu_image::layout::Layout;
use vgpu_image::ptx::{PtxError, Specific};
use vgpu_image::{Target, cubin, ptx, rank};
use vgpu_wire::body::module::{IMAGE_CUBIN, IMAGE_PTX};

/// The parameter layout of each kernel of an image, by the kernel's name.
pub(super) type Layouts = HashMap<String, Layout>;

/// Code in a form that the executor takes.
#[derive(Debug)]
pub(super) struct Code {
    /// Kind of the code, [`IMAGE_PTX`] or [`IMAGE_CUBIN`].
    pub(super) kind: u32,
    pub(super) bytes: Vec<u8>,
    pub(super) layouts: Layouts,
}

/// Reason for which an image has no code for the executor.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImageError {
    #[error(transparent)]
    Fatbin(#[from] FatbinError),
    #[error(transparent)]
    Ptx(#[from] PtxError),
    #[error(transparent)]
    Cubin(#[from] cubin::CubinError),
    /// No part of the image is for the device's architecture.
    #[error("nothing in the image is for sm_{0}")]
    None(u32),
}

impl Code {
    /// Chooses the part of an image that is best for the target, as CUDA's driver does, and reads its
    /// kernels' parameter layouts.
    pub(super) fn choose(image: &[u8], target: Target) -> Result<Self, ImageError> {
        let magic = image.first_chunk::<4>().copied().unwrap_or_default();
        let none = ImageError::None(target.sm);
        if u32::from_le_bytes(magic) == fatbin::MAGIC {
            let entries = fatbin::entries(image)?;
            let best = entries
                .iter()
                .filter(|entry| target.takes(entry.kind, entry.sm, entry.specific))
                .max_by_key(|entry| rank(entry.kind, entry.sm, entry.specific));
            let entry = best.ok_or(none)?;
            return Self::read(entry.kind, entry.unpack()?);
        }
        if magic == *b"\x7fELF" {
            let sm = cubin::arch(image)?;
            if !target.takes(Kind::Cubin, sm, Specific::No) {
                return Err(none);
            }
            return Self::read(Kind::Cubin, image.to_vec());
        }
        let text = image.split(|&byte| byte == 0).next().unwrap_or_default();
        let head = ptx::head(text)?;
        if !target.takes(Kind::Ptx, head.sm, head.specific) {
            return Err(none);
        }
        Self::read(Kind::Ptx, text.to_vec())
    }

    fn read(kind: Kind, bytes: Vec<u8>) -> Result<Self, ImageError> {
        let (kind, kernels) = match kind {
            Kind::Ptx => (IMAGE_PTX, ptx::kernels(&bytes)?),
            Kind::Cubin => (IMAGE_CUBIN, cubin::kernels(&bytes)?),
        };
        Ok(Self { kind, bytes, layouts: kernels.into_iter().collect() })
    }
}
