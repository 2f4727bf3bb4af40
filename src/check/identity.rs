//! The user that a child process of `check` becomes.

/// How a child becomes another user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Become {
    /// What `--user` takes.
    pub user: String,
    /// Groups besides the user's own.
    pub groups: Vec<u32>,
}

impl Become {
    /// With no groups but the user's own.
    pub fn user(name: &str) -> Self {
        Self { user: name.to_owned(), groups: Vec::new() }
    }
}
