//! The embedded shims. The build script builds them and lists them in OUT_DIR; `embedded/` and its manifest
//! describe them.

/// A shared object that replaces one of NVIDIA's.
#[derive(Debug, PartialEq, Eq)]
pub struct EmbeddedObject {
    /// SONAME under which programs load the object.
    pub soname: &'static str,
    /// Content of the ELF file.
    pub bytes: &'static [u8],
}

/// Wrapper that aligns its content to a page.
#[repr(C, align(4096))]
struct OnPages<T>(T);

/// Embeds a file of OUT_DIR, aligned to a page. The kernel then copies it page by page into a memory file;
/// without the alignment each page would be copied in two parts.
macro_rules! on_pages {
    ($name:literal) => {{
        const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/", $name));
        static PAGES: OnPages<[u8; BYTES.len()]> =
            OnPages(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name)));
        &PAGES.0
    }};
}

/// All shims, libcuda first.
pub static OBJECTS: &[EmbeddedObject] = &include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// The helper program of `check`. It is not a shim and is never preloaded.
pub static PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vgpu-probe"));

/// Library that `trace` preloads before the shims.
pub static TRACE: EmbeddedObject = EmbeddedObject {
    soname: "libvgpu-trace.so",
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/libvgpu-trace.so")),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_is_a_dynamic_program_and_small() {
        let elf = goblin::elf::Elf::parse(PROBE).expect("a readable program");
        assert!(elf.interpreter.is_some() && !elf.is_lib);
        assert!(PROBE.len() < 1_000_000, "{} bytes", PROBE.len());
    }

    #[test]
    fn every_object_bears_the_name_that_it_is_stored_under() {
        assert_eq!(OBJECTS.len(), 8);
        for object in OBJECTS.iter().chain([&TRACE]) {
            let elf = goblin::elf::Elf::parse(object.bytes).expect("a readable object");
            assert_eq!(elf.soname, Some(object.soname));
        }
    }

    #[test]
    fn every_library_begins_on_a_page() {
        for object in OBJECTS {
            assert!(object.bytes.as_ptr().addr().is_multiple_of(4096), "{}", object.soname);
        }
    }
}
