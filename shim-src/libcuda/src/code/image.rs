//! Images, in which programs pass code, and the choice of the part that fits a device. Choosing a part reads
//! only headers; a part is unpacked when its code is needed.

use std::ffi::{CStr, c_void};
use std::slice;
use std::sync::Arc;

use vgpu_abi::{CUresult, log};
pub use vgpu_image::Target;
use vgpu_image::rank;
use vgpu_wire::body::module::{IMAGE_CUBIN, IMAGE_PTX};
use vgpu_wire::facts::exec;

use crate::Result;
use crate::code::layout::Kernels;
use crate::code::part::{Bytes, ImagePart, PartNames};
use crate::code::refusal;
use crate::cubin::{self, Length};
use crate::fatbin::{self, Entry, Kind, Packing};
use crate::ptx::{self, PtxError, Specific};
use crate::sync::Mutex;

/// Code that a program passed, for one or more architectures.
#[derive(Debug)]
pub struct Image {
    parts: Vec<ImagePart>,
}

/// The part of an image that fits a device.
#[derive(Debug)]
pub struct Code {
    part: ImagePart,
    /// PTX of the same image that fits the device too. `None` if this part is PTX, or there is none.
    instead: Option<Arc<Code>>,
    read: Mutex<Read>,
}

/// The results of reading a part, so that it is not read twice.
#[derive(Debug, Default)]
struct Read {
    /// The unpacked code, kept until the device has it. It can be unpacked again.
    bytes: Option<Bytes>,
    /// The kernels of the code, and the layout of their parameters.
    kernels: Option<Arc<Kernels>>,
}

impl Image {
    /// Reads the image at an address: a fat binary, nvcc's structure that points to one, a cubin, or PTX
    /// text. With `kept` the program promises that it stays there unchanged; otherwise it is copied.
    ///
    /// # Safety
    /// One of these is at the address, complete as its own headers say; text ends with zero.
    pub unsafe fn read(address: *const c_void, kept: bool) -> Result<Self> {
        if address.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: every kind of image has 4 bytes at least: a text of fewer is not one, and its zero is among
        // them or follows within the same word, since no memory ends between aligned words; else the caller
        // lied.
        let magic = unsafe { address.cast::<u32>().read_unaligned() };
        if magic == fatbin::WRAPPER_MAGIC {
            // SAFETY: the structure has three words of 8 bytes.
            let place = unsafe { address.cast::<*const c_void>().add(1) };
            // SAFETY: the second of them is the container's address.
            let inner = unsafe { place.read_unaligned() };
            if inner.is_null() || inner == address {
                return Err(CUresult::INVALID_IMAGE);
            }
            // SAFETY: upheld by the caller, who handed over nvcc's structure.
            return unsafe { Self::read_one(inner, kept) };
        }
        // SAFETY: upheld by the caller.
        unsafe { Self::read_one(address, kept) }
    }

    /// Reads the image at an address, which is not nvcc's structure.
    ///
    /// # Safety
    /// As for [`Image::read`].
    unsafe fn read_one(address: *const c_void, kept: bool) -> Result<Self> {
        let start = address.cast::<u8>();
        // SAFETY: as in `read`.
        let magic = unsafe { start.cast::<[u8; 4]>().read() };
        if u32::from_le_bytes(magic) == fatbin::MAGIC {
            // SAFETY: a fat binary starts with a header of this size.
            let header = unsafe { start.cast::<[u8; fatbin::HEADER]>().read() };
            let bytes = fatbin::length(header).map_err(refuse)?;
            // SAFETY: the container is as long as its header says; the lifetime is used only as far as `kept`
            // allows.
            return Self::of_fatbin(unsafe { slice::from_raw_parts(start, bytes) }, kept);
        }
        if magic == *b"\x7fELF" {
            let mut known = 0;
            loop {
                // SAFETY: the image's headers say that it reaches as far as has been asked for; ELF's own
                // header is always there.
                let bytes = unsafe { slice::from_raw_parts(start, known) };
                match cubin::length(bytes).map_err(refuse)? {
                    Length::More(more) if more > known => known = more,
                    Length::More(_) => return Err(CUresult::INVALID_IMAGE),
                    Length::Known(length) => {
                        // SAFETY: as above.
                        return Self::of_cubin(unsafe { slice::from_raw_parts(start, length) }, kept);
                    }
                }
            }
        }
        // SAFETY: what is neither is a text, ended by zero.
        let text = unsafe { CStr::from_ptr(start.cast()) };
        Self::of_ptx(text.to_bytes(), kept)
    }

    /// Reads an image from the contents of a file.
    pub fn of_file(bytes: &[u8]) -> Result<Self> {
        // Only copies are kept, so the lifetime does not matter.
        match bytes.first_chunk::<4>() {
            Some(magic) if u32::from_le_bytes(*magic) == fatbin::MAGIC => Self::of_fatbin(bytes, false),
            Some(b"\x7fELF") => Self::of_cubin(bytes, false),
            _ => Self::of_ptx(bytes.split(|&byte| byte == 0).next().unwrap_or_default(), false),
        }
    }

    fn of_fatbin(container: &[u8], kept: bool) -> Result<Self> {
        let entries = fatbin::entries(container).map_err(refuse)?;
        let part = |entry: &Entry<'_>| ImagePart {
            kind: entry.kind,
            sm: entry.sm,
            specific: entry.specific,
            packing: entry.packing,
            unpacked: entry.unpacked,
            payload: Bytes::owned_if_needed(entry.stored(), kept),
            alone: false,
        };
        Ok(Self { parts: entries.iter().map(part).collect() })
    }

    fn of_cubin(elf: &[u8], kept: bool) -> Result<Self> {
        let sm = cubin::arch(elf).map_err(refuse)?;
        Ok(Self::alone(Kind::Cubin, sm, Specific::No, elf, kept))
    }

    fn of_ptx(text: &[u8], kept: bool) -> Result<Self> {
        let head = ptx::outline(text).map_err(|error| {
            refusal::report(format_args!("an image is refused: {error}"));
            // A text that does not start like PTX is no image at all.
            if error == PtxError::Begin { CUresult::INVALID_IMAGE } else { CUresult::INVALID_PTX }
        })?;
        Ok(Self::alone(Kind::Ptx, head.sm, head.specific, text, kept))
    }

    fn alone(kind: Kind, sm: u32, specific: Specific, bytes: &[u8], kept: bool) -> Self {
        let payload = Bytes::owned_if_needed(bytes, kept);
        let packing = Packing::Plain;
        Self { parts: vec![ImagePart { kind, sm, specific, packing, unpacked: 0, payload, alone: true }] }
    }

    /// Returns the part that fits a device best: the one for the highest architecture, since the program
    /// chose its kernels by it, and a cubin before PTX for the same architecture.
    pub fn choose(&self, target: Target) -> Result<Arc<Code>> {
        if target.abilities & (exec::CUBIN | exec::PTX) == 0 {
            log::error(format_args!("the device takes no code"));
            return Err(CUresult::NOT_SUPPORTED);
        }
        let best = |among: &dyn Fn(&ImagePart) -> bool| {
            let fitting = self.parts.iter().filter(|part| target.takes(part.kind, part.sm, part.specific));
            fitting.filter(|part| among(part)).max_by_key(|part| rank(part.kind, part.sm, part.specific))
        };
        let code = |part: &ImagePart, instead| {
            Arc::new(Code { part: part.clone(), instead, read: Mutex::default() })
        };
        if let Some(part) = best(&|_| true) {
            // A part of a fat binary is checked when it is unpacked. A part that is passed by itself is
            // checked here.
            if part.alone {
                refuse_managed(part.kind, &part.unpack().map_err(refuse)?)?;
            }
            let text = best(&|part| part.kind == Kind::Ptx).filter(|_| part.kind == Kind::Cubin);
            return Ok(code(part, text.map(|text| code(text, None))));
        }
        let compiled = self.parts.iter().any(|part| part.kind == Kind::Cubin);
        let (sm, there) = (target.sm, PartNames(&self.parts));
        if compiled && target.abilities & exec::CUBIN == 0 {
            refusal::report(format_args!(
                "compiled code cannot run here; PTX is needed, for sm_{sm} at most: the image has {there}"
            ));
        } else {
            refusal::report(format_args!("no image for sm_{sm} among {there}"));
        }
        // A text by itself fails as its compilation would fail.
        Err(match &self.parts[..] {
            [part] if part.alone && part.kind == Kind::Ptx && target.abilities & exec::PTX != 0 => {
                CUresult::INVALID_PTX
            }
            _ => CUresult::NO_BINARY_FOR_GPU,
        })
    }
}

/// Refuses code with a variable that host and kernels would share, since managed memory is not supported.
fn refuse_managed(kind: Kind, bytes: &[u8]) -> Result {
    let managed = match kind {
        Kind::Ptx => ptx::managed(bytes),
        Kind::Cubin => cubin::managed(bytes).map_err(refuse)?,
    };
    let Some(name) = managed else { return Ok(()) };
    refusal::report(format_args!(
        "a module is refused: its variable {name} is __managed__, and there is no managed memory here"
    ));
    Err(CUresult::NOT_SUPPORTED)
}

fn refuse(error: impl std::error::Error) -> CUresult {
    refusal::report(format_args!("an image is refused: {error}"));
    CUresult::INVALID_IMAGE
}

impl Code {
    /// Returns the number of the image's kind in messages.
    pub fn wire_kind(&self) -> u32 {
        if self.part.kind == Kind::Ptx { IMAGE_PTX } else { IMAGE_CUBIN }
    }

    /// Returns the architecture, as in `sm_NUMBER`.
    pub fn sm(&self) -> u32 {
        self.part.sm
    }

    /// Returns PTX of the same image, for a device that turns out to accept no cubins.
    pub const fn instead(&self) -> Option<&Arc<Self>> {
        self.instead.as_ref()
    }

    /// Unpacks the code. Fails for code that cannot be used.
    pub fn bytes(&self) -> Result<Bytes> {
        self.kernels()?;
        let mut read = self.read.lock();
        if let Some(bytes) = &read.bytes {
            return Ok(bytes.clone());
        }
        let bytes = self.part.unpack().map_err(refuse)?;
        Ok(read.bytes.insert(bytes).clone())
    }

    /// Returns the kernels that the code declares. The first call unpacks the code and keeps it for the next
    /// user.
    pub fn kernels(&self) -> Result<Arc<Kernels>> {
        let mut read = self.read.lock();
        if let Some(kernels) = &read.kernels {
            return Ok(Arc::clone(kernels));
        }
        let bytes = self.part.unpack().map_err(refuse)?;
        if !self.part.alone {
            refuse_managed(self.part.kind, &bytes)?;
        }
        let kernels = match self.part.kind {
            Kind::Ptx => ptx::kernels(&bytes).map_err(|error| {
                refusal::report(format_args!("PTX is refused: {error}"));
                CUresult::INVALID_PTX
            })?,
            Kind::Cubin => cubin::kernels(&bytes).map_err(refuse)?,
        };
        let kernels = Arc::new(Kernels::new(kernels));
        *read = Read { bytes: Some(bytes), kernels: Some(Arc::clone(&kernels)) };
        Ok(kernels)
    }

    /// Frees the unpacked code.
    pub fn close(&self) {
        self.read.lock().bytes = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: u32 = exec::CUBIN | exec::PTX;

    fn image(parts: &[(Kind, u32, Specific)]) -> Image {
        let images: Vec<fatbin::build::Image> = parts
            .iter()
            .map(|&(kind, sm, specific)| {
                (kind, sm, specific, Packing::Lz4, format!("{kind:?} {sm} {specific:?}").into_bytes())
            })
            .collect();
        Image::of_file(&fatbin::build::fatbin(&images)).unwrap()
    }

    fn chosen(image: &Image, sm: u32, abilities: u32) -> std::result::Result<String, CUresult> {
        let code = image.choose(Target { sm, abilities })?;
        Ok(String::from_utf8(code.part.unpack().unwrap().to_vec()).unwrap())
    }

    const GGML: &[(Kind, u32, Specific)] = &[
        (Kind::Ptx, 50, Specific::No),
        (Kind::Ptx, 61, Specific::No),
        (Kind::Ptx, 75, Specific::No),
        (Kind::Ptx, 80, Specific::No),
        (Kind::Cubin, 86, Specific::No),
        (Kind::Cubin, 89, Specific::No),
        (Kind::Ptx, 90, Specific::No),
        (Kind::Cubin, 90, Specific::Architecture),
        (Kind::Ptx, 100, Specific::Family),
    ];

    #[test]
    fn the_highest_architecture_that_fits_is_chosen() {
        let image = image(GGML);
        let expect = |sm, abilities, part: &str| {
            assert_eq!(chosen(&image, sm, abilities).as_deref(), Ok(part), "sm_{sm} {abilities}");
        };
        expect(61, exec::PTX, "Ptx 61 No");
        expect(60, exec::PTX, "Ptx 50 No");
        expect(70, exec::PTX, "Ptx 61 No");
        expect(86, exec::PTX, "Ptx 80 No");
        expect(86, BOTH, "Cubin 86 No");
        expect(87, BOTH, "Cubin 86 No");
        expect(89, BOTH, "Cubin 89 No");
        expect(90, BOTH, "Cubin 90 Architecture");
        expect(90, exec::PTX, "Ptx 90 No");
        expect(100, BOTH, "Ptx 100 Family");
        expect(103, BOTH, "Ptx 100 Family");
        expect(120, BOTH, "Ptx 90 No");
    }

    #[test]
    fn a_cubin_has_ptx_that_would_do_too() {
        let image = image(GGML);
        let instead = |sm| {
            let code = image.choose(Target { sm, abilities: BOTH }).unwrap();
            let text = code.instead()?;
            assert!(text.instead().is_none());
            Some(String::from_utf8(text.part.unpack().unwrap().to_vec()).unwrap())
        };
        assert_eq!(instead(89).as_deref(), Some("Ptx 80 No"));
        assert_eq!(instead(90).as_deref(), Some("Ptx 90 No"));
        assert_eq!(instead(61), None, "it is PTX already");
    }

    #[test]
    fn nothing_that_fits_is_told() {
        let image = image(GGML);
        assert_eq!(chosen(&image, 37, BOTH), Err(CUresult::NO_BINARY_FOR_GPU));
        assert_eq!(chosen(&image, 80, exec::CUBIN), Err(CUresult::NO_BINARY_FOR_GPU));
        assert_eq!(chosen(&image, 80, 0), Err(CUresult::NOT_SUPPORTED));
        let newer = Image::of_file(b".version 8.4\n.target sm_90\n").unwrap();
        assert_eq!(chosen(&newer, 80, BOTH), Err(CUresult::INVALID_PTX));
    }

    #[test]
    fn files_are_told_apart() {
        assert_eq!(Image::of_file(b"").unwrap_err(), CUresult::INVALID_IMAGE);
        assert_eq!(Image::of_file(b"hello").unwrap_err(), CUresult::INVALID_IMAGE);
        for text in [
            ".version 8.4\nret;",
            ".version x",
            ".version 8.4\n.target sm_86\nhello",
            ".version 8.4 .target sm_86 .entry k() {",
        ] {
            assert_eq!(Image::of_file(text.as_bytes()).unwrap_err(), CUresult::INVALID_PTX, "{text}");
        }
        assert_eq!(Image::of_file(b"\x7fELF\x02\x01\x01").unwrap_err(), CUresult::INVALID_IMAGE);
        let elf = cubin::build::cubin(&[("k".to_owned(), vec![], false)], 86);
        let code = Image::of_file(&elf).unwrap().choose(Target { sm: 86, abilities: BOTH }).unwrap();
        assert_eq!(code.wire_kind(), IMAGE_CUBIN);
        assert_eq!(code.kernels().unwrap().names().collect::<Vec<_>>(), ["k"]);
    }

    #[test]
    fn memory_is_read_as_far_as_headers_say() {
        let elf = cubin::build::cubin(&[("k".to_owned(), vec![], false)], 86);
        let fatbin = fatbin::build::fatbin(&[(Kind::Cubin, 86, Specific::No, Packing::Zstd, elf.clone())]);
        let text = b".version 8.4\n.target sm_86\n.entry k() { ret; }\0";
        let wrapper: [u64; 3] = [u64::from(fatbin::WRAPPER_MAGIC) | 1 << 32, fatbin.as_ptr() as u64, 0];
        for (address, kind) in [
            (elf.as_ptr().cast::<c_void>(), IMAGE_CUBIN),
            (fatbin.as_ptr().cast(), IMAGE_CUBIN),
            (wrapper.as_ptr().cast(), IMAGE_CUBIN),
            (text.as_ptr().cast(), IMAGE_PTX),
        ] {
            // SAFETY: complete images, and the text ends with zero.
            let image = unsafe { Image::read(address, false) }.unwrap();
            let code = image.choose(Target { sm: 86, abilities: BOTH }).unwrap();
            assert_eq!(code.wire_kind(), kind);
            let kernels = code.kernels().unwrap();
            assert_eq!(kernels.names().collect::<Vec<_>>(), ["k"]);
            let unpacked = if kind == IMAGE_CUBIN { &elf[..] } else { &text[..text.len() - 1] };
            assert_eq!(&*code.bytes().unwrap(), unpacked);
            // The kernels of code that the device has are returned without unpacking.
            code.close();
            assert!(Arc::ptr_eq(&kernels, &code.kernels().unwrap()));
            assert!(code.read.lock().bytes.is_none());
        }
    }
}
