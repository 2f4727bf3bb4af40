//! Looks up users and groups without the C library's name service, which in a static program would load parts
//! of the guest's own C library of an unknown version. The files are read directly, and `getent` is asked for
//! entries that they lack.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Gid, Uid};

/// Path of the user database.
const PASSWD: &str = "/etc/passwd";
/// Path of the group database.
const GROUP: &str = "/etc/group";
/// Paths of the C library's program that queries all sources of accounts.
const GETENT: [&str; 2] = ["/usr/bin/getent", "/bin/getent"];

/// Entry of a user in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// User name.
    pub name: String,
    /// User id.
    pub uid: Uid,
    /// Id of the primary group.
    pub gid: Gid,
    /// Home directory of the user.
    pub home: PathBuf,
    /// Login shell of the user.
    pub shell: PathBuf,
}

/// User and group databases of a system.
pub struct Accounts {
    passwd: String,
    group: String,
    /// Fallback for entries that the files lack: returns the lines that `getent` prints for a database and a
    /// key.
    ask: fn(&str, &str) -> Option<String>,
}

impl Accounts {
    /// Reads the databases of this system.
    pub fn system() -> io::Result<Self> {
        Ok(Self { passwd: text(Path::new(PASSWD))?, group: text(Path::new(GROUP))?, ask: getent })
    }

    /// Returns the user with that name.
    pub fn user(&self, name: &str) -> Option<Account> {
        let local = self.passwd.lines().filter_map(account).find(|account| account.name == name);
        let asked =
            || (self.ask)("passwd", name)?.lines().find_map(account).filter(|found| found.name == name);
        local.or_else(asked)
    }

    /// Returns the user with that id.
    pub fn user_of_number(&self, uid: Uid) -> Option<Account> {
        let local = self.passwd.lines().filter_map(account).find(|account| account.uid == uid);
        let asked = || (self.ask)("passwd", &uid.to_string())?.lines().find_map(account);
        local.or_else(asked).filter(|account| account.uid == uid)
    }

    /// Returns the id of the group with that name.
    pub fn group(&self, name: &str) -> Option<Gid> {
        let named = |text: &str| {
            text.lines().filter_map(group).find(|group| group.name == name).map(|group| group.gid)
        };
        named(&self.group).or_else(|| named(&(self.ask)("group", name)?))
    }

    /// Returns the groups of the user with that name: `primary` first, then those that list the user as a
    /// member.
    pub fn groups(&self, name: &str, primary: Gid) -> Vec<Gid> {
        let local = |group: &GroupLine<'_>| group.members.split(',').any(|member| member == name);
        let mut others: BTreeSet<u32> =
            self.group.lines().filter_map(group).filter(local).map(|group| group.gid.as_raw()).collect();
        if !self.passwd.lines().filter_map(account).any(|account| account.name == name) {
            others.extend((self.ask)("initgroups", name).iter().flat_map(|text| numbers(text)));
        }
        others.remove(&primary.as_raw());
        std::iter::once(primary).chain(others.into_iter().map(Gid::from_raw)).collect()
    }
}

/// Maximum size of an accounts file in bytes.
const MOST: u64 = 256 << 20;

/// Reads a file as text. A file that does not exist counts as empty.
fn text(path: &Path) -> io::Result<String> {
    match vgpu_paths::read(path, MOST) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// Returns the output of `getent DATABASE KEY`, or `None` if there is no such key or no getent.
fn getent(database: &str, key: &str) -> Option<String> {
    let program = GETENT.into_iter().find(|program| Path::new(program).exists())?;
    let mut command = Command::new(program);
    command.args(["--", database, key]).env_clear();
    // To read two streams at once takes the call `ioctl`, which a filter may refuse.
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut output = Vec::new();
    let read = child.stdout.take()?.read_to_end(&mut output);
    let status = child.wait().ok()?;
    (read.is_ok() && status.success()).then(|| String::from_utf8_lossy(&output).into_owned())
}

/// Parses a line of passwd(5): `name:password:uid:gid:comment:home:shell`.
fn account(line: &str) -> Option<Account> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, shell] = fields[..] else { return None };
    // Lines that begin with + or - include other sources and describe no account.
    if name.is_empty() || name.starts_with(['+', '-', '#']) {
        return None;
    }
    Some(Account {
        name: name.into(),
        uid: Uid::from_raw(uid.parse().ok()?),
        gid: Gid::from_raw(gid.parse().ok()?),
        home: home.into(),
        shell: shell.into(),
    })
}

struct GroupLine<'a> {
    name: &'a str,
    gid: Gid,
    members: &'a str,
}

/// Parses a line of group(5): `name:password:gid:member,member`.
fn group(line: &str) -> Option<GroupLine<'_>> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, gid, members] = fields[..] else { return None };
    if name.is_empty() || name.starts_with(['+', '-', '#']) {
        return None;
    }
    Some(GroupLine { name, gid: Gid::from_raw(gid.parse().ok()?), members })
}

/// Parses the group ids in a line of `getent initgroups`: `name  number number`.
fn numbers(text: &str) -> impl Iterator<Item = u32> {
    text.split_ascii_whitespace().skip(1).filter_map(|number| number.parse().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nobody_asked(_: &str, _: &str) -> Option<String> {
        None
    }

    fn directory(database: &str, key: &str) -> Option<String> {
        match (database, key) {
            ("passwd", "remote" | "5000") => {
                Some("remote:x:5000:5001:Far Away:/net/remote:/bin/zsh\n".into())
            }
            ("group", "far") => Some("far:*:5002:remote\n".into()),
            ("initgroups", "remote") => Some("remote                5001 5002 44\n".into()),
            _ => None,
        }
    }

    fn accounts(ask: fn(&str, &str) -> Option<String>) -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/bash\n+::::::\n# no:x:1:1::/:/\n\
                     ollama:x:998:997::/usr/share/ollama:/bin/false\nbroken:x:1\n"
                .into(),
            group: "root:x:0:\nvideo:x:44:ollama,other\nollama:x:997:ollama\n\
                    render:x:105:ollama\nollamas:x:7:ollamas\n"
                .into(),
            ask,
        }
    }

    #[test]
    fn local_users_and_their_groups() {
        let accounts = accounts(nobody_asked);
        let ollama = accounts.user("ollama").unwrap();
        assert_eq!((ollama.uid.as_raw(), ollama.gid.as_raw()), (998, 997));
        assert_eq!(
            (ollama.home.as_path(), ollama.shell.as_path()),
            (Path::new("/usr/share/ollama"), Path::new("/bin/false"))
        );
        assert_eq!(accounts.user_of_number(Uid::from_raw(998)), Some(ollama));
        let groups: Vec<_> =
            accounts.groups("ollama", Gid::from_raw(997)).iter().map(|gid| gid.as_raw()).collect();
        assert_eq!(groups, [997, 44, 105]);
        assert_eq!(accounts.group("video"), Some(Gid::from_raw(44)));
    }

    #[test]
    fn what_is_no_user() {
        let accounts = accounts(nobody_asked);
        for name in ["", "+", "# no", "broken", "nobody-here", "ollama:x"] {
            assert_eq!(accounts.user(name), None, "{name}");
        }
        assert_eq!(accounts.user_of_number(Uid::from_raw(4)), None);
        assert_eq!(accounts.group("nothing"), None);
    }

    #[test]
    fn users_of_other_sources() {
        let accounts = accounts(directory);
        let remote = accounts.user("remote").unwrap();
        assert_eq!(remote.uid.as_raw(), 5000);
        assert_eq!(accounts.user_of_number(Uid::from_raw(5000)), Some(remote));
        let groups: Vec<_> =
            accounts.groups("remote", Gid::from_raw(5001)).iter().map(|gid| gid.as_raw()).collect();
        assert_eq!(groups, [5001, 44, 5002]);
        assert_eq!(accounts.group("far"), Some(Gid::from_raw(5002)));
    }

    #[test]
    fn this_system_has_a_root() {
        let accounts = Accounts::system().unwrap();
        assert_eq!(accounts.user("root").unwrap().uid, Uid::from_raw(0));
        assert_eq!(accounts.user("no-such-user-here"), None);
    }

    proptest! {
        #[test]
        fn no_line_breaks_the_readers(line in "[-+#a-z0-9:, ]{0,40}") {
            let _ = (account(&line), group(&line).is_some(), numbers(&line).count());
        }
    }
}
