//! Writes gzipped tar archives that depend only on names and contents.

use std::io;

use flate2::{Compression, GzBuilder};

/// Modification time of every file: the start of 1980, the earliest that every archive format can express.
const TIME: u64 = 315_532_800;

/// A file to pack, with its name and mode in the archive.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// Path of the file in the archive's directory.
    pub name: &'a str,
    /// Content of the file.
    pub content: &'a [u8],
    /// Whether the file is a program, and so executable.
    pub executable: bool,
}

/// Returns the files of an archive: a program, and documents by their names.
pub fn files<'a>(name: &'a str, program: &'a [u8], documents: &'a [(String, Vec<u8>)]) -> Vec<File<'a>> {
    let mut files: Vec<_> =
        documents.iter().map(|(name, content)| File { name, content, executable: false }).collect();
    files.push(File { name, content: program, executable: true });
    files
}

/// Packs `files` into an archive, sorted by name, below the directory `folder`.
pub fn pack(folder: &str, mut files: Vec<File<'_>>) -> io::Result<Vec<u8>> {
    // Parent directories are not listed, because unpackers create them.
    files.sort_by_key(|file| file.name);
    let gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    let mut archive = tar::Builder::new(gzip);
    let header = |kind, mode, bytes: usize| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(TIME);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(bytes as u64);
        header
    };
    let mut top = header(tar::EntryType::Directory, 0o755, 0);
    archive.append_data(&mut top, format!("{folder}/"), io::empty())?;
    for file in files {
        let mode = if file.executable { 0o755 } else { 0o644 };
        let mut header = header(tar::EntryType::Regular, mode, file.content.len());
        archive.append_data(&mut header, format!("{folder}/{}", file.name), file.content)?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    const README: File<'_> = File { name: "README", content: b"text", executable: false };
    const PROGRAM: File<'_> = File { name: "program", content: b"code", executable: true };

    #[test]
    fn the_order_of_files_does_not_matter() {
        let one = pack("x-1", vec![README, PROGRAM]).unwrap();
        assert_eq!(one, pack("x-1", vec![PROGRAM, README]).unwrap());
    }

    #[test]
    fn holds_what_was_packed() {
        let bytes = pack("x-1", vec![PROGRAM, README]).unwrap();
        let mut archive = tar::Archive::new(GzDecoder::new(&bytes[..]));
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, TIME));
            found.push((entry.path().unwrap().display().to_string(), header.mode().unwrap(), content));
        }
        let expected = [("x-1/", 0o755, ""), ("x-1/README", 0o644, "text"), ("x-1/program", 0o755, "code")];
        assert_eq!(found, expected.map(|(path, mode, text)| (path.to_owned(), mode, text.to_owned())));
    }
}
