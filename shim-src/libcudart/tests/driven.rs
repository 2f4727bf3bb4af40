//! Checks that the C program of the test bed calls every function that this crate defines, through the real
//! loader.

use std::path::Path;
use std::{fs, io};

/// Returns the contents of the files in a directory whose names end with `ending`, as one text.
fn sources(folder: &Path, ending: &str) -> io::Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == ending) {
            text += &fs::read_to_string(path)?;
        }
    }
    Ok(text)
}

/// Returns the names of the exports in the sources: what follows `pub fn`, and the variants after a bar.
fn exports(text: &str) -> Vec<&str> {
    let name =
        |text: &'_ str| text.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let mut names = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("    pub fn ")) {
        names.push(&line[..name(line)]);
        if let Some((_, variant)) = line.split_once(" | fn ") {
            names.push(&variant[..name(variant)]);
        }
    }
    names.retain(|name| name.starts_with("cuda") || name.starts_with("__cuda"));
    names
}

#[test]
fn the_program_calls_each_export() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let standins = root.join("../../testbed/standins");
    let own = sources(&root.join("src/api"), "rs").unwrap();
    // The declarations are no calls.
    let declarations = fs::read_to_string(standins.join("runtime/api.h")).unwrap();
    let parts = sources(&standins.join("runtime"), "h").unwrap().replace(&declarations, "");
    let program = fs::read_to_string(standins.join("runtime.c")).unwrap() + &parts;

    let exports = exports(&own);
    assert!(exports.len() > 180, "the sources are read wrongly: {} exports", exports.len());
    let missing: Vec<_> = exports.iter().filter(|name| !program.contains(&format!("{name}("))).collect();
    assert!(missing.is_empty(), "testbed/standins/runtime does not call {missing:?}");
}
