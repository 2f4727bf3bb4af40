//! The user that a child process of `check` becomes.

/// User and groups that a child process takes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Become {
    /// Name in the form that `--user` takes.
    pub user: String,
    /// Supplementary group ids besides the user's own groups.
    pub groups: Vec<u32>,
}

impl Become {
    /// Creates the identity of the user `name` with only its own groups.
    pub fn user(name: &str) -> Self {
        Self { user: name.to_owned(), groups: Vec::new() }
    }
}
