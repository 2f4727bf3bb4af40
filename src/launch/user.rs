//! Implements `--user`: looks the user up and becomes that user.
//!
//! The program gets the environment of a service with `User=`: HOME, USER, LOGNAME and SHELL are the user's,
//! the caller's XDG_RUNTIME_DIR is removed, and the supplementary groups are the user's. PATH, the working
//! directory and everything else stay unchanged.

use std::fmt;
use std::io;
use std::str::FromStr;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

use super::accounts::{Account, Accounts};
use crate::diagnosis::Fix;
use crate::env::{Environment, HOME, LOGNAME, SHELL, USER, XDG_RUNTIME_DIR};
use crate::error::LauncherError;

/// A user and optionally a group, as the command line gives them: by name or by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserName {
    user: String,
    group: Option<String>,
}

impl FromStr for UserName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        if user.is_empty() || group.is_some_and(str::is_empty) {
            return Err("expected NAME or UID, or either with :GROUP or :GID");
        }
        Ok(Self { user: user.into(), group: group.map(Into::into) })
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.group {
            Some(group) => write!(out, "{}:{group}", self.user),
            None => out.write_str(&self.user),
        }
    }
}

/// Reason why the process cannot become the user.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The database has no such entry, and the name is not a number.
    #[error("failed to find the {0} {1}")]
    Unknown(&'static str, String),
    /// The user databases could not be read.
    #[error("failed to look up the user {0}")]
    Lookup(String, #[source] io::Error),
    /// The user is given by a number without an entry, so its group is unknown.
    #[error("failed to find the group of the user {0}")]
    NoGroup(String),
    /// The system does not permit the process to become this user; only root may.
    #[error("failed to become the user {0}")]
    Become(String, #[source] Errno),
    /// The process still had the rights of root after the change.
    #[error("failed to give up the rights of root")]
    StillRoot,
}

impl LauncherError for UserError {
    fn fix(&self) -> Option<Fix> {
        match self {
            Self::NoGroup(user) => Some(format!("Name it too: --user {user}:GID.").into()),
            Self::Become(_, Errno::EPERM) => Some("Only root can: start vgpu-run with sudo.".into()),
            _ => None,
        }
    }
}

/// A user that was looked up, with groups and account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Id of the user.
    pub uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    account: Option<Account>,
}

/// Parses an id. The largest number is rejected, because system calls interpret it as "leave unchanged".
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number != u32::MAX)
}

/// Looks a user up, first by name, then by number, as chown(1) does.
pub fn find(name: &UserName) -> Result<User, UserError> {
    let accounts = Accounts::system().map_err(|error| UserError::Lookup(name.user.clone(), error))?;
    let uid = number(&name.user).map(Uid::from_raw);
    let account = accounts.user(&name.user).or_else(|| accounts.user_of_number(uid?));
    let group = match &name.group {
        Some(group) => Some(
            accounts
                .group(group)
                .or_else(|| number(group).map(Gid::from_raw))
                .ok_or_else(|| UserError::Unknown("group", group.clone()))?,
        ),
        None => None,
    };
    match (account, uid) {
        (Some(account), _) => {
            let gid = group.unwrap_or(account.gid);
            let groups = accounts.groups(&account.name, gid);
            Ok(User { uid: account.uid, gid, groups, account: Some(account) })
        }
        (None, Some(uid)) => {
            let gid = group.ok_or_else(|| UserError::NoGroup(name.user.clone()))?;
            Ok(User { uid, gid, groups: vec![gid], account: None })
        }
        (None, None) => Err(UserError::Unknown("user", name.user.clone())),
    }
}

/// Returns the id of a group that is given by name or number.
pub fn group_number(name: &str) -> Option<u32> {
    let named = || Accounts::system().ok()?.group(name).map(Gid::as_raw);
    number(name).or_else(named)
}

/// Becomes `user` permanently and adapts `environment` to the user. The log file is then opened by the user.
pub fn become_user(user: &User, environment: &mut Environment) -> Result<(), UserError> {
    let failed = |errno| UserError::Become(user.label(), errno);
    setgroups(&user.groups).map_err(failed)?;
    setresgid(user.gid, user.gid, user.gid).map_err(failed)?;
    setresuid(user.uid, user.uid, user.uid).map_err(failed)?;
    if !user.uid.is_root() && nix::unistd::setuid(Uid::from_raw(0)).is_ok() {
        return Err(UserError::StillRoot);
    }
    user.dress(environment);
    // The log file is the user's to open.
    crate::log::open_file();
    Ok(())
}

impl User {
    /// Adds supplementary groups, given by their ids, to the user.
    pub fn with_groups(mut self, more: &[u32]) -> Self {
        self.groups.extend(more.iter().copied().map(Gid::from_raw));
        self
    }

    /// Returns the primary group and all groups of the user.
    pub fn groups(&self) -> (Gid, &[Gid]) {
        (self.gid, &self.groups)
    }

    /// Returns the user's name, or the number of a user without a name.
    pub fn label(&self) -> String {
        self.account.as_ref().map_or_else(|| self.uid.to_string(), |account| account.name.clone())
    }

    /// Adapts `environment` to the user. A user without an account gets the home directory `/`, as in
    /// containers.
    pub fn dress(&self, environment: &mut Environment) {
        environment.remove(XDG_RUNTIME_DIR);
        let Some(account) = &self.account else {
            environment.set(HOME, "/");
            for name in [USER, LOGNAME, SHELL] {
                environment.remove(name);
            }
            return;
        };
        environment.set(HOME, account.home.as_os_str());
        environment.set(USER, account.name.as_str());
        environment.set(LOGNAME, account.name.as_str());
        environment.set(SHELL, account.shell.as_os_str());
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn name(text: &str) -> UserName {
        text.parse().unwrap()
    }

    #[test]
    fn forms_of_a_name() {
        assert_eq!(name("ollama").to_string(), "ollama");
        assert_eq!(name("1000:100").to_string(), "1000:100");
        for wrong in ["", ":", "ollama:", ":100"] {
            assert!(wrong.parse::<UserName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn root_by_name_and_by_number() {
        let root = find(&name("root")).unwrap();
        assert_eq!((root.uid, root.gid), (Uid::from_raw(0), Gid::from_raw(0)));
        assert_eq!(find(&name("0")).unwrap(), root);
        assert_eq!(find(&name("root:77")).unwrap().gid, Gid::from_raw(77));
        assert_eq!(find(&name("0:root")).unwrap().gid, Gid::from_raw(0));
    }

    #[test]
    fn a_number_without_an_account_needs_a_group() {
        assert!(matches!(find(&name("3999999999")), Err(UserError::NoGroup(_))));
        let user = find(&name("3999999999:3999999998")).unwrap();
        assert_eq!(user.groups, [Gid::from_raw(3_999_999_998)]);
        assert_eq!(user.account, None);
    }

    #[test]
    fn the_unknown_is_named() {
        let error = find(&name("no-such-user")).unwrap_err();
        assert_eq!(error.to_string(), "failed to find the user no-such-user");
        let error = find(&name("root:no-such-group")).unwrap_err();
        assert_eq!(error.to_string(), "failed to find the group no-such-group");
        for none in ["-1", "4294967295", "4294967295:1", "4294967296"] {
            assert!(matches!(find(&name(none)), Err(UserError::Unknown("user", _))), "{none}");
        }
        assert!(matches!(find(&name("0:4294967295")), Err(UserError::Unknown("group", _))));
    }

    #[test]
    fn the_environment_is_the_users() {
        let mut environment =
            Environment::from_iter([("HOME", "/root"), ("XDG_RUNTIME_DIR", "/run/user/0"), ("PATH", "/bin")]);
        let (uid, gid) = (Uid::from_raw(7), Gid::from_raw(7));
        let (home, shell) = ("/srv/ollama".into(), "/bin/false".into());
        let account = Account { name: "ollama".into(), uid, gid, home, shell };
        let mut user = User { uid, gid, groups: vec![gid], account: Some(account) };
        user.dress(&mut environment);
        let get = |environment: &Environment, name| environment.get(name).map(OsStr::to_owned);
        assert_eq!(get(&environment, HOME), Some("/srv/ollama".into()));
        assert_eq!(get(&environment, USER), Some("ollama".into()));
        assert_eq!(get(&environment, LOGNAME), Some("ollama".into()));
        assert_eq!(get(&environment, SHELL), Some("/bin/false".into()));
        assert_eq!(get(&environment, XDG_RUNTIME_DIR), None);
        assert_eq!(get(&environment, "PATH"), Some("/bin".into()));
        user.account = None;
        user.dress(&mut environment);
        assert_eq!(get(&environment, HOME), Some("/".into()));
        assert_eq!(get(&environment, USER), None);
    }
}
