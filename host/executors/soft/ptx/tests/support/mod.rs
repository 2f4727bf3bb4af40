//! The PTX that a real libggml-cuda.so holds, for tests.
//!
//! ```text
//!   container  u32 magic ba55ed50, u16 version, u16 header bytes, u64 bytes of entries
//!   entry       0 u16 kind (1 PTX)        4 u32 header bytes     8 u64 payload bytes, padded
//!              16 u32 compressed bytes   28 u32 architecture    40 u64 flags
//!              56 u64 bytes when unpacked
//! ```

#![allow(dead_code, reason = "each test uses a part")]

const MAGIC: u32 = 0xba55_ed50;
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;

/// An image of PTX, packed.
pub struct Image {
    /// The architecture, as in `sm_NUMBER`.
    pub sm: u32,
    flags: u64,
    unpacked: usize,
    payload: Vec<u8>,
}

impl Image {
    /// The PTX text of the image.
    pub fn text(&self) -> Vec<u8> {
        let mut text = vec![0; self.unpacked];
        match self.flags & (LZ4 | ZSTD) {
            LZ4 => {
                lz4_flex::block::decompress_into(&self.payload, &mut text).expect("an LZ4 block");
            }
            ZSTD => {
                ruzstd::decoding::FrameDecoder::new()
                    .decode_all(&self.payload, &mut text)
                    .expect("a zstd frame");
            }
            _ => text.clone_from(&self.payload),
        }
        let end = text.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        text.truncate(end);
        text
    }
}

/// All PTX images of the libggml-cuda.so that the artifact has.
pub fn images(artifact: &str) -> Vec<Image> {
    let folder = vgpu_artifacts::fetch(artifact).expect("the artifact");
    let object = std::fs::read(folder.join("libggml-cuda.so")).expect("libggml-cuda.so");
    let elf = goblin::elf::Elf::parse(&object).expect("an ELF file");
    let section = elf
        .section_headers
        .iter()
        .find(|header| elf.shdr_strtab.get_at(header.sh_name) == Some(".nv_fatbin"))
        .and_then(goblin::elf::SectionHeader::file_range)
        .expect("a section of fat binaries");
    let mut rest = &object[section];
    let mut images = Vec::new();
    while rest.len() >= 16 {
        if u32_at(rest, 0) != MAGIC {
            rest = &rest[8..];
            continue;
        }
        let header = u16_at(rest, 6) as usize;
        let (mut entries, after) = rest[header..].split_at(u64_at(rest, 8) as usize);
        rest = after;
        while !entries.is_empty() {
            let header = u32_at(entries, 4) as usize;
            let padded = u64_at(entries, 8) as usize;
            let payload = &entries[header..header + padded];
            let packed = u32_at(entries, 16) as usize;
            if u16_at(entries, 0) == 1 {
                images.push(Image {
                    sm: u32_at(entries, 28),
                    flags: u64_at(entries, 40),
                    unpacked: u64_at(entries, 56) as usize,
                    payload: if packed == 0 { payload } else { &payload[..packed] }.to_vec(),
                });
            }
            entries = &entries[header + padded..];
        }
    }
    images
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
