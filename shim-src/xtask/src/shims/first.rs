//! Which functions of an object lie side by side: those that run in every process that looks for devices.
//!
//! The kernel maps a file's pages sixteen at a time, when one of them is first touched, and that costs a
//! start four microseconds; a linker that keeps the compiler's order strews these functions over most of
//! libcuda. So a linker script puts them first. A name that is not there (another compiler, a function that
//! was renamed or inlined) is no error: then that function lies where it would have, and the object is as
//! right as before.

use std::fmt::Write as _;

/// The functions of libcuda, a pattern of symbol names a line.
const LIBCUDA: &str = include_str!("first.list");

fn patterns(list: &str) -> impl Iterator<Item = &str> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// A linker script to be given beside the linker's own, for objects that have such functions.
pub fn script(soname: &str) -> Option<String> {
    if soname != super::library::LIBCUDA.soname {
        return None;
    }
    let mut script = String::from("SECTIONS\n{\n  .text.first :\n  {\n");
    for pattern in patterns(LIBCUDA) {
        // The compiler gives each function a section, and another name to those of functions that it takes
        // for rare.
        let _ = writeln!(script, "    *(.text.{pattern} .text.unlikely.{pattern})");
    }
    script.push_str("  }\n}\nINSERT BEFORE .text;\n");
    Some(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libcuda_alone_has_functions_that_come_first() {
        let text = script("libcuda.so.1").unwrap();
        assert!(text.contains("    *(.text.cuInit .text.unlikely.cuInit)\n"));
        assert!(text.ends_with("INSERT BEFORE .text;\n"));
        assert!(script("libcudart.so.12").is_none());
    }

    #[test]
    fn patterns_are_names_and_stars() {
        assert!(patterns(LIBCUDA).count() > 50);
        for pattern in patterns(LIBCUDA) {
            let good = |c: char| c.is_ascii_alphanumeric() || "_$.*".contains(c);
            assert!(pattern.chars().all(good), "{pattern}");
        }
    }
}
