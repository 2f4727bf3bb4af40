//! Links a tiny archive to a library with code and to one without, and calls what came out through the real
//! loader.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use xtask::shims::core::{Core, CoreError};
use xtask::shims::gate::Table;
use xtask::shims::inspect::{Expected, Object, problems};
use xtask::shims::link::{CoreJob, GateJob, Linker, Names, link_core, link_gate};
use xtask::shims::symbols::{Symbol, parse};
use xtask::shims::{LIBRARIES, Library};

/// SONAME of the library that contains the code. The library without code has the same exports.
const CORE: &str = "libtiny.so.7";
const GATE: &str = "libgate.so.7";
/// Entry of the library whose names the archive implements.
const TINY: Library = Library { soname: CORE, implementation: "tiny", ..LIBRARIES[0] };

const LIST: &str = "tinyData ret=data:4096\ntinyDone\ntinyFloat ret=c64\ntinyMake ret=struct:20\n\
                    tinyStatus\ntinyUnknown ret=?\ntinyVoid ret=void\n";

struct Folder(PathBuf);

impl Folder {
    /// Creates a directory with the tiny archive, and the program that calls stubs.
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("vgpu-link-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let object = folder.join("tiny.o");
        run(Command::new("cc").args(["-O1", "-fPIC", "-c", "-o"]).arg(&object).arg(sources.join("tiny.c")));
        run(Command::new("ar").arg("rcs").arg(folder.join("libtiny.a")).arg(&object));
        run(Command::new("cc").args(["-O1", "-o"]).arg(folder.join("loader")).arg(sources.join("loader.c")));
        Self(folder)
    }

    /// Returns the names of a list that the archive implements.
    fn implemented(&self, list: &str) -> Result<BTreeSet<String>, CoreError> {
        Core::read(&self.0.join("libtiny.a")).unwrap().implemented(&TINY, &parse(list).unwrap())
    }

    /// Links the library that contains the code.
    fn core(&self, node: Option<&str>) -> PathBuf {
        let symbols = parse(LIST).unwrap();
        let implemented = self.implemented(LIST).unwrap();
        let job = CoreJob {
            names: Names { soname: CORE, node, status: 801, symbols: &symbols },
            implementation: TINY.implementation,
            implemented: &implemented,
            tables: &[(self.table(), TINY.implementation)],
            archive: &self.0.join("libtiny.a"),
            work: &self.0.join("work"),
        };
        link_core(&Linker::from_env(), &job).unwrap()
    }

    fn table(&self) -> Table {
        Table::new(GATE, &self.implemented(LIST).unwrap())
    }

    /// Links the library without code against `core`, whose directory the loader will search.
    fn gate(&self, node: Option<&str>, core: &Path) -> PathBuf {
        let symbols = parse(LIST).unwrap();
        let job = GateJob {
            names: Names { soname: GATE, node, status: 801, symbols: &symbols },
            table: &self.table(),
            not_initialized: 3,
            libcuda: core,
            work: &self.0.join("work"),
        };
        link_gate(&Linker::from_env(), &job).unwrap()
    }

    fn call(&self, object: &Path, name: &str, kind: &str) -> Output {
        let mut command = Command::new(self.0.join("loader"));
        command.env("LD_LIBRARY_PATH", self.0.join("work"));
        command.arg(object).args([name, kind]).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A failure leaves a temporary directory behind, which disturbs nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn names(symbols: &[Symbol]) -> BTreeSet<&str> {
    symbols.iter().map(|symbol| symbol.name.as_str()).collect()
}

#[test]
fn objects_export_their_list_and_nothing_else() {
    let folder = Folder::new("exports");
    let symbols = parse(LIST).unwrap();
    let examine = |path: &Path, soname, node, needed: &[&str]| {
        let object = Object::parse(&fs::read(path).unwrap()).unwrap();
        let expected = Expected { soname, node, names: &names(&symbols), needed };
        assert_eq!(problems(&object, &expected), Vec::<String>::new());
        object
    };
    for node in [None, Some("NODE")] {
        let core = folder.core(node);
        let object = examine(&core, CORE, node, &["libc.so.6"]);
        assert_eq!(object.tables, [folder.table().symbol().to_owned()].into());
        let object = examine(&folder.gate(node, &core), GATE, node, &[CORE]);
        assert_eq!(object.needed, [CORE]);
    }
    assert_eq!(folder.implemented(LIST).unwrap(), ["tinyDone".to_owned()].into());
}

#[test]
fn stubs_answer_by_their_kind_and_log_once() {
    let folder = Folder::new("answers");
    let core = folder.core(None);
    let gate = folder.gate(Some("NODE"), &core);
    for object in [&core, &gate] {
        for (name, kind) in [
            ("tinyStatus", "801"),
            ("tinyUnknown", "801"),
            ("tinyVoid", "0"),
            ("tinyFloat", "float"),
            ("tinyMake", "struct"),
        ] {
            let output = folder.call(object, name, kind);
            assert_eq!(String::from_utf8_lossy(&output.stderr), format!("stub {name}\n"));
            assert!(output.status.success(), "{name}: {}", output.status);
        }
        for (name, kind) in [("tinyDone", "0"), ("tinyData", "data")] {
            let output = folder.call(object, name, kind);
            assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
        }
        // The helper is defined but not listed.
        assert_eq!(folder.call(object, "tinyHelper", "5").status.code(), Some(4));
    }
}

#[test]
fn beside_a_foreign_library_the_answer_is_not_initialized() {
    let folder = Folder::new("foreign");
    let core = folder.core(None);
    let gate = folder.gate(None, &core);
    fs::write(folder.0.join("foreign.c"), "int other;").unwrap();
    let source = folder.0.join("foreign.c");
    run(Command::new("cc").args(["-shared", "-Wl,-soname,libtiny.so.7", "-o"]).arg(&core).arg(source));
    for (name, kind) in [
        ("tinyDone", "3"),
        ("tinyStatus", "3"),
        ("tinyVoid", "0"),
        ("tinyFloat", "float"),
        ("tinyMake", "struct"),
        ("tinyData", "data"),
    ] {
        let output = folder.call(&gate, name, kind);
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
    }
}

#[test]
fn a_name_that_the_list_lacks_is_an_error() {
    let folder = Folder::new("unlisted");
    let error = folder.implemented("tinyStatus\n").unwrap_err();
    assert!(matches!(error, CoreError::Unlisted { names, .. } if names == "tinyDone"));
}

#[test]
fn an_archive_without_answers_is_an_error() {
    let folder = Folder::new("answerless");
    fs::write(folder.0.join("none.c"), "int none;").unwrap();
    let object = folder.0.join("none.o");
    run(Command::new("cc").args(["-c", "-o"]).arg(&object).arg(folder.0.join("none.c")));
    fs::remove_file(folder.0.join("libtiny.a")).unwrap();
    run(Command::new("ar").arg("rcs").arg(folder.0.join("libtiny.a")).arg(&object));
    let error = Core::read(&folder.0.join("libtiny.a")).unwrap_err();
    assert!(matches!(error, CoreError::NoAnswers { name: "vgpu_stub_status", .. }));
}

/// Mangled name of the function with which std prints a backtrace, as rustc 1.95 forms it.
const PRINTER: &str = "_RNvXNvMNtNtCsjrHSEGnQ3l9_3std3sys9backtraceNtB5_13BacktraceLock5printNtB2_\
                       16DisplayBacktraceNtNtCsgEmfK2I1SDS_4core3fmt7Display3fmt";

#[test]
fn what_prints_backtraces_stays_out_of_an_object_that_calls_it() {
    // What a function refers to with a name of that kind, and what it returns, before and after.
    for (name, kept, answer) in [("printOther", true, "7"), (PRINTER, false, "0")] {
        let folder = Folder::new("backtraces");
        let (source, object) = (folder.0.join("printer.c"), folder.0.join("printer.o"));
        let text = format!(
            "const char reader[] = \"reads DWARF\";\n\
             int {name}(const char *from) {{ return from == reader ? reader[0] - 'k' : 1; }}\n\
             int (*volatile print)(const char *) = {name};\n\
             int tiny_tinyStatus(void) {{ return print(0) ? 7 : 0; }}\n"
        );
        fs::write(&source, text).unwrap();
        run(Command::new("cc")
            .args(["-O1", "-fPIC", "-ffunction-sections", "-fdata-sections"])
            .args(["-c", "-o"])
            .arg(&object)
            .arg(&source));
        run(Command::new("ar").arg("rcs").arg(folder.0.join("libtiny.a")).arg(&object));
        let core = folder.core(None);
        let bytes = fs::read(&core).unwrap();
        assert_eq!(bytes.windows(11).any(|part| part == b"reads DWARF"), kept, "{name}");
        let output = folder.call(&core, "tinyStatus", answer);
        assert!(output.status.success(), "{name}: {output:?}");
    }
}
