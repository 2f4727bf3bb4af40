//! Tests with programs and libraries from the system's compiler that request NVIDIA's private tables, and
//! some that only look similar. `check PROGRAM` reports such requests by a program with a statically linked
//! runtime, and by cuDNN, NCCL and cuFFT.

use std::process::Command;

use super::*;
use crate::scratch::Scratch;

/// Source with the constants that the static runtime contains.
const RUNTIME_SOURCE: &str = "const char *const driver = \"libcuda.so.1\";\nconst char *const function = \"cuGetExportTable\";\n\
    const unsigned char table[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};\n";
/// Source with the constants of a program that looks up driver functions by name.
const DRIVER_SOURCE: &str =
    "const char *const driver = \"libcuda.so.1\";\nconst char *const function = \"cuGetExportTable\";\n";
const EMPTY_SOURCE: &str = "int nothing(void) { return 0; }\n";

/// Compiles a library, or a program if the source has a `main`. It needs `libraries` of the same directory.
fn build(scratch: &Scratch, name: &str, source: &str, libraries: &[&str]) -> PathBuf {
    let (path, file) = (scratch.join(name), scratch.join(format!("{name}.c")));
    std::fs::write(&file, source).unwrap();
    let mut command = Command::new("cc");
    command
        .arg("-o")
        .arg(&path)
        .arg(&file)
        .arg("-Wl,--no-as-needed,-rpath,$ORIGIN")
        .arg("-L")
        .arg(scratch.path());
    if name.contains(".so") {
        command.args(["-shared", "-fPIC"]).arg(format!("-Wl,-soname,{name}"));
    }
    command.args(libraries.iter().map(|library| format!("-l:{library}")));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    path
}

fn main_of(source: &str) -> String {
    format!("{source}int main(void) {{ return 0; }}\n")
}

fn found(path: &Path) -> TableAskers {
    find_askers(vec![path.to_owned()], &Search::new(None, Vec::new()), &BTreeSet::from(["libcublas.so.12"]))
}

#[test]
fn a_statically_linked_runtime_is_seen_and_a_dynamic_one_is_not() {
    let scratch = Scratch::new();
    let linked_in = build(&scratch, "static", &main_of(RUNTIME_SOURCE), &[]);
    assert_eq!(
        found(&linked_in),
        TableAskers { askers: vec![Asker::Runtime(linked_in)], unseen: Vec::new() }
    );
    // One that opens the driver's library itself has the names and not the table's id.
    assert_eq!(found(&build(&scratch, "driver", &main_of(DRIVER_SOURCE), &[])), TableAskers::default());
    // The runtime as a library of its own is what vgpu-run replaces.
    build(&scratch, "libcudart.so.12", RUNTIME_SOURCE, &[]);
    let shared = build(&scratch, "shared", &main_of(EMPTY_SOURCE), &["libcudart.so.12"]);
    assert_eq!(found(&shared), TableAskers::default());
    let needs_it = build(&scratch, "both", &main_of(RUNTIME_SOURCE), &["libcudart.so.12"]);
    assert_eq!(found(&needs_it), TableAskers::default());
}

#[test]
fn a_library_that_brings_the_runtime_is_seen_however_deep() {
    let scratch = Scratch::new();
    let deep = build(&scratch, "libdeep.so.1", RUNTIME_SOURCE, &[]);
    build(&scratch, "libshallow.so.1", EMPTY_SOURCE, &["libdeep.so.1"]);
    let program = build(&scratch, "program", &main_of(""), &["libshallow.so.1"]);
    assert_eq!(found(&program).askers, [Asker::Runtime(deep.clone())]);
    // The program does not get the libraries that vgpu-run replaces.
    build(&scratch, "libcublas.so.12", RUNTIME_SOURCE, &[]);
    let replaced = build(&scratch, "replaced", &main_of(""), &["libcublas.so.12"]);
    assert_eq!(found(&replaced), TableAskers::default());
    std::fs::remove_file(deep).unwrap();
    let unseen = found(&program);
    assert!(
        unseen.askers.is_empty() && unseen.unseen[0].contains("libdeep.so.1, which cannot be found"),
        "{unseen:?}"
    );
}

#[test]
fn nvidias_libraries_that_ask_are_named() {
    let scratch = Scratch::new();
    for (soname, name) in [
        ("libcudnn.so.9", "cuDNN"),
        ("libcudnn_ops.so.9", "cuDNN"),
        ("libnccl.so.2", "NCCL"),
        ("libcufft.so.11", "cuFFT"),
        ("libcufftw.so.11", "cuFFT"),
    ] {
        build(&scratch, soname, EMPTY_SOURCE, &[]);
        build(&scratch, "libmiddle.so.1", EMPTY_SOURCE, &[soname]);
        let program = build(&scratch, "program", &main_of(""), &["libmiddle.so.1"]);
        let asker = Asker::Library { by: scratch.join("libmiddle.so.1"), soname: soname.into(), name };
        assert_eq!(found(&program).askers, [asker]);
    }
    for other in ["libncclient.so.1", "libcufftless.so", "libcublas.so.12", "libcudart.so.12", "libcuda.so.1"]
    {
        assert_eq!(asks(other), None, "{other}");
    }
}
