//! Determines the user who opens the device: the service's user, or the caller.

use std::ffi::OsStr;

use nix::unistd::{Uid, getegid, getgroups};

use super::identity::Become;
use super::unit::Unit;
use crate::cli::{Options, OwnWords};
use crate::error::Failure;
use crate::launch::user::{self, UserName};

/// A user who opens the device, with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Name of the user.
    pub name: String,
    /// User id that permission checks compare with a file's owner. Root passes every check.
    pub uid: Uid,
    /// Ids of all groups of the user.
    pub groups: Vec<u32>,
    /// Identity for a child to become this user. `None` if this process already is this user.
    pub become_by: Option<Become>,
    /// Name of the user to whom vgpu-run, started as root, gives the device.
    pub given_to: Option<String>,
}

impl Subject {
    /// Determines the user who opens the device for `unit`, or for a `vgpu-run` with these options.
    pub fn find(unit: Option<&Unit>, options: &Options) -> Result<Self, Failure> {
        let Some(unit) = unit else {
            let mut ourselves = Self::ourselves()?;
            ourselves.given_to =
                options.user.as_ref().filter(|_| ourselves.uid.is_root()).map(ToString::to_string);
            return Ok(ourselves);
        };
        let command = unit.command();
        let wrapped = command.first().is_some_and(|program| program.ends_with("vgpu-run"));
        let own = OwnWords::read(command.iter().skip(1).map(OsStr::new));
        let given_to = own.user.map(|user| user.to_string_lossy().into_owned());
        let name = match (unit.user(), unit.get("Group")) {
            (None, _) => "0".to_owned(),
            (Some(user), "") => user.to_owned(),
            (Some(user), group) => format!("{user}:{group}"),
        };
        let mut subject = Self::by_name(&name)?;
        subject.given_to = given_to.filter(|_| wrapped && subject.uid.is_root());
        let extra = unit.get("SupplementaryGroups").split_ascii_whitespace();
        let extra: Vec<u32> = extra.filter_map(user::group_number).collect();
        subject.groups.extend(&extra);
        if let Some(other) = &mut subject.become_by {
            other.groups = extra;
        }
        Ok(subject)
    }

    fn ourselves() -> Result<Self, Failure> {
        let uid = Uid::effective();
        let mut groups: Vec<u32> =
            getgroups().unwrap_or_default().iter().map(|group| group.as_raw()).collect();
        groups.push(getegid().as_raw());
        let name = format!("{}:{}", uid.as_raw(), getegid().as_raw());
        let name = user::find(&name.parse().unwrap_or_else(|_| unreachable!("numbers are a name")))?.label();
        Ok(Self { name, uid, groups, become_by: None, given_to: None })
    }

    fn by_name(name: &str) -> Result<Self, Failure> {
        let parsed: UserName =
            name.parse().or_else(|_| "0".parse()).unwrap_or_else(|_| unreachable!("0 is a name"));
        let user = user::find(&parsed)?;
        let groups = user.groups().1.iter().map(|group| group.as_raw()).collect();
        let become_by = (user.uid != Uid::effective()).then(|| Become::user(name));
        Ok(Self { name: user.label(), uid: user.uid, groups, become_by, given_to: None })
    }

    /// Returns whether a file with this mode, owner and group can be read and written by the user.
    pub fn may(&self, mode: u32, owner: u32, group: u32) -> bool {
        self.has(0o6, mode, owner, group)
    }

    /// Returns whether a file with this mode, owner and group can be read by the user.
    pub fn may_read(&self, mode: u32, owner: u32, group: u32) -> bool {
        self.has(0o4, mode, owner, group)
    }

    fn has(&self, wanted: u32, mode: u32, owner: u32, group: u32) -> bool {
        let rights = if self.uid.as_raw() == owner {
            mode >> 6
        } else if self.groups.contains(&group) {
            mode >> 3
        } else {
            mode
        };
        self.uid.is_root() || rights & wanted == wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(uid: u32, groups: &[u32]) -> Subject {
        Subject {
            name: "x".into(),
            uid: Uid::from_raw(uid),
            groups: groups.to_vec(),
            become_by: None,
            given_to: None,
        }
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        assert!(subject(0, &[]).may(0, 7, 7));
        assert!(subject(7, &[]).may(0o600, 7, 0));
        assert!(!subject(7, &[9]).may(0o066, 7, 9), "the owner's rights count for the owner");
        assert!(subject(8, &[9]).may(0o660, 0, 9));
        assert!(!subject(8, &[9]).may(0o640, 0, 9));
        assert!(subject(8, &[9]).may_read(0o640, 0, 9) && subject(8, &[]).may_read(0o644, 0, 9));
        assert!(!subject(8, &[]).may_read(0o640, 0, 9));
        assert!(!subject(8, &[9]).may(0o606, 0, 9), "the group's rights count for its members");
        assert!(subject(8, &[]).may(0o666, 0, 0));
        assert!(!subject(8, &[]).may(0o660, 0, 0));
    }

    #[test]
    fn whoever_calls() {
        let subject = Subject::find(None, &Options::default()).unwrap();
        assert_eq!((subject.uid, subject.become_by), (Uid::effective(), None));
        assert!(!subject.name.is_empty());
    }

    #[test]
    fn a_service_that_starts_as_root_gives_the_device_away() {
        let unit =
            Unit::with(&[("ExecStart", "/usr/bin/vgpu-run --user nobody ollama serve"), ("User", "root")]);
        let subject = Subject::find(Some(&unit), &Options::default()).unwrap();
        assert!(subject.uid.is_root());
        assert_eq!(subject.given_to.as_deref(), Some("nobody"));
    }

    #[test]
    fn a_service_with_a_user_opens_it_as_that_user() {
        let unit = Unit::with(&[("User", "root:root"), ("SupplementaryGroups", "77")]);
        assert!(Subject::find(Some(&unit), &Options::default()).unwrap().groups.contains(&77));
        let unit = Unit::with(&[("User", "65534:65534"), ("SupplementaryGroups", "77 78")]);
        let other = Subject::find(Some(&unit), &Options::default()).unwrap().become_by.unwrap();
        assert_eq!((other.user.as_str(), other.groups), ("65534:65534", vec![77, 78]));
    }
}
