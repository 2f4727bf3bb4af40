//! A stream cut into files of limited size, each with its digest.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// A part that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// File name. In the order of names the parts are the stream.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// SHA-256, in hexadecimal.
    pub sha256: String,
}

/// Writes the parts.
#[derive(Debug)]
pub struct Parts {
    folder: PathBuf,
    /// Bytes of a part at most.
    most: u64,
    /// The part that is being written.
    open: Option<(File, Sha256, u64)>,
    done: Vec<Part>,
}

impl Parts {
    /// Parts of at most `most` bytes, at least 1, in a folder that is there.
    pub fn new(folder: &Path, most: u64) -> Self {
        Self { folder: folder.to_owned(), most: most.max(1), open: None, done: Vec::new() }
    }

    /// The name of the part that comes next.
    fn name(&self) -> String {
        format!("part-{:03}", self.done.len())
    }

    /// Ends the part that is open.
    fn end(&mut self) -> io::Result<()> {
        let Some((file, hash, bytes)) = self.open.take() else { return Ok(()) };
        // A full disk is noticed here at the latest.
        file.sync_all()?;
        let sha256 = hex::encode(hash.finalize());
        self.done.push(Part { name: self.name(), bytes, sha256 });
        Ok(())
    }

    /// Ends the stream.
    pub fn finish(mut self) -> io::Result<Vec<Part>> {
        self.end()?;
        Ok(self.done)
    }
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.open.as_ref().is_some_and(|(_, _, written)| *written >= self.most) {
            self.end()?;
        }
        if self.open.is_none() {
            let file = File::create_new(self.folder.join(self.name()))?;
            self.open = Some((file, Sha256::new(), 0));
        }
        let Some((file, hash, written)) = &mut self.open else { return Err(io::ErrorKind::Other.into()) };
        let room = usize::try_from(self.most - *written).unwrap_or(usize::MAX).min(bytes.len());
        let count = file.write(&bytes[..room])?;
        hash.update(&bytes[..count]);
        *written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.open.as_mut().map_or(Ok(()), |(file, ..)| file.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_their_order_are_the_stream() {
        let folder = tempfile::tempdir().unwrap();
        let stream: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let mut parts = Parts::new(folder.path(), 300);
        for piece in stream.chunks(70) {
            parts.write_all(piece).unwrap();
        }
        let parts = parts.finish().unwrap();
        assert_eq!(parts.iter().map(|part| part.bytes).collect::<Vec<_>>(), [300, 300, 300, 100]);
        let mut joined = Vec::new();
        for part in &parts {
            let bytes = std::fs::read(folder.path().join(&part.name)).unwrap();
            assert_eq!(hex::encode(Sha256::digest(&bytes)), part.sha256);
            joined.extend(bytes);
        }
        assert_eq!(joined, stream);
        assert!(parts.is_sorted_by_key(|part| part.name.clone()));
    }
}
