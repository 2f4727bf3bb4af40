//! Locates Ollama's library directory.

use std::path::{Path, PathBuf};

use crate::waits;

/// Returns the library directory of the Ollama whose resolved path is `executable`, started in `working`: the
/// first existing candidate in Ollama's own order. Without one, Ollama uses the executable's own directory.
pub fn library_folder(executable: &Path, working: &Path) -> Option<PathBuf> {
    let there = |place: &PathBuf| {
        let _waits = waits::on(place.display().to_string());
        place.is_dir()
    };
    candidates(executable, working).into_iter().find(there)
}

/// Returns the first candidate for the library directory, which is where Ollama's installer puts it.
pub fn first(executable: &Path) -> PathBuf {
    candidates(executable, Path::new("/")).swap_remove(0)
}

/// Returns the directories that Ollama tries (`findLibOllamaPath` of its package `ml`). Older releases know
/// only the first and the `build` ones.
fn candidates(executable: &Path, working: &Path) -> Vec<PathBuf> {
    let beside = executable.parent().unwrap_or(Path::new("/"));
    let above = beside.parent().unwrap_or(beside);
    let mut places = vec![above.join("lib/ollama"), beside.join("lib/ollama")];
    for base in [beside, working] {
        places.extend(
            ["build/lib/ollama", "dist/linux-amd64/lib/ollama", "dist/linux_amd64/lib/ollama"]
                .map(|place| base.join(place)),
        );
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn an_installed_ollama() {
        let scratch = Scratch::new();
        let executable = scratch.join("usr/bin/ollama");
        assert_eq!(library_folder(&executable, Path::new("/")), None);
        std::fs::create_dir_all(scratch.join("usr/bin/lib/ollama")).unwrap();
        assert_eq!(library_folder(&executable, Path::new("/")), Some(scratch.join("usr/bin/lib/ollama")));
        std::fs::create_dir_all(scratch.join("usr/lib/ollama")).unwrap();
        assert_eq!(library_folder(&executable, Path::new("/")), Some(scratch.join("usr/lib/ollama")));
    }

    #[test]
    fn one_that_is_being_developed() {
        let scratch = Scratch::new();
        let working = scratch.join("source");
        std::fs::create_dir_all(working.join("build/lib/ollama")).unwrap();
        let executable = scratch.join("cache/ollama");
        assert_eq!(library_folder(&executable, &working), Some(working.join("build/lib/ollama")));
    }

    #[test]
    fn a_file_is_no_folder() {
        let scratch = Scratch::new();
        std::fs::create_dir_all(scratch.join("lib")).unwrap();
        std::fs::write(scratch.join("lib/ollama"), "").unwrap();
        assert_eq!(library_folder(&scratch.join("bin/ollama"), Path::new("/")), None);
    }
}
