//! Tests as data: a module, what it is about, and how its results are checked.

use crate::device::Device;

/// How a case is checked: launches kernels of its module, and says what is wrong with what they did.
pub type Check = Box<dyn Fn(&mut Device) -> Result<(), String> + Send + Sync>;

/// A module and the check of what its kernels do.
pub struct Case {
    /// The spelling under test, or what a test of several is about. Unique.
    pub name: String,
    /// The spellings whose results the test checks. Each is in `text`.
    pub covers: Vec<String>,
    /// PTX text of the module.
    pub text: String,
    pub check: Check,
}

impl Case {
    /// A case for the instructions `covers`, separated by spaces. The text's version, target and address size
    /// are put before it.
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

    /// Whether the module has an instruction of this spelling.
    pub fn contains(&self, spelling: &str) -> bool {
        self.text.match_indices(spelling).any(|(at, _)| {
            let before = self.text[..at].chars().next_back();
            let after = self.text[at + spelling.len()..].chars().next();
            before.is_none_or(char::is_whitespace) && after.is_some_and(|c| c.is_whitespace() || c == ';')
        })
    }
}

/// What modules begin with. Instructions of later targets are in some tests as well.
pub const HEADER: &str = ".version 8.4\n.target sm_90\n.address_size 64\n";
