//! A cache of programs, which are kernels prepared to run, so that later sessions need not wait for the
//! preparation.
//!
//! The only session-dependent data in a program are the addresses of the variables that its kernel names,
//! which are constants of the code. A session whose variables have other addresses gets a program of its own,
//! which replaces the cached one. Launch profiles belong to the session.
//!
//! Cached programs are charged to no session. A session is charged for each program that it uses and keeps
//! alive.

use sha2::{Digest as _, Sha256};
use vgpu_device::{CachedImage, Digest, ImageCache};
use vgpu_ptx::Effort;
use vgpu_ptx::ir::Kernel;
use vgpu_simt::{Features, Program, ProgramError};

/// Bytes of programs that are cached although no session uses them.
const KEPT: u64 = 256 << 20;
/// Largest number of cached programs. Machine code takes mappings of the process, of which Linux allows
/// 65,530.
const KEPT_COUNT: usize = 1024;

/// A cached program that is ready to run.
#[derive(Debug)]
struct Ready(Program);

impl CachedImage for Ready {
    fn kept_bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.0.bytes()
    }
}

/// The programs of all sessions of a device, for one engine.
#[derive(Debug)]
pub(crate) struct Programs {
    features: Features,
    kept: ImageCache<Ready>,
}

/// Returns the key of a kernel's program in the cache: a digest of the image's digest and the kernel's name.
fn digest(image: &Digest, kernel: &str) -> Digest {
    let mut hasher = Sha256::new();
    // The image's digest has a fixed length, so different pairs have different inputs.
    hasher.update(image);
    hasher.update(kernel);
    hasher.finalize().into()
}

impl Programs {
    /// Creates an empty cache of programs that are lowered for `features`.
    pub(crate) fn new(features: Features) -> Self {
        Self { features, kept: ImageCache::new(KEPT).at_most(KEPT_COUNT) }
    }

    /// Returns the program of a kernel of the image with this digest, from the cache if the cached one fits
    /// `globals`. These are the device addresses of the module's variables, by index. No lock is held while
    /// the kernel is lowered, so several sessions may lower it at once.
    pub(crate) fn get(
        &self,
        image: &Digest,
        kernel: &Kernel,
        globals: &[u64],
        effort: &Effort,
    ) -> Result<Program, ProgramError> {
        let digest = digest(image, &kernel.name);
        if let Some(ready) = self.kept.find(&digest)
            && ready.0.fits(globals)
        {
            return Ok(ready.0.unused());
        }
        let program = Program::within(kernel, globals, self.features, effort)?;
        self.kept.insert(digest, Ready(program.unused()));
        Ok(program)
    }

    /// Returns the size of all cached programs in bytes.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept.kept_bytes()
    }
}

#[cfg(test)]
mod tests {
    use vgpu_ptx::{Interrupt, Module};

    use super::*;

    const TEXT: &str = ".version 8.4\n.target sm_61\n.address_size 64\n.global .u32 v;\n.global .u32 w;\n\
        .entry plain() { ret; }\n.entry names() { .reg .b32 %r; st.global.u32 [w], %r; ret; }\n";

    /// Returns whether a program was cached. In this case no effort is spent on it.
    fn is_found(programs: &Programs, image: u8, kernel: &str, globals: &[u64]) -> bool {
        let kernel = Module::parse(TEXT).and_then(|module| module.kernel(kernel)).expect("a kernel");
        let effort = Effort::of_kernel(Interrupt::default());
        let program = programs.get(&[image; 32], &kernel, globals, &effort).expect("a program");
        assert!(program.fits(globals));
        effort.so_far() == (0, 0)
    }

    #[test]
    fn a_program_is_found_again_where_it_is_right() {
        let programs = Programs::new(Features::best());
        for (image, kernel, globals, found) in [
            (1, "plain", [16, 32], false),
            (1, "plain", [16, 32], true),
            // Another image may have another kernel of this name.
            (2, "plain", [16, 32], false),
            // Addresses that the kernel does not name make no difference.
            (1, "plain", [48, 64], true),
            (1, "names", [16, 32], false),
            (1, "names", [48, 32], true),
            (1, "names", [16, 64], false),
            (1, "names", [16, 64], true),
            (1, "names", [16, 32], false),
        ] {
            assert_eq!(is_found(&programs, image, kernel, &globals), found, "{image} {kernel} {globals:?}");
        }
        let bytes = programs.kept_bytes();
        assert!((1..KEPT).contains(&bytes), "{bytes}");
    }
}
