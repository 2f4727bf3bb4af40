//! From a name of a library to its code, which is in libcuda.so.1 for all of them.
//!
//! libcuda exports a table for each of the other libraries: how far each implemented function is from the
//! table. The library's object has one reference, to this table, and for each name a few instructions that
//! jump through it: nothing else for the loader to relocate or to look up. The name of the table includes a
//! digest of what is in it, and the reference is weak. So an object that meets a libcuda of NVIDIA's, or of
//! another build, finds no table, and its functions answer that there is no driver.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::files::sha256;
use super::stub;
use super::symbols::{Kind, Returns, Symbol};

/// Prefix of the tables' symbol names, which are no names of NVIDIA's library.
pub const PREFIX: &str = "vgpu_table_";
/// Size of a table entry in bytes.
const ENTRY: usize = 4;
/// First entries of a table: the two answers of stubs.
const ANSWERS: [&str; 2] = [stub::STATUS, stub::ZERO];
/// Labels of the code that jumps to the table's entry at offset %r10 in bytes; %r10 and %r11 carry no
/// arguments. Without a table it returns a status, or zero.
const ENTER: [&str; 2] = [".Lenter_status", ".Lenter_word"];

/// Implemented functions of a library, in the order of its table.
#[derive(Clone, Debug)]
pub struct Table {
    symbol: String,
    functions: Vec<String>,
}

impl Table {
    /// Creates the table of the library `soname`.
    pub fn new(soname: &str, implemented: &BTreeSet<String>) -> Self {
        let functions: Vec<String> = implemented.iter().cloned().collect();
        let digest = sha256(functions.join("\n").as_bytes());
        let library = soname.replace(['.', '-'], "_");
        Self { symbol: format!("{PREFIX}{library}_{}", &digest[..16]), functions }
    }

    /// Returns the symbol by which libcuda exports the table.
    pub fn symbol(&self) -> &str {
        &self.symbol
    }

    /// Returns the assembly of the table for libcuda, whose functions are prefixed with the name of the crate
    /// `implementation`.
    pub fn assembly(&self, implementation: &str) -> String {
        let symbol = &self.symbol;
        let mut text = format!(
            "\t.section .rodata\n\t.p2align 2\n\t.globl {symbol}\n\t.type {symbol}, @object\n{symbol}:\n.L{symbol}:\n"
        );
        let functions = self.functions.iter().map(|name| format!("{implementation}_{name}"));
        for function in ANSWERS.map(str::to_owned).into_iter().chain(functions) {
            let _ = writeln!(text, "\t.hidden {function}\n\t.long {function} - .L{symbol}");
        }
        let _ = writeln!(text, "\t.size {symbol}, .-{symbol}");
        text
    }

    /// Returns the offset in bytes of a function's entry in the table.
    fn offset(&self, name: &str) -> Option<usize> {
        let index = self.functions.binary_search_by(|other| other.as_str().cmp(name)).ok()?;
        Some((ANSWERS.len() + index) * ENTRY)
    }
}

/// Returns the assembly of a library that exports `symbols`: jumps through the table, and stubs that return
/// `status`. Without a table they return `not_initialized`.
pub fn assembly(table: &Table, symbols: &[Symbol], status: i32, not_initialized: i32) -> String {
    let mut text = format!("\t.weak {}\n", table.symbol);
    for (enter, answer) in ENTER.iter().zip([
        format!("\tmovl ${not_initialized}, %eax\n\tret\n"),
        "\txorl %eax, %eax\n\txorps %xmm0, %xmm0\n\txorps %xmm1, %xmm1\n\tret\n".to_owned(),
    ]) {
        let _ = write!(
            text,
            "\t.text\n\t.p2align 4\n{enter}:\n\tmovq {}@GOTPCREL(%rip), %r11\n\ttestq %r11, %r11\n\tje 1f\n\
             \tmovslq (%r11,%r10), %r10\n\taddq %r11, %r10\n\tjmp *%r10\n1:\n{answer}",
            table.symbol
        );
    }
    for symbol in symbols {
        if let (Some(offset), Kind::Function(returns)) = (table.offset(&symbol.name), symbol.kind) {
            let [status, word] = ENTER;
            let enter = if returns == Returns::Status { status } else { word };
            stub::entry(&mut text, &symbol.name, &format!("\tmovl ${offset}, %r10d\n\tjmp {enter}\n"));
        }
    }
    let missing = symbols.iter().filter(|symbol| table.offset(&symbol.name).is_none());
    text + &stub::assembly(missing, status, [&through(0), &through(1)])
}

/// Returns the instructions by which a stub reaches one of the two answers through the table.
fn through(answer: usize) -> stub::Reach {
    stub::Reach { first: format!("\tmovl ${}, %r10d\n", answer * ENTRY), target: ENTER[answer] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str]) -> Table {
        Table::new("libcublasLt.so.12", &names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn tables_of_other_functions_have_other_names() {
        let symbol = table(&["a", "b"]).symbol;
        assert!(symbol.starts_with("vgpu_table_libcublasLt_so_12_"), "{symbol}");
        assert_eq!(symbol, table(&["b", "a"]).symbol);
        assert_ne!(symbol, table(&["a", "c"]).symbol);
    }

    #[test]
    fn the_table_and_the_jumps_agree_on_the_order() {
        let table = table(&["two", "one"]);
        let text = table.assembly("crate");
        let entries: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("\t.long ")).collect();
        let wanted = ["vgpu_stub_status", "vgpu_stub_zero", "crate_one", "crate_two"];
        assert!(entries.iter().zip(wanted).all(|(entry, name)| entry.starts_with(name)), "{text}");
        let symbols = ["one", "three", "two"]
            .map(|name| Symbol { name: name.into(), kind: Kind::Function(Returns::Status) });
        let text = assembly(&table, &symbols, 15, 1);
        assert!(text.contains("two:\n\tendbr64\n\tmovl $12, %r10d\n\tjmp .Lenter_status\n"), "{text}");
        assert!(text.contains("\tmovl $0, %r10d\n\tjmp .Lenter_status\n"), "{text}");
    }
}
