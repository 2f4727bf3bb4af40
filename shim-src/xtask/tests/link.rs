//! Links a tiny archive, and calls what came out through the real loader.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use xtask::shims::Driver;
use xtask::shims::inspect::{Expected, Object, problems};
use xtask::shims::link::{Job, LinkError, Linked, Linker, link};
use xtask::shims::symbols::{Symbol, parse};

const LIST: &str = "tinyData ret=data:4096\ntinyDone\ntinyFloat ret=c64\ntinyMake ret=struct:20\n\
                    tinyStatus\ntinyUnknown ret=?\ntinyVoid ret=void\n";

struct Folder(PathBuf);

impl Folder {
    /// A folder with the tiny archive, and the program that calls stubs.
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

    fn link(
        &self,
        list: &str,
        node: Option<&str>,
        driver: Option<(&Path, Driver)>,
    ) -> Result<Linked, LinkError> {
        let symbols = parse(list).unwrap();
        let archive = self.0.join("libtiny.a");
        let work = self.0.join("work");
        let job = Job {
            soname: "libtiny.so.7",
            node,
            status: 801,
            symbols: &symbols,
            prefixes: &["tinyDo"],
            archive: &archive,
            driver,
            work: &work,
        };
        link(&Linker::from_env(), &job)
    }

    fn call(&self, object: &Path, name: &str, kind: &str) -> Output {
        Command::new(self.0.join("loader")).arg(object).args([name, kind]).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind disturbs nobody.
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
fn an_object_exports_its_list_and_nothing_else() {
    let folder = Folder::new("exports");
    let symbols = parse(LIST).unwrap();
    for node in [None, Some("libtiny.so.7")] {
        let linked = folder.link(LIST, node, None).unwrap();
        let object = Object::parse(&fs::read(&linked.path).unwrap()).unwrap();
        let expected =
            Expected { soname: "libtiny.so.7", node, names: &names(&symbols), needed: &["libc.so.6"] };
        assert_eq!(problems(&object, &expected), Vec::<String>::new());
        assert_eq!(linked.implemented, ["tinyDone".to_owned()].into());
    }
}

#[test]
fn an_object_needs_libcuda_as_it_is_told() {
    let folder = Folder::new("needs");
    let libcuda = folder.0.join("libcuda.so.1");
    fs::write(folder.0.join("empty.c"), "").unwrap();
    run(Command::new("cc")
        .args(["-shared", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(&libcuda)
        .arg(folder.0.join("empty.c")));
    for (driver, needs) in [(Driver::Needs, true), (Driver::MayNeed, false), (Driver::Is, false)] {
        let linked = folder.link(LIST, None, Some((&libcuda, driver))).unwrap();
        let object = Object::parse(&fs::read(&linked.path).unwrap()).unwrap();
        assert_eq!(object.needed.iter().any(|name| name == "libcuda.so.1"), needs, "{driver:?}");
    }
}

#[test]
fn stubs_answer_by_their_kind_and_log_once() {
    let folder = Folder::new("answers");
    let object = folder.link(LIST, Some("libtiny.so.7"), None).unwrap().path;
    for (name, kind) in [
        ("tinyStatus", "801"),
        ("tinyUnknown", "801"),
        ("tinyVoid", "0"),
        ("tinyFloat", "float"),
        ("tinyMake", "struct"),
    ] {
        let output = folder.call(&object, name, kind);
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("stub {name}\n"));
        assert!(output.status.success(), "{name}: {}", output.status);
    }
    for (name, kind) in [("tinyDone", "0"), ("tinyData", "data")] {
        let output = folder.call(&object, name, kind);
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
    }
    // The helper is defined but not listed.
    assert_eq!(folder.call(&object, "tinyHelper", "5").status.code(), Some(4));
}

#[test]
fn a_name_that_the_list_lacks_is_an_error() {
    let folder = Folder::new("unlisted");
    let error = folder.link("tinyStatus\n", None, None).unwrap_err();
    assert!(matches!(error, LinkError::Unlisted { names, .. } if names == "tinyDone"));
}

#[test]
fn an_archive_without_answers_is_an_error() {
    let folder = Folder::new("answerless");
    fs::write(folder.0.join("none.c"), "int none;").unwrap();
    let object = folder.0.join("none.o");
    run(Command::new("cc").args(["-c", "-o"]).arg(&object).arg(folder.0.join("none.c")));
    fs::remove_file(folder.0.join("libtiny.a")).unwrap();
    run(Command::new("ar").arg("rcs").arg(folder.0.join("libtiny.a")).arg(&object));
    let error = folder.link(LIST, None, None).unwrap_err();
    assert!(matches!(error, LinkError::NoAnswers { name: "vgpu_stub_status", .. }));
}

/// The function by which std prints a backtrace, as rustc 1.95 names it.
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
             int tinyStatus(void) {{ return print(0) ? 7 : 0; }}\n"
        );
        fs::write(&source, text).unwrap();
        run(Command::new("cc")
            .args(["-O1", "-fPIC", "-ffunction-sections", "-fdata-sections"])
            .args(["-c", "-o"])
            .arg(&object)
            .arg(&source));
        run(Command::new("ar").arg("rcs").arg(folder.0.join("libtiny.a")).arg(&object));
        let linked = folder.link(LIST, None, None).unwrap();
        let bytes = fs::read(&linked.path).unwrap();
        assert_eq!(bytes.windows(11).any(|part| part == b"reads DWARF"), kept, "{name}");
        let output = folder.call(&linked.path, "tinyStatus", answer);
        assert!(output.status.success(), "{name}: {output:?}");
    }
}
