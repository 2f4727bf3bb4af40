//! Users and groups of a host, by its files, and the user as whom libvirt runs QEMU.

use crate::root::Root;

/// Returns the number of the group as which libvirt runs QEMU on a host, or `None` if there is no libvirt, or
/// QEMU is root's. `root` stands for `/`.
pub fn qemu_group(root: &Root) -> Option<u32> {
    let accounts = Accounts::read(root);
    let user = accounts.qemu_user().filter(|user| user != "root")?;
    accounts.groups_of(&user).first().copied()
}

/// Users as whom distributions build libvirt to run QEMU: Debian's, and that of distributions with RPM.
const QEMU_USERS: [&str; 2] = ["libvirt-qemu", "qemu"];

/// The files that define users and groups.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    passwd: String,
    group: String,
    /// libvirt's settings for QEMU.
    qemu: String,
}

impl Accounts {
    /// Reads the files, of which each may be missing.
    pub fn read(root: &Root) -> Self {
        let text = |path| root.text(path).unwrap_or_default();
        Self { passwd: text("/etc/passwd"), group: text("/etc/group"), qemu: text("/etc/libvirt/qemu.conf") }
    }

    /// Returns the name of the user as whom libvirt runs QEMU, or `None` if this host has no libvirt.
    pub fn qemu_user(&self) -> Option<String> {
        let Some(user) = self.qemu_setting("user") else {
            return QEMU_USERS.into_iter().find(|user| self.user(user).is_some()).map(str::to_owned);
        };
        // libvirt takes a number with or without a sign in front.
        let number = user.trim_start_matches('+');
        let named = fields(&self.passwd).find(|fields| fields.get(2) == Some(&number));
        Some(named.map_or(user.clone(), |fields| fields[0].to_owned()))
    }

    /// Returns the numbers of the groups that a user's QEMU is in: that of libvirt's settings or the user's
    /// own first.
    pub fn groups_of(&self, user: &str) -> Vec<u32> {
        let set =
            self.qemu_setting("group").and_then(|group| self.group_number(group.trim_start_matches('+')));
        let own = self.user(user).and_then(|fields| fields.get(3)?.parse().ok());
        let member = fields(&self.group)
            .filter(|fields| fields.get(3).is_some_and(|users| users.split(',').any(|have| have == user)));
        let mut groups: Vec<u32> = set.or(own).into_iter().collect();
        for group in member.filter_map(|fields| fields.get(2)?.parse().ok()) {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    /// Returns a group's name, or its number if it has none.
    pub fn group_name(&self, number: u32) -> String {
        let text = number.to_string();
        let named = fields(&self.group).find(|fields| fields.get(2) == Some(&text.as_str()));
        named.map_or(text.clone(), |fields| fields[0].to_owned())
    }

    fn group_number(&self, name: &str) -> Option<u32> {
        let named = || fields(&self.group).find(|fields| fields[0] == name)?.get(2)?.parse().ok();
        name.parse().ok().or_else(named)
    }

    fn user(&self, name: &str) -> Option<Vec<&str>> {
        fields(&self.passwd).find(|fields| fields[0] == name)
    }

    /// Returns a setting such as `user = "root"` of libvirt's file, where most lines are comments.
    fn qemu_setting(&self, name: &str) -> Option<String> {
        self.qemu.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
        })
    }
}

/// Returns the fields of each line, at least one.
fn fields(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(qemu: &str) -> Accounts {
        Accounts {
            passwd: "root:x:0:0::/root:/bin/sh\nlibvirt-qemu:x:64055:106::/:/bin/false\n".to_owned(),
            group: "root:x:0:\nkvm:x:106:\nlibvirt-qemu:x:64055:libvirt-qemu\nother:x:7:a,b\n".to_owned(),
            qemu: qemu.to_owned(),
        }
    }

    #[test]
    fn the_user_of_qemu_is_that_of_the_settings_or_of_the_distribution() {
        let user = |qemu: &str| accounts(qemu).qemu_user();
        assert_eq!(user("#user = \"root\"\n").as_deref(), Some("libvirt-qemu"));
        assert_eq!(user("user = \"root\"\n").as_deref(), Some("root"));
        assert_eq!(user("user = \"+0\"").as_deref(), Some("root"));
        assert_eq!(Accounts::default().qemu_user(), None);
    }

    #[test]
    fn the_groups_of_qemu_are_its_users() {
        assert_eq!(accounts("").groups_of("libvirt-qemu"), [106, 64055]);
        assert_eq!(accounts("group = \"other\"").groups_of("libvirt-qemu"), [7, 64055]);
        assert_eq!(accounts("").groups_of("nobody"), [0_u32; 0]);
        assert_eq!((accounts("").group_name(106), accounts("").group_name(5)), ("kvm".into(), "5".into()));
    }
}
