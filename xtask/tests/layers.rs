//! Cycles are found whichever form a path has, and none are reported where there are none.

use std::fs;
use std::path::{Path, PathBuf};

use xtask::layers::{self, LINES_MOST, Layers, LayersError};

/// Runs the survey on a package with these files.
fn survey(files: &[(&str, &str)]) -> Result<Layers, LayersError> {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let manifest = "[package]\nname = \"sample-crate\"\nedition = \"2024\"\n[workspace]\n";
    for (name, text) in files.iter().chain([&("Cargo.toml", manifest)]) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut found = layers::survey(&root)?;
    assert_eq!(found.len(), 1);
    Ok(found.remove(0))
}

/// Returns the cycles among files of `src`, without directory and extension.
fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let name = |path: &PathBuf| path.strip_prefix("src").unwrap().with_extension("").display().to_string();
    let found = survey(files).unwrap();
    found.circles.iter().map(|circle| circle.iter().map(name).collect()).collect()
}

/// Returns whether `one` and `other` depend on each other.
fn leads(one: &str, other: &str) -> bool {
    let files = [("src/lib.rs", "mod one; mod other;"), ("src/one.rs", one), ("src/other.rs", other)];
    match &circles(&files)[..] {
        [] => false,
        found => {
            assert_eq!(found, [["one", "other"]]);
            true
        }
    }
}

#[test]
fn a_path_is_found_wherever_it_stands() {
    let back = "use crate::one::One; pub struct Other; pub fn make() -> One { One }";
    for one in [
        "use crate::other::Other; pub struct One;",
        "use super::other::{self, Other as Renamed}; pub struct One;",
        "pub struct One; fn f() { let _ = crate::other::make(); }",
        "pub struct One; impl One { fn f(_: &super::other::Other) {} }",
        "pub struct One; fn f() { use super::other; other::make(); }",
        "pub struct One; fn f() { println!(\"{}\", super::other::make as usize); }",
        "pub struct One; mod inner { fn f() -> super::super::other::Other { todo!() } }",
        "pub struct One; impl From<crate::other::Other> for One { fn from(_: crate::other::Other) -> Self { One } }",
        "pub struct One; mod inner { use crate::other::*; fn f() -> Other { Other } }",
    ] {
        assert!(leads(one, back), "{one}");
    }
    for one in [
        "pub struct One;",
        "pub struct One; #[cfg(test)] mod tests { use crate::other::Other; }",
        "pub struct One; #[cfg(all(test, unix))] fn f() { crate::other::make(); }",
        "use std::fmt::Debug; pub struct One; fn f(_: ::other::Other) {}",
        "pub struct One; impl One { fn make(&self) { self.make() } }",
        "pub struct One; mod inner { pub(in super::super::other) struct Inner; }",
        "pub struct One; make! { pub(in super::other) struct Made; }",
    ] {
        assert!(!leads(one, back), "{one}");
    }
}

#[test]
fn a_re_export_leads_to_where_the_item_is() {
    let files = [
        ("src/lib.rs", "mod low; mod high; pub use high::*; pub use low::Low;"),
        ("src/low.rs", "pub struct Low; fn f(_: crate::High) {}"),
        ("src/high/mod.rs", "mod part; pub use part::High;"),
        ("src/high/part.rs", "pub struct High(crate::Low);"),
    ];
    assert_eq!(circles(&files), [["high/part", "low"]]);
}

#[test]
fn a_parent_and_its_child_are_no_wrong_circle() {
    let wrong = |files: &[(&str, &str)]| survey(files).unwrap().wrong().count();
    let parent = "mod child; pub struct Mine; pub use child::Child;  fn f(_: Child) {}";
    let child = "pub struct Child(super::Mine);";
    assert_eq!(wrong(&[("src/lib.rs", "mod a;"), ("src/a.rs", parent), ("src/a/child.rs", child)]), 0);
    assert_eq!(wrong(&[("src/lib.rs", "mod a;"), ("src/a/mod.rs", parent), ("src/a/child.rs", child)]), 0);
    assert_eq!(wrong(&[("src/lib.rs", parent), ("src/child.rs", child)]), 0);
    let sister = "pub struct Child(crate::b::B);";
    let files = [
        ("src/lib.rs", "mod child; mod b;"),
        ("src/child.rs", sister),
        ("src/b.rs", "pub struct B; fn f(_: crate::child::Child) {}"),
    ];
    assert_eq!(wrong(&files), 1);
}

#[test]
fn a_program_knows_its_library_by_name() {
    let files = [
        ("src/lib.rs", "pub mod a;"),
        ("src/a.rs", "pub struct A;"),
        ("src/main.rs", "mod cli; fn main() { cli::run(sample_crate::a::A) }"),
        ("src/cli.rs", "pub fn run(_: sample_crate::a::A) {}"),
    ];
    assert!(circles(&files).is_empty());
}

#[test]
fn long_files_are_named() {
    let text = "\n".repeat(LINES_MOST + 1);
    let found = survey(&[("src/lib.rs", "mod long;"), ("src/long.rs", &text)]).unwrap();
    assert_eq!(found.long, [(Path::new("src/long.rs").to_owned(), LINES_MOST + 1)]);
}

#[test]
fn what_is_no_rust_is_named() {
    let error = survey(&[("src/lib.rs", "fn {")]).unwrap_err();
    assert!(matches!(&error, LayersError::Parse { path, .. } if path.ends_with("src/lib.rs")), "{error}");
    let error = survey(&[("src/lib.rs", "mod missing;")]).unwrap_err();
    assert!(matches!(error, LayersError::NoFile { name, .. } if name == "missing"));
}
