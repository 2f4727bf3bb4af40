//! The file of raw logits: a head, then for every position of every job one row of `vocab` 32-bit floats, all
//! little endian.
//!
//! ```text
//!  0  "VGPULOGT"
//!  8  u32 version, 1
//! 12  u32 vocab: floats of a row
//! 16  rows
//! ```

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"VGPULOGT";
const VERSION: u32 = 1;

/// Reasons why a file of logits cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum LogitsError {
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("{0} is no file of logits")]
    Head(PathBuf),
    #[error("write a row of {found} logits to a file of rows of {vocab}")]
    Row { found: usize, vocab: usize },
    #[error("{path} ends within a row")]
    Cut { path: PathBuf },
}

fn at(path: &Path) -> impl Fn(io::Error) -> LogitsError + '_ {
    |source| LogitsError::File { path: path.to_owned(), source }
}

/// Writes a file of logits.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    vocab: usize,
}

impl Writer {
    /// Creates a file whose rows have `vocab` floats.
    pub fn create(path: &Path, vocab: usize) -> Result<Self, LogitsError> {
        let mut file = BufWriter::new(File::create(path).map_err(at(path))?);
        let head = [&MAGIC[..], &VERSION.to_le_bytes(), &(vocab as u32).to_le_bytes()].concat();
        file.write_all(&head).map_err(at(path))?;
        Ok(Self { path: path.to_owned(), file, vocab })
    }

    /// Appends the raw logits of one position as a row.
    pub fn row(&mut self, logits: &[f32]) -> Result<(), LogitsError> {
        if logits.len() != self.vocab {
            return Err(LogitsError::Row { found: logits.len(), vocab: self.vocab });
        }
        for value in logits {
            self.file.write_all(&value.to_le_bytes()).map_err(at(&self.path))?;
        }
        Ok(())
    }

    /// Flushes the file and closes it.
    pub fn finish(mut self) -> Result<(), LogitsError> {
        self.file.flush().map_err(at(&self.path))
    }
}

/// Reads a file of logits row by row.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    vocab: usize,
}

impl Reader {
    /// Opens a file of logits and reads its header.
    pub fn open(path: &Path) -> Result<Self, LogitsError> {
        let mut file = BufReader::new(File::open(path).map_err(at(path))?);
        let mut head = [0; 16];
        let wrong = || LogitsError::Head(path.to_owned());
        file.read_exact(&mut head).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => wrong(),
            _ => at(path)(error),
        })?;
        let word =
            |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
        if head[..8] != MAGIC || word(8) != VERSION || word(12) == 0 {
            return Err(wrong());
        }
        Ok(Self { path: path.to_owned(), file, vocab: word(12) as usize })
    }

    /// Returns the number of floats in a row.
    pub const fn vocab(&self) -> usize {
        self.vocab
    }

    /// Returns the next row, or `None` at the end of the file.
    pub fn row(&mut self) -> Result<Option<Vec<f32>>, LogitsError> {
        let wanted = 4 * self.vocab;
        let mut bytes = Vec::new();
        // Read without allocating `wanted` bytes in advance, since the header may be wrong.
        Read::by_ref(&mut self.file).take(wanted as u64).read_to_end(&mut bytes).map_err(at(&self.path))?;
        match bytes.len() {
            0 => Ok(None),
            found if found == wanted => {
                let (floats, _) = bytes.as_chunks::<4>();
                Ok(Some(floats.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()))
            }
            _ => Err(LogitsError::Cut { path: self.path.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logits");
        let rows = [[1.0, -0.5, f32::NEG_INFINITY], [3.25, f32::MIN_POSITIVE, 0.0]];
        let mut writer = Writer::create(&path, 3).unwrap();
        for row in &rows {
            writer.row(row).unwrap();
        }
        assert!(matches!(writer.row(&[1.0]), Err(LogitsError::Row { found: 1, vocab: 3 })));
        writer.finish().unwrap();

        let mut reader = Reader::open(&path).unwrap();
        assert_eq!(reader.vocab(), 3);
        for row in &rows {
            assert_eq!(reader.row().unwrap().as_deref(), Some(&row[..]));
        }
        assert!(reader.row().unwrap().is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_an_error_or_the_end(good in any::<bool>(), bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("logits");
            let head: &[u8] = if good { &[&MAGIC[..], &VERSION.to_le_bytes()].concat() } else { &[] };
            std::fs::write(&path, [head, &bytes].concat()).unwrap();
            if let Ok(mut reader) = Reader::open(&path) {
                while let Ok(Some(row)) = reader.row() {
                    prop_assert_eq!(row.len(), reader.vocab());
                }
            }
        }
    }
}
