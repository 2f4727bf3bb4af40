//! The names in docs/architecture.md are those of the code, exports are found by their names, and host
//! processes start threads in one place.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../docs/architecture.md");
/// Maximum number of lines of a walk.
const STEPS_MOST: usize = 15;

#[test]
fn walks_name_functions_that_there_are_each_once() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut walks = 0;
    for walk in PAGE.split("\n## ").skip(1) {
        let title = walk.lines().next().unwrap();
        let steps: Vec<(&str, &str)> = walk
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `")?.split("` | `");
                Some((cells.next()?, cells.next()?.split('`').next()?))
            })
            .collect();
        assert!((5..=STEPS_MOST).contains(&steps.len()), "{title}: {} steps", steps.len());
        let mut seen = BTreeSet::new();
        for (file, function) in steps {
            let source =
                fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            let named =
                ["(", "<", ",", " |"].iter().any(|end| source.contains(&format!("fn {function}{end}")));
            assert!(named, "{title}: {file} has no function {function}");
            assert!(seen.insert(function), "{title}: two functions are called {function}");
        }
        walks += 1;
    }
    assert_eq!(walks, 9);
}

/// Collects the Rust files below a directory, except those of tests.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    // A directory of `shim-src` may be a crate for each version of a library.
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            into.push(path);
        }
    }
}

/// A thread started in another way could panic while the process lived on without its work.
#[test]
fn threads_of_host_processes_are_started_where_their_panics_are_reported() {
    let host = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../host"));
    let mut files = Vec::new();
    for part in
        ["device", "v1", "serve", "vfio-user", "worker", "executors/soft", "executors/cuda", "executors/null"]
    {
        sources(&host.join(part).join("src"), &mut files);
    }
    assert!(files.len() > 150, "{}", files.len());
    let mut started = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        // The panic of a scoped thread reaches the thread that waits for it.
        let own = |line: &&str| {
            line.contains("thread::spawn(")
                || line.contains("Builder::new().name(") && !line.contains("spawn_scoped")
        };
        started.extend(code.lines().filter(own).map(|line| format!("{}: {}", path.display(), line.trim())));
    }
    let [only] = &started[..] else { panic!("{started:#?}") };
    assert!(only.contains("/device/src/threads.rs: "), "{only}");
}

/// Macros keep the item's name visible: `grep -rn "fn cudaLaunchKernel" shim-src` finds the function.
#[test]
fn each_implemented_export_is_found_by_its_name() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("shim-src")).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut files);
    }
    let mut names = BTreeSet::new();
    for path in files {
        let text = fs::read_to_string(path).unwrap();
        let defined =
            |part: &str| part.split(|c: char| c != '_' && !c.is_alphanumeric()).next().map(str::to_owned);
        names.extend(text.split("fn ").skip(1).filter_map(defined));
    }
    let manifest = root.join("embedded/MANIFEST.toml");
    let manifest =
        fs::read_to_string(manifest).expect("`cargo build` of the whole workspace makes the shims");
    let manifest: toml::Table = manifest.parse().unwrap();
    let exports: Vec<&str> = manifest["shim"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|shim| shim["implemented"].as_array().unwrap())
        .map(|name| name.as_str().unwrap())
        .collect();
    assert!(exports.len() > 1000, "{}", exports.len());
    let hidden: Vec<_> = exports.iter().filter(|name| !names.contains(**name)).collect();
    assert!(hidden.is_empty(), "no `fn NAME` in shim-src for {hidden:?}");
}
