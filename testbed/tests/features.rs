//! Each dependency has one set of features, whichever part of the workspace is built: switching between
//! `cargo build --workspace`, `cargo run -p ...` and `cargo test --workspace` compiles nothing again.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Returns the features of each package when cargo builds this selection. Packages for the host alone (build
/// scripts, procedural macros and their dependencies) have features of their own.
fn features(selection: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").expect("run by cargo");
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p}\t{f}"])
        .args(selection)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut packages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (package, features) = line.split_once('\t').unwrap();
        packages.entry(package.to_owned()).or_default().insert(features.trim_end_matches(" (*)").to_owned());
    }
    packages
}

#[test]
fn a_dependency_has_one_set_of_features() {
    let all = features(&["--workspace"]);
    assert!(all.len() > 150, "{}", all.len());
    for part in [
        &["--workspace", "--edges", "normal"][..],
        &["--package", "vgpu-run", "--edges", "normal"],
        &["--package", "vgpu-testbed", "--edges", "normal"],
        &["--package", "xtask", "--edges", "normal"],
    ] {
        for (package, features) in features(part) {
            assert!(
                features.is_subset(&all[&package]),
                "{package} in {part:?}: {features:?}, in all {:?}",
                all[&package]
            );
        }
    }
}
