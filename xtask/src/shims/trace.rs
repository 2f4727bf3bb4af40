//! `libvgpu-trace.so`, which `vgpu-run trace` preloads before the shims: a trampoline for every name that any
//! of them exports, with its version node, and the table by which the crate knows them. It is no shim, and is
//! counted with none.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::inspect::Object;
use super::library::{LIBRARIES, Library};
use super::link::{LinkError, Linker};
use super::symbols::{Kind, Returns, Symbol};

/// File name of the tracer, which is also its name in `embedded/`.
pub const FILE: &str = "libvgpu-trace.so";
/// Name of the crate's package.
pub const PACKAGE: &str = "vgpu-trace";

/// Version node of exports that carry none in the shims. A reference without a version binds to the only
/// definition that is not hidden.
const PLAIN: &str = "VGPU_TRACE";
/// Version nodes of `dlsym`, of libdl and of a libc that includes it.
const DLSYM_NODES: [&str; 2] = ["GLIBC_2.2.5", "GLIBC_2.34"];
/// Size in bytes of a SONAME in the table.
const SONAME_BYTES: usize = 36;
/// Maximum number of bytes of a name in a trace record.
const NAME_MOST: usize = 80;
/// Functions that are called thousands of times while a library is loaded, and so are only counted.
const COUNTED: &[&str] = &["__cudaRegisterFunction", "__cudaRegisterVar", "__cudaRegisterManagedVar"];

/// Returns x86-64 assembly that defines the trampolines of `lists`, which are in the order of [`LIBRARIES`].
pub fn assembly(lists: &[Vec<Symbol>]) -> String {
    let mut code = String::from("\t.hidden vgpu_trace_common\n\t.text\n");
    let mut table = String::from(
        "\t.section .rodata\n\t.p2align 3\n\t.globl vgpu_trace_table\n\t.hidden vgpu_trace_table\nvgpu_trace_table:\n.Ltable:\n",
    );
    let mut names = String::from("\t.section .rodata.str1.1,\"aMS\",@progbits,1\n");
    let mut libraries = String::new();
    let mut number = 0;
    for (library, (about, symbols)) in LIBRARIES.iter().zip(lists).enumerate() {
        let first = number;
        for (symbol, returns) in functions(symbols) {
            let name = &symbol.name;
            trampoline(&mut code, about.node(), name, number);
            let counted = u8::from(COUNTED.contains(&name.as_str()));
            let other = u8::from(returns != Returns::Status);
            let _ = writeln!(names, ".Lname{number}:\n\t.asciz \"{name}\"");
            let _ = writeln!(
                table,
                "\t.long .Lname{number} - .Ltable, .Lentry{number} - .Ltable\n\t.byte {library}, {other}, {counted}, 0"
            );
            number += 1;
        }
        let versioned = u8::from(about.node().is_some());
        let soname = about.soname;
        let fill = SONAME_BYTES - soname.len();
        let _ = writeln!(
            libraries,
            "\t.long {first}, {}, {versioned}\n\t.ascii \"{soname}\"\n\t.zero {fill}",
            number - first
        );
    }
    code.push_str("\t.hidden vgpu_trace_dlsym\n");
    for (number, node) in DLSYM_NODES.iter().enumerate() {
        let own = format!("vgpu_trace_dlsym_{number}");
        let _ = writeln!(
            code,
            "\t.globl {own}\n\t.type {own}, @function\n{own}:\n\tendbr64\n\tjmp vgpu_trace_dlsym\n\
             \t.size {own}, .-{own}\n\t.symver {own}, dlsym@{node}"
        );
    }
    let words = 8 * number;
    format!(
        "{code}{table}{}{libraries}{}\t.long {number}\n{}\t.long {}\n\
         \t.bss\n\t.p2align 3\n{}\t.zero {words}\n{}\t.zero {words}\n{names}\
         \t.section .note.GNU-stack,\"\",@progbits\n",
        hidden("vgpu_trace_libraries"),
        hidden("vgpu_trace_count"),
        hidden("vgpu_trace_library_count"),
        LIBRARIES.len(),
        hidden("vgpu_trace_real"),
        hidden("vgpu_trace_slots"),
    )
}

fn hidden(name: &str) -> String {
    format!("\t.globl {name}\n\t.hidden {name}\n{name}:\n")
}

fn functions(symbols: &[Symbol]) -> impl Iterator<Item = (&Symbol, Returns)> {
    symbols.iter().filter_map(|symbol| match symbol.kind {
        Kind::Function(returns) => Some((symbol, returns)),
        // Data is taken from the shim.
        Kind::Data(_) => None,
    })
}

/// Appends a trampoline. That of a versioned name has a symbol of its own, which the versioned name aliases.
fn trampoline(code: &mut String, node: Option<&str>, name: &str, number: usize) {
    let own = node.map_or_else(|| name.to_owned(), |_| format!("vgpu_trace_{number}"));
    let _ = write!(
        code,
        "\t.p2align 4\n\t.globl {own}\n\t.type {own}, @function\n{own}:\n.Lentry{number}:\n\tendbr64\n\
         \tmovl ${number}, %r11d\n\tjmp vgpu_trace_common\n\t.size {own}, .-{own}\n"
    );
    if let Some(node) = node {
        let _ = writeln!(code, "\t.symver {own}, {name}@{node}");
    }
}

/// Returns the version script, which exports the plain names and the version nodes of the others, and nothing
/// else.
fn version_script(lists: &[Vec<Symbol>]) -> String {
    let mut script = format!(
        "{PLAIN} {{\n  global:\n    vgpu_trace_event;\n    vgpu_trace_refusal;\n    vgpu_trace_kernel;\n"
    );
    for (_, symbols) in LIBRARIES.iter().zip(lists).filter(|(library, _)| library.node().is_none()) {
        for (symbol, _) in functions(symbols) {
            let _ = writeln!(script, "    {};", symbol.name);
        }
    }
    script.push_str("  local: *;\n};\n");
    for node in LIBRARIES.iter().filter_map(Library::node).chain(DLSYM_NODES) {
        let _ = writeln!(script, "{node} {{ }};");
    }
    script
}

/// Returns the options that do not depend on paths, which are part of the digest that decides on a rebuild.
pub fn flags(linker: &Linker) -> Vec<&'static str> {
    linker.flags()
}

/// Links the object from the crate's archive and the trampolines in the directory `work`.
pub fn link(
    linker: &Linker,
    archive: &Path,
    lists: &[Vec<Symbol>],
    work: &Path,
) -> Result<PathBuf, LinkError> {
    let write = |name: &str, text: String| {
        let path = work.join(name);
        fs::write(&path, text).map_err(at(&path)).map(|()| path)
    };
    fs::create_dir_all(work).map_err(at(work))?;
    let bytes = fs::read(archive).map_err(at(archive))?;
    let archive = super::link::without_backtraces(bytes, archive, work)?;
    let trampolines = write("trampolines.s", assembly(lists))?;
    let map = write("exports.map", version_script(lists))?;
    let path = work.join(FILE);
    let (first, last) = linker.options();
    let mut command = linker.command();
    command
        .args(first)
        .arg(format!("-Wl,-soname,{FILE}"))
        .arg(super::link::concat("-Wl,--version-script=", &map))
        .arg("-o")
        .arg(&path)
        .arg(&trampolines)
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .args(last);
    super::link::run_linker(command, FILE)?;
    Ok(path)
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LinkError + use<> {
    let path = path.to_owned();
    move |source| LinkError::File { path, source }
}

/// Returns the reasons why an object is no valid tracer.
pub fn problems(object: &Object, lists: &[Vec<Symbol>]) -> Vec<String> {
    let mut problems = Vec::new();
    for prefix in ["libcu", "libnv", "libgcc"] {
        if let Some(name) = object.needed.iter().find(|name| name.starts_with(prefix)) {
            problems.push(format!("it needs {name}"));
        }
    }
    for (library, symbols) in LIBRARIES.iter().zip(lists) {
        let node = library.node().unwrap_or(PLAIN);
        let missing: Vec<&str> = functions(symbols)
            .map(|(symbol, _)| symbol.name.as_str())
            .filter(|name| !object.has(name, node))
            .collect();
        if let Some(first) = missing.first() {
            problems.push(format!(
                "{} names of {} are not in it, {first} one of them",
                missing.len(),
                library.soname
            ));
        }
        if let Some((symbol, _)) = functions(symbols).find(|(symbol, _)| symbol.name.len() > NAME_MOST) {
            problems.push(format!("{} is too long a name", symbol.name));
        }
    }
    if object.executable_stack {
        problems.push("it asks for an executable stack".to_owned());
    }
    problems
}
