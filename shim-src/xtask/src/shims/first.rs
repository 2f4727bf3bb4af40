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

/// A linker script to be given beside the linker's own. The exports of libcuda bear the name of the crate
/// `implementation`.
pub fn script(implementation: &str) -> String {
    let mut script = String::from("SECTIONS\n{\n  .text.first :\n  {\n");
    for pattern in patterns(LIBCUDA) {
        let export = if pattern.starts_with("cu") { format!("{implementation}_") } else { String::new() };
        // The compiler gives each function a section, and another name to those of functions that it takes
        // for rare.
        let _ = writeln!(script, "    *(.text.{export}{pattern} .text.unlikely.{export}{pattern})");
    }
    script.push_str("  }\n}\nINSERT BEFORE .text;\n");
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_found_by_the_name_of_their_crate() {
        let text = script("lib");
        assert!(text.contains("    *(.text.lib_cuInit .text.unlikely.lib_cuInit)\n"));
        assert!(text.ends_with("INSERT BEFORE .text;\n"));
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
