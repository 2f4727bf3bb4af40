//! The archive in which a pack is transferred, compressed by `xz`.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, bail};

/// An archive under construction.
pub struct Archive {
    tar: tar::Builder<ChildStdin>,
    xz: Child,
}

impl Archive {
    /// Creates an archive in a new file. Compression `level` 0 is the fastest, 9 the strongest.
    pub fn new(path: &Path, level: u8) -> Result<Self> {
        let file = File::create_new(path).with_context(|| format!("make {}", path.display()))?;
        let mut command = Command::new("xz");
        // Compresses on all processors. Repetitions are only found within a block, and modules contain the
        // same tables.
        command.arg(format!("-{level}")).args(["--threads=0", "--stdout"]);
        let xz = command.stdin(Stdio::piped()).stdout(file).spawn();
        let mut xz = xz.context("start xz, which compresses the pack (package xz-utils)")?;
        let stdin = xz.stdin.take().context("no stdin")?;
        Ok(Self { tar: tar::Builder::new(stdin), xz })
    }

    /// Adds a file with this content.
    pub fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        self.tar.append_data(&mut header, name, content).with_context(|| format!("pack {name}"))
    }

    /// Adds a copy of a file of this machine.
    pub fn file(&mut self, name: &str, mode: u32, path: &Path) -> Result<()> {
        let content = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        self.add(name, mode, &content)
    }

    /// Adds the files of an artifact that `wanted` accepts, at their paths in the cache of artifacts.
    pub fn artifact(&mut self, folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
        let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            let name = path.file_name().context("a file without a name")?.to_string_lossy();
            if wanted(&name) {
                self.file(&in_cache(folder, &name)?, 0o644, &path)?;
            }
        }
        Ok(())
    }

    /// Waits for the compressor and completes the archive.
    pub fn finish(mut self) -> Result<()> {
        let stdin = self.tar.into_inner().context("write the archive")?;
        drop(stdin);
        let status = self.xz.wait().context("wait for xz")?;
        if !status.success() {
            bail!("xz: {status}");
        }
        Ok(())
    }
}

/// Returns the path in the archive of an artifact's file.
pub fn in_cache(folder: &Path, name: &str) -> Result<String> {
    let artifact = folder.file_name().context("an artifact without a name")?.to_string_lossy();
    Ok(format!("cache/vgpu-run/{artifact}/{name}"))
}
