//! Collects the lines with which Ollama, llama.cpp's server and ggml say why they fail, from their sources,
//! and compares them with the lines that the launcher knows.
//!
//! `src/ollama/fatal_lines.txt` has those that name a cause, by kind; the launcher embeds it.
//! `xtask/fatal_lines.txt` has the others, so that a new release shows what is new in it.

mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

/// File of the lines that name a cause, below the workspace's root.
pub const KNOWN: &str = "src/ollama/fatal_lines.txt";
/// File of the other lines.
pub const OTHERS: &str = "xtask/fatal_lines.txt";
/// Kind of the lines that name no cause.
const NO_KIND: &str = "-";

/// Reason why lines could not be collected or compared.
#[derive(Debug, Error)]
pub enum FatalLinesError {
    /// A file or directory could not be read or written.
    #[error("access {path}")]
    Access {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A line of a data file has another form.
    #[error("understand line {number} of {path}")]
    Form {
        /// Path of the file.
        path: &'static str,
        /// Number of the line, from 1.
        number: usize,
    },
}

type Result<T> = std::result::Result<T, FatalLinesError>;

/// A line that a program writes: `{}` stands for what it fills in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FatalLine {
    /// Program that writes the line: `ollama`, `llama.cpp` or `ggml`.
    pub program: String,
    /// Text of the line.
    pub text: String,
}

/// Kind of each known line, and the eras of Ollama that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownLines(BTreeMap<FatalLine, (String, BTreeSet<char>)>);

/// Differences between a release's sources and the data of its era.
#[derive(Debug, Default, Serialize)]
pub struct Comparison {
    /// Number of lines in the sources.
    pub lines: usize,
    /// Lines of the sources that the data lacks.
    pub new: Vec<FatalLine>,
    /// Lines of the data that the sources lack.
    pub gone: Vec<FatalLine>,
}

impl KnownLines {
    /// Reads both data files below `root`.
    ///
    /// # Errors
    /// Fails if a file cannot be read or understood.
    pub fn read(root: &Path) -> Result<Self> {
        let mut known = Self::default();
        for file in [KNOWN, OTHERS] {
            let path = root.join(file);
            let text =
                fs::read_to_string(&path).map_err(|source| FatalLinesError::Access { path, source })?;
            known.add(file, &text)?;
        }
        Ok(known)
    }

    fn add(&mut self, file: &'static str, text: &str) -> Result<()> {
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let mut fields = line.splitn(4, '\t');
            let mut next = || fields.next().map(str::to_owned);
            let (Some(kind), Some(program), Some(eras), Some(text)) = (next(), next(), next(), next()) else {
                return Err(FatalLinesError::Form { path: file, number: index + 1 });
            };
            self.0.insert(FatalLine { program, text }, (kind, eras.chars().collect()));
        }
        Ok(())
    }

    /// Compares the lines of a release's sources with those of the era.
    pub fn compare(&self, sources: &BTreeSet<FatalLine>, era: char) -> Comparison {
        let of_era = |line: &FatalLine| self.0.get(line).is_some_and(|(_, eras)| eras.contains(&era));
        let new = sources.iter().filter(|line| !of_era(line)).cloned().collect();
        let gone = self.0.keys().filter(|line| of_era(line) && !sources.contains(*line)).cloned().collect();
        Comparison { lines: sources.len(), new, gone }
    }

    /// Makes the lines of the era those of the sources. Lines keep their kinds; new ones have none.
    pub fn update(&mut self, sources: &BTreeSet<FatalLine>, era: char) {
        for (line, (_, eras)) in &mut self.0 {
            if !sources.contains(line) {
                eras.remove(&era);
            }
        }
        for line in sources {
            let (_, eras) =
                self.0.entry(line.clone()).or_insert_with(|| (NO_KIND.to_owned(), BTreeSet::new()));
            eras.insert(era);
        }
        self.0.retain(|_, (_, eras)| !eras.is_empty());
    }

    /// Writes both data files below `root`.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn write(&self, root: &Path) -> Result<()> {
        for (file, wanted) in [(KNOWN, true), (OTHERS, false)] {
            let path = root.join(file);
            let text = self.text(wanted);
            fs::write(&path, text).map_err(|source| FatalLinesError::Access { path, source })?;
        }
        Ok(())
    }

    /// Returns the text of a data file: that of the lines with a kind, or that of the others.
    fn text(&self, with_kind: bool) -> String {
        let mut lines: Vec<_> =
            self.0.iter().filter(|(_, (kind, _))| (kind != NO_KIND) == with_kind).collect();
        lines.sort_by_key(|(line, (kind, _))| (kind, *line));
        let mut text = "# Lines with which Ollama, llama.cpp and ggml say why they fail: kind, program, eras, text. `{}` stands for what is filled in.\n\
                        # Written by `cargo xtask fatal-lines --write`; a line gets its kind by hand.\n"
            .to_owned();
        for (FatalLine { program, text: line }, (kind, eras)) in lines {
            let eras: String = eras.iter().collect();
            _ = writeln!(text, "{kind}\t{program}\t{eras}\t{line}");
        }
        text
    }
}

/// Directories of a source tree, the program that they belong to, and their files' suffixes.
struct Place {
    program: &'static str,
    folder: &'static str,
    suffixes: &'static [&'static str],
    /// Whether directories below it are read, too.
    deep: bool,
}

const CPP: &[&str] = &[".cpp", ".c", ".cu", ".cuh", ".h"];
const GO: &[&str] = &[".go"];

const fn place(
    program: &'static str,
    folder: &'static str,
    suffixes: &'static [&'static str],
    deep: bool,
) -> Place {
    Place { program, folder, suffixes, deep }
}

/// Directories of Ollama's sources. Releases up to 0.24 have those of llama.cpp and ggml among them.
const OF_OLLAMA: [Place; 16] = [
    place("ollama", "auth", GO, true),
    place("ollama", "cmd", GO, false),
    place("ollama", "discover", GO, true),
    place("ollama", "envconfig", GO, true),
    place("ollama", "fs", GO, true),
    place("ollama", "llama", GO, false),
    place("ollama", "llm", GO, true),
    place("ollama", "manifest", GO, true),
    place("ollama", "ml", GO, true),
    place("ollama", "runner", GO, true),
    place("ollama", "server", GO, true),
    place("ollama", "template", GO, true),
    place("ollama", "types", GO, true),
    place("llama.cpp", "llama/llama.cpp", CPP, true),
    place("ggml", "ml/backend/ggml/ggml/src", CPP, false),
    place("ggml", "ml/backend/ggml/ggml/src/ggml-cuda", CPP, true),
];
/// Directories of llama.cpp's sources.
const OF_LLAMA: [Place; 5] = [
    place("llama.cpp", "common", CPP, false),
    place("llama.cpp", "src", CPP, false),
    place("llama.cpp", "tools/server", CPP, false),
    place("ggml", "ggml/src", CPP, false),
    place("ggml", "ggml/src/ggml-cuda", CPP, true),
];

/// Collects the lines of a release from the sources of Ollama, and of llama.cpp if it does not bring them.
///
/// # Errors
/// Fails if a source file cannot be read.
pub fn collect(ollama: &Path, llama: Option<&Path>) -> Result<BTreeSet<FatalLine>> {
    let mut lines = BTreeSet::new();
    let of_llama = llama.into_iter().flat_map(|root| OF_LLAMA.iter().map(move |place| (root, place)));
    for (root, place) in OF_OLLAMA.iter().map(|place| (ollama, place)).chain(of_llama) {
        let folder = root.join(place.folder);
        if folder.is_dir() {
            read_folder(&folder, place, &mut lines)?;
        }
    }
    Ok(lines)
}

fn read_folder(folder: &Path, place: &Place, lines: &mut BTreeSet<FatalLine>) -> Result<()> {
    let at = |path: &Path| {
        let path = path.to_owned();
        |source| FatalLinesError::Access { path, source }
    };
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let path = entry.map_err(at(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if place.deep && name != "testdata" {
                read_folder(&path, place, lines)?;
            }
        } else if place.suffixes.iter().any(|suffix| name.ends_with(suffix)) && !name.contains("_test.") {
            let text = String::from_utf8_lossy(&fs::read(&path).map_err(at(&path))?).into_owned();
            let go = place.suffixes == GO;
            let found = scan::messages(&text, go);
            lines.extend(found.into_iter().map(|text| FatalLine { program: place.program.to_owned(), text }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> BTreeSet<FatalLine> {
        texts.iter().map(|text| FatalLine { program: "ggml".into(), text: (*text).to_owned() }).collect()
    }

    #[test]
    fn what_is_new_and_what_is_gone() {
        let mut known = KnownLines::default();
        known.add(KNOWN, "memory\tggml\tBC\tout of memory\n").unwrap();
        let sources = lines(&["out of memory", "no room"]);
        let comparison = known.compare(&sources, 'A');
        assert_eq!((comparison.new.len(), comparison.gone.len()), (2, 0));
        known.update(&sources, 'C');
        assert_eq!(known.text(false).lines().last(), Some("-\tggml\tC\tno room"));
        let comparison = known.compare(&lines(&["no room"]), 'C');
        assert_eq!((comparison.new.len(), comparison.gone[0].text.as_str()), (0, "out of memory"));
        known.update(&lines(&["no room"]), 'C');
        assert_eq!(known.text(true).lines().last(), Some("memory\tggml\tB\tout of memory"));
    }

    #[test]
    fn the_data_is_understood() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let known = KnownLines::read(&root).unwrap();
        assert!(known.0.len() > 500, "{}", known.0.len());
        for (file, with_kind) in [(KNOWN, true), (OTHERS, false)] {
            let text = fs::read_to_string(root.join(file)).unwrap();
            assert!(known.text(with_kind) == text, "{file} is not as --write would have it");
            assert!(text.lines().count() > 100, "{file}");
        }
        assert!(matches!(
            KnownLines::default().add(KNOWN, "no fields\n"),
            Err(FatalLinesError::Form { number: 1, .. })
        ));
    }
}
