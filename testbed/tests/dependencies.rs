//! Rules of the layout: which crates may depend on which, and what the shims must not pull in.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Returns the normal dependencies of each package, as cargo resolves them without unused optional ones.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").expect("run by cargo");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let names: BTreeMap<_, _> = list(&metadata["packages"])
        .iter()
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let normal = |one: &Value| list(&one["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
    list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            let deps = list(&node["deps"]);
            let below = deps.iter().filter(|one| normal(one)).map(|one| names[&text(&one["pkg"])].clone());
            (names[&text(&node["id"])].clone(), below.collect())
        })
        .collect()
}

/// Returns all packages that `package` is built with.
fn all_below(graph: &BTreeMap<String, BTreeSet<String>>, package: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![package.to_owned()];
    while let Some(package) = open.pop() {
        for dependency in graph.get(&package).into_iter().flatten() {
            if found.insert(dependency.clone()) {
                open.push(dependency.clone());
            }
        }
    }
    found
}

#[test]
fn the_arrows_point_one_way() {
    let graph = dependencies();
    let shims = ["vgpu-libcuda", "vgpu-libcudart", "vgpu-libcublas", "vgpu-libcublaslt", "vgpu-libnvidia-ml"];
    let direct = |package: &str, on: &str| graph[package].contains(on);
    for shim in shims {
        let below = all_below(&graph, shim);
        // libcuda owns the device; NVML takes no more than sysfs's names from the crate.
        let may = ["vgpu-libcuda", "vgpu-libnvidia-ml"].contains(&shim);
        assert!(may || !below.contains("vgpu-transport"), "{shim} knows the transport");
        assert_eq!(below.contains("vgpu-transport-v1"), shim == "vgpu-libcuda", "{shim} and version 1");
        for heavy in ["tokio", "tracing", "serde", "clap", "vgpu-device", "vgpu-device-v1"] {
            assert!(!below.contains(heavy), "{shim} is built with {heavy}");
        }
        assert!(!all_below(&graph, "vgpu-run").contains(shim), "the launcher links no shim: {shim}");
    }
    assert!(direct("vgpu-run", "vgpu-transport"));
    assert!(!all_below(&graph, "vgpu-transport").contains("vgpu-transport-v1"), "version 1 is plugged in");
    let wire: Vec<_> = graph["vgpu-wire"].iter().map(String::as_str).collect();
    assert_eq!(wire, ["zerocopy"], "the contract needs nothing");
    for package in ["vgpu-device", "vgpu-executor-null", "vgpu-executor-soft"] {
        let below = all_below(&graph, package);
        assert!(!below.contains("vgpu-device-v1"), "{package} knows version 1");
        for guest in ["vgpu-transport", "vgpu-transport-v1", "vgpu-abi", "vgpu-run"].iter().chain(&shims) {
            assert!(!below.contains(*guest), "{package} knows {guest}");
        }
    }
}
