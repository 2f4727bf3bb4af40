//! The shims, as bytes. The build script has them built and says in OUT_DIR where they are; `embedded/` and
//! its manifest say what they are.

/// A shared object that stands in for one of NVIDIA's.
#[derive(Debug, PartialEq, Eq)]
pub struct EmbeddedObject {
    /// The name by which it is loaded.
    pub soname: &'static str,
    /// Content of the ELF file.
    pub bytes: &'static [u8],
}

/// Begins on a page.
#[repr(C, align(4096))]
struct OnPages<T>(T);

/// The bytes of a file in OUT_DIR, from the beginning of a page on. So the kernel copies them page by page
/// into a memory file; begun elsewhere, each page is copied in two parts.
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

/// The helper program of `check`: no shim, and never preloaded.
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
