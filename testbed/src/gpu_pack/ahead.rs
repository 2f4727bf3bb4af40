//! Compiles PTX ahead of time to machine code of one architecture with NVIDIA's `ptxas`. Results are kept in
//! the cache of artifacts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use vgpu_artifacts::{Cache, executable};

/// Name of the artifact, and of the program in it.
const PTXAS: &str = "ptxas";

/// The PTX compiler for one architecture.
#[derive(Debug)]
pub struct Compiler {
    program: PathBuf,
    sm: u32,
    /// Directory of compiled machine code, in files named by the digests of their PTX.
    kept: PathBuf,
    scratch: TempDir,
}

/// Numbers of texts that were compiled now and earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of texts compiled now.
    pub compiled: usize,
    /// Number of texts whose code was already stored.
    pub found: usize,
}

impl Compiler {
    /// Prepares the compiler for `sm_NUMBER`, fetching it if necessary.
    pub fn new(sm: u32) -> Result<Self> {
        let cache = Cache::open()?;
        let artifact = cache.fetch(PTXAS)?;
        let version = artifact.file_name().context("an artifact without a name")?.to_string_lossy();
        let kept = cache.derived(&format!("{version}-sm_{sm}"));
        fs::create_dir_all(&kept).with_context(|| format!("make {}", kept.display()))?;
        let scratch = TempDir::with_prefix("vgpu-ptxas-").context("make a temporary directory")?;
        // Files of the cache are not executable.
        let program = scratch.path().join(PTXAS);
        let bytes = fs::read(artifact.join(PTXAS)).context("read ptxas")?;
        executable::write(&program, &bytes)?;
        Ok(Self { program, sm, kept, scratch })
    }

    /// Compiles texts on all processors. The returned images are in the order of the texts.
    pub fn compile(&self, texts: &[Vec<u8>]) -> Result<(Vec<Vec<u8>>, Count)> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<(usize, Vec<u8>, bool)>> {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(text) = texts.get(index) else { return Ok(done) };
                let (image, found) = self.one(index, text)?;
                done.push((index, image, found));
            }
        };
        let processors = thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        let mut all = thread::scope(|scope| {
            let threads: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
            let mut all = Vec::new();
            for thread in threads {
                all.extend(thread.join().map_err(|_| anyhow!("a thread that compiles has panicked"))??);
            }
            anyhow::Ok(all)
        })?;
        all.sort_by_key(|(index, ..)| *index);
        let found = all.iter().filter(|(.., found)| *found).count();
        let count = Count { compiled: all.len() - found, found };
        Ok((all.into_iter().map(|(_, image, _)| image).collect(), count))
    }

    /// Compiles a text. Returns the code, and whether it was already stored.
    fn one(&self, index: usize, text: &[u8]) -> Result<(Vec<u8>, bool)> {
        let kept = self.kept.join(hex::encode(Sha256::digest(text)));
        if let Ok(image) = fs::read(&kept) {
            return Ok((image, true));
        }
        let [from, to] = ["ptx", "cubin"].map(|end| self.scratch.path().join(format!("{index}.{end}")));
        fs::write(&from, text).with_context(|| format!("write {}", from.display()))?;
        self.run_compiler(&from, &to)?;
        let image = fs::read(&to).with_context(|| format!("read {}", to.display()))?;
        // Another process may store the same file, so it is renamed into place when it is complete.
        let new = self.kept.join(format!("{index}-{}.new", std::process::id()));
        let keep = fs::copy(&to, &new).and_then(|_| fs::rename(&new, &kept));
        keep.with_context(|| format!("keep {}", kept.display()))?;
        for path in [&from, &to] {
            fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
        }
        Ok((image, false))
    }

    fn run_compiler(&self, from: &Path, to: &Path) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.arg(format!("--gpu-name=sm_{}", self.sm)).arg("--output-file").args([to, from]);
        let output = command.output().context("start ptxas")?;
        if !output.status.success() {
            bail!("ptxas: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use vgpu_image::cubin;

    use super::*;

    #[test]
    fn machine_code_of_the_architecture_is_made_once() {
        let name = format!("kernel_{}", rand::random::<u32>());
        let text = format!(
            ".version 8.4\n.target sm_80\n.address_size 64\n.visible .entry {name}(.param .u64 {name}_to)\n\
             {{\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [{name}_to];\nst.global.u32 [%rd1], 7;\nret;\n}}\n"
        );
        let compiler = Compiler::new(90).unwrap();
        let texts = [text.into_bytes()];
        let (images, count) = compiler.compile(&texts).unwrap();
        assert_eq!(count, Count { compiled: 1, found: 0 });
        assert_eq!(cubin::arch(&images[0]).unwrap(), 90);
        let kernels = cubin::kernels(&images[0]).unwrap();
        assert_eq!(kernels.iter().map(|(kernel, _)| kernel).collect::<Vec<_>>(), [&name]);
        assert_eq!(compiler.compile(&texts).unwrap(), (images, Count { compiled: 0, found: 1 }));
        fs::remove_file(compiler.kept.join(hex::encode(Sha256::digest(&texts[0])))).unwrap();
    }

    #[test]
    fn what_ptxas_says_is_told() {
        let error = Compiler::new(90).unwrap().compile(&[b"no PTX".to_vec()]).unwrap_err();
        assert!(format!("{error:#}").contains("ptxas: exit status"), "{error:#}");
    }
}
