//! Representation of tests as data: a module, its name, and the check of its results.

use crate::device::Device;

/// Function that launches kernels of a module and returns an error if their results are wrong.
pub type Check = Box<dyn Fn(&mut Device) -> Result<(), String> + Send + Sync>;

/// A module and the check of its kernels' results.
pub struct Case {
    /// Unique name: the instruction under test, or the topic of a test of several instructions.
    pub name: String,
    /// Instruction spellings whose results the test checks. The text contains each of them.
    pub covers: Vec<String>,
    /// PTX text of the module.
    pub text: String,
    pub check: Check,
}

impl Case {
    /// Creates a case for the instructions in `covers`, which are separated by spaces. The header is
    /// prepended to the text.
    pub fn new(
        name: &str,
        covers: &str,
        text: &str,
        check: impl Fn(&mut Device) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            covers: covers.split_whitespace().map(Into::into).collect(),
            text: format!("{HEADER}{text}"),
            check: Box::new(check),
        }
    }

    /// Returns whether the module contains an instruction of this spelling.
    pub fn contains(&self, spelling: &str) -> bool {
        self.text.match_indices(spelling).any(|(at, _)| {
            let before = self.text[..at].chars().next_back();
            let after = self.text[at + spelling.len()..].chars().next();
            before.is_none_or(char::is_whitespace) && after.is_some_and(|c| c.is_whitespace() || c == ';')
        })
    }
}

/// Returns a vector operand of the registers `%{name}0`, `%{name}1` and so on.
pub fn vector(name: &str, count: usize) -> String {
    let names: Vec<String> = (0..count).map(|index| format!("%{name}{index}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// Version, target and address size of all modules. Some tests also contain instructions of later targets.
pub const HEADER: &str = ".version 8.4\n.target sm_90\n.address_size 64\n";
