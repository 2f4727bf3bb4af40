//! Tests which changes make a shim stale, on a miniature workspace.

use std::fs;
use std::path::{Path, PathBuf};

use xtask::shims::inputs::Inputs;

const ROOT: &str = r#"
[workspace]
members = ["common/abi", "shim-src/libcuda", "shim-src/libnvidia-ml", "testbed"]
[workspace.dependencies]
libc = "0.2"
vgpu-abi = { path = "common/abi" }
proptest = "1"
[profile.shim]
inherits = "release"
"#;

const LOCK: &str = r#"
version = 4
[[package]]
name = "libc"
version = "0.2.100"
source = "registry"
checksum = "aa"
[[package]]
name = "proptest"
version = "1.0.0"
source = "registry"
checksum = "bb"
"#;

struct Workspace(PathBuf);

impl Workspace {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("vgpu-inputs-{name}-{}", std::process::id()));
        let this = Self(root);
        this.write("Cargo.toml", ROOT);
        this.write("Cargo.lock", LOCK);
        let tail = "[dev-dependencies]\nproptest.workspace = true\n";
        for (folder, package, dependencies) in [
            ("common/abi", "vgpu-abi", "libc.workspace = true\n"),
            ("shim-src/libcuda", "vgpu-libcuda", "vgpu-abi.workspace = true\n"),
            ("shim-src/libnvidia-ml", "vgpu-libnvidia-ml", ""),
        ] {
            let manifest = format!("[package]\nname = \"{package}\"\n[dependencies]\n{dependencies}{tail}");
            this.write(&format!("{folder}/Cargo.toml"), &manifest);
            this.write(&format!("{folder}/src/lib.rs"), "// nothing\n");
        }
        this.write("xtask/src/shims/mod.rs", "// links\n");
        this
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn replace(&self, path: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.0.join(path)).unwrap();
        assert!(text.contains(from), "{path}");
        self.write(path, &text.replace(from, to));
    }

    /// Returns the digests of libcuda and NVML.
    fn digests(&self) -> [String; 2] {
        let mut inputs = Inputs::open(&self.0).unwrap();
        ["vgpu-libcuda", "vgpu-libnvidia-ml"]
            .map(|package| inputs.digest(package, "object", &["tool 1".to_owned()]).unwrap().hex)
    }

    /// Returns whether a change makes libcuda and NVML stale.
    fn stale_after(&self, change: impl FnOnce(&Self)) -> [bool; 2] {
        let [cuda, nvml] = self.digests();
        change(self);
        let [new_cuda, new_nvml] = self.digests();
        [cuda != new_cuda, nvml != new_nvml]
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // A failure leaves a temporary directory behind, which disturbs nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_shim_depends_on_what_it_is_made_from() {
    let workspace = Workspace::new("sources");
    let stale = |change: &dyn Fn(&Workspace)| workspace.stale_after(change);
    assert_eq!(stale(&|_| ()), [false, false]);
    assert_eq!(stale(&|w| w.write("shim-src/libcuda/src/new.rs", "")), [true, false]);
    assert_eq!(stale(&|w| w.write("common/abi/symbols/x.list", "")), [true, false]);
    assert_eq!(stale(&|w| w.write("shim-src/libnvidia-ml/src/lib.rs", "// other\n")), [false, true]);
    assert_eq!(stale(&|w| w.write("xtask/src/shims/mod.rs", "// other\n")), [true, true]);
    assert_eq!(stale(&|w| w.replace("Cargo.toml", "\"release\"", "\"dev\"")), [true, true]);
    assert_eq!(stale(&|w| w.replace("Cargo.lock", "0.2.100", "0.2.101")), [true, false]);
    assert_eq!(stale(&|w| w.replace("Cargo.toml", "libc = \"0.2\"", "libc = \"0.2.1\"")), [true, false]);
}

#[test]
fn a_shim_does_not_depend_on_what_only_tests_use() {
    let workspace = Workspace::new("tests");
    let stale = |change: &dyn Fn(&Workspace)| workspace.stale_after(change);
    assert_eq!(stale(&|w| w.write("shim-src/libcuda/tests/calls.rs", "")), [false, false]);
    assert_eq!(stale(&|w| w.write("shim-src/libcuda/src/.lib.rs.swp", "")), [false, false]);
    assert_eq!(stale(&|w| w.write("testbed/src/main.rs", "")), [false, false]);
    assert_eq!(stale(&|w| w.write("xtask/src/cli.rs", "")), [false, false]);
    assert_eq!(stale(&|w| w.replace("Cargo.lock", "1.0.0", "1.0.1")), [false, false]);
    assert_eq!(stale(&|w| w.replace("Cargo.toml", "proptest = \"1\"", "proptest = \"2\"")), [false, false]);
}

#[test]
fn moving_text_between_files_is_a_change_and_moving_the_tree_is_none() {
    let one = Workspace::new("one");
    let two = Workspace::new("two");
    assert_eq!(one.digests(), two.digests());
    one.write("shim-src/libcuda/src/a.rs", "xy");
    one.write("shim-src/libcuda/src/b.rs", "");
    two.write("shim-src/libcuda/src/a.rs", "x");
    two.write("shim-src/libcuda/src/b.rs", "y");
    assert_ne!(one.digests()[0], two.digests()[0]);
}

#[test]
fn the_tools_count_and_the_watched_paths_exist() {
    let workspace = Workspace::new("tools");
    let mut inputs = Inputs::open(&workspace.0).unwrap();
    let one = inputs.digest("vgpu-libcuda", "object", &["tool 1".to_owned()]).unwrap();
    let two = inputs.digest("vgpu-libcuda", "object", &["tool 2".to_owned()]).unwrap();
    assert_ne!(one.hex, two.hex);
    assert!(one.watch.iter().all(|path| path.exists()), "{:?}", one.watch);
    assert!(one.watch.contains(Path::new(&workspace.0.join("common/abi"))));
}
