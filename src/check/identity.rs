//! The user that a child process of `check` becomes.

/// User and groups that a child process takes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Become {
    /// Name in the form that `--user` takes.
    pub user: String,
    /// Groups besides the user's own.
    pub groups: Vec<u32>,
}

impl Become {
    /// The user `name` with its own groups only.
    pub fn user(name: &str) -> Self {
        Self { user: name.to_owned(), groups: Vec::new() }
    }
}
