//! Which functions of an object lie side by side: those that run whenever it starts.
//!
//! The kernel maps a file's pages sixteen at a time, when one of them is first touched, and that costs a
//! start four microseconds; a linker that keeps the compiler's order strews these functions over most of
//! the object. So a linker script puts them first. A name that is not there (another compiler, a function
//! that was renamed or inlined) is no error: then that function lies where it would have, and the object is
//! as right as before.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Functions of libcuda to place first, as a list of symbol name patterns, one per line.
const LIBCUDA: &str = include_str!("first.list");

/// Returns the patterns of a list: its lines except for comments and empty ones.
pub fn patterns(list: &str) -> impl Iterator<Item = &str> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Returns a linker script, to be used besides the default one, that places the functions with these names
/// first.
pub fn script<'a>(patterns: impl Iterator<Item = Cow<'a, str>>) -> String {
    let mut script = String::from("SECTIONS\n{\n  .text.first :\n  {\n");
    for pattern in patterns {
        // The compiler gives each function a section, and another name to those of functions that it takes
        // for rare.
        let _ = writeln!(script, "    *(.text.{pattern} .text.unlikely.{pattern})");
    }
    script.push_str("  }\n}\nINSERT BEFORE .text;\n");
    script
}

/// Returns the linker script of libcuda, whose exports are prefixed with the name of the crate
/// `implementation`.
pub fn libcuda(implementation: &str) -> String {
    script(patterns(LIBCUDA).map(|pattern| {
        let export = pattern.starts_with("cu");
        if export { format!("{implementation}_{pattern}").into() } else { pattern.into() }
    }))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks that a linker takes each pattern of a list for a single name.
    pub fn are_names_and_stars(list: &str) {
        assert!(patterns(list).count() > 50);
        for pattern in patterns(list) {
            let good = |c: char| c.is_ascii_alphanumeric() || "_$.*".contains(c);
            assert!(pattern.chars().all(good), "{pattern}");
        }
    }

    #[test]
    fn exports_are_found_by_the_name_of_their_crate() {
        let text = libcuda("lib");
        assert!(text.contains("    *(.text.lib_cuInit .text.unlikely.lib_cuInit)\n"));
        assert!(text.ends_with("INSERT BEFORE .text;\n"));
    }

    #[test]
    fn patterns_are_names_and_stars() {
        are_names_and_stars(LIBCUDA);
    }
}
