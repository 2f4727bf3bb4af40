//! Tests that no user becomes root, or writes where they should not, by creating files in a directory that
//! others can write to, on a kernel with `openat2` and on one without. As root, the directory and its entries
//! belong to `nobody`; otherwise it is writable for all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::dir::{Dir, reject_replaceable, replaceable};
use crate::file::{named, shared};
use crate::kernel::Kernel;
use crate::open::Access;
use crate::open::{open_regular, open_unchanged, read, read_to_string};
use crate::refusal::{Refusal, hint};
use crate::tree::Tree;
use crate::walk::covers;

const NOBODY: u32 = 65534;
const KERNELS: [Kernel; 2] = [Kernel::New, Kernel::Old];

/// A private directory of this user with a secret in it, and beside it one where other users can write.
struct Bed(TempDir);

impl Bed {
    fn new() -> Self {
        let bed = Self(tempfile::tempdir().unwrap());
        fs::set_permissions(bed.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(bed.path("secret"), "secret").unwrap();
        fs::create_dir(bed.path("private")).unwrap();
        fs::create_dir(bed.path("hostile")).unwrap();
        fs::set_permissions(bed.path("hostile"), fs::Permissions::from_mode(0o777)).unwrap();
        nobodys(&bed.path("hostile"));
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn link(&self, target: &str, name: &str) {
        symlink(target, self.path(name)).unwrap();
    }

    fn secret(&self) -> String {
        fs::read_to_string(self.path("secret")).unwrap()
    }
}

/// Gives a file to `nobody`, if this process may.
fn nobodys(path: &Path) {
    if geteuid().is_root() {
        lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
}

fn append(kernel: Kernel, path: &Path) -> io::Result<File> {
    named(kernel, path, Access::Append, 0o644)
}

#[track_caller]
fn refused<T>(opened: io::Result<T>, text: &str) {
    let error = opened.err().unwrap_or_else(|| panic!("opened, although {text}"));
    assert!(error.to_string().contains(text), "{error}");
    assert!(hint(&error).is_some() && error.kind() == io::ErrorKind::PermissionDenied, "{error:?}");
}

#[test]
fn a_planted_link_is_not_followed() {
    for kernel in KERNELS {
        let bed = Bed::new();
        for target in ["../secret", "nowhere"] {
            let _ = fs::remove_file(bed.path("hostile/log"));
            bed.link(target, "hostile/log");
            refused(append(kernel, &bed.path("hostile/log")), "hostile/log is a symbolic link");
        }
        bed.link("../private", "hostile/dir");
        refused(append(kernel, &bed.path("hostile/dir/new")), "hostile/dir is a symbolic link");
        refused(Dir::open_by(kernel, &bed.path("hostile/dir")), "hostile/dir is a symbolic link");
        assert_eq!(bed.secret(), "secret");
        assert!(!bed.path("hostile/nowhere").exists() && !bed.path("private/new").exists());
    }
}

#[test]
fn what_is_no_file_is_refused_and_blocks_nobody() {
    for kernel in KERNELS {
        let bed = Bed::new();
        for place in ["hostile/fifo", "private/fifo"] {
            fifo(&bed.path(place));
            refused(append(kernel, &bed.path(place)), "is a FIFO");
            let dir = Dir::open_by(kernel, bed.path(place).parent().unwrap()).unwrap();
            refused(dir.read("fifo"), "is a FIFO");
            bed.link("fifo", place.replace("fifo", "link").as_str());
            refused(dir.read("link"), "is a symbolic link");
            refused(dir.private("link", Access::Read), "is a symbolic link");
            // With a reader at its other end opening it succeeds, and only the open file shows its kind.
            let _reader = File::options().read(true).write(true).open(bed.path(place)).unwrap();
            refused(append(kernel, &bed.path(place)), "is a FIFO");
        }
        let _socket = std::os::unix::net::UnixListener::bind(bed.path("hostile/socket")).unwrap();
        refused(append(kernel, &bed.path("hostile/socket")), "is a socket");
    }
}

#[test]
fn what_is_read_is_a_regular_file_of_a_size() {
    let bed = Bed::new();
    fifo(&bed.path("hostile/fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(bed.path("hostile/socket")).unwrap();
    bed.link("fifo", "hostile/link");
    bed.link("../secret", "hostile/to-a-file");
    for (place, kind) in [
        (bed.path("hostile/fifo"), "is a FIFO"),
        (bed.path("hostile/link"), "is a FIFO"),
        (bed.path("hostile/socket"), "is a socket"),
        (bed.path("hostile"), "is a directory"),
        (PathBuf::from("/dev/zero"), "is a character device"),
    ] {
        let error = open_regular(&place).unwrap_err();
        assert!(error.to_string().contains(kind), "{error}");
        assert!(hint(&error).is_some() && error.kind() == io::ErrorKind::InvalidInput, "{error:?}");
        assert!(read(&place, 1 << 20).unwrap_err().to_string().contains(kind));
    }
    let dir = Dir::open(&bed.path("hostile")).unwrap();
    refused(dir.read("socket"), "is a socket");
    assert_eq!(open_regular(&bed.path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(read_to_string(&bed.path("hostile/to-a-file"), 6).unwrap(), "secret");
    let error = read(&bed.path("secret"), 5).unwrap_err();
    assert!(error.to_string().ends_with("secret has more than 5 bytes"), "{error}");
    // Files of /proc say that they are empty.
    assert!(!read(Path::new("/proc/self/stat"), 4096).unwrap().is_empty());
    fs::write(bed.path("private/bytes"), [0xff]).unwrap();
    assert_eq!(read_to_string(&bed.path("private/bytes"), 9).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

/// Checks a process without /proc.
#[test]
fn what_was_looked_at_is_what_is_opened() {
    let bed = Bed::new();
    let found = rustix::fs::openat(CWD, bed.path("secret"), OFlags::PATH, Mode::empty()).unwrap();
    let looked_at = rustix::fs::stat(bed.path("private")).unwrap();
    let by_name = |flags| rustix::fs::openat(CWD, bed.path("secret"), flags, Mode::empty());
    let error = open_unchanged(&looked_at, OFlags::RDONLY, by_name).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::AGAIN.raw_os_error()));
    drop(open_unchanged(&rustix::fs::fstat(&found).unwrap(), OFlags::RDONLY, by_name).unwrap());
}

#[test]
fn another_name_of_a_file_is_refused() {
    for kernel in KERNELS {
        let bed = Bed::new();
        fs::hard_link(bed.path("secret"), bed.path("hostile/log")).unwrap();
        refused(append(kernel, &bed.path("hostile/log")), "one of several names");
        refused(shared(&bed.path("hostile/log"), Access::ReadWrite), "one of several names");
        // In a directory where nobody else writes, this user created it.
        fs::hard_link(bed.path("secret"), bed.path("private/log")).unwrap();
        append(kernel, &bed.path("private/log")).unwrap();
    }
}

#[test]
fn a_file_of_somebody_else_is_refused_where_they_could_have_put_it() {
    if !geteuid().is_root() {
        println!("only root can make a file of somebody else's");
        return;
    }
    for kernel in KERNELS {
        let bed = Bed::new();
        for place in ["hostile/log", "private/log"] {
            fs::write(bed.path(place), "").unwrap();
            nobodys(&bed.path(place));
        }
        refused(append(kernel, &bed.path("hostile/log")), "belongs to the user 65534");
        append(kernel, &bed.path("private/log")).unwrap();
        let dir = Dir::open_by(kernel, &bed.path("private")).unwrap();
        refused(dir.private("log", Access::Read), "belongs to the user 65534");
    }
}

#[test]
fn a_file_that_others_may_open_is_not_private() {
    let bed = Bed::new();
    let dir = Dir::open(&bed.path("private")).unwrap();
    drop(dir.create("pages", Access::ReadWrite, 0o600).unwrap());
    drop(dir.private("pages", Access::ReadWrite).unwrap());
    fs::set_permissions(bed.path("private/pages"), fs::Permissions::from_mode(0o660)).unwrap();
    refused(dir.private("pages", Access::ReadWrite), "other users may open");
}

#[test]
fn a_new_file_and_ones_own_are_written() {
    for kernel in KERNELS {
        let bed = Bed::new();
        for place in ["hostile/log", "private/log"] {
            for line in ["one\n", "two\n"] {
                append(kernel, &bed.path(place)).unwrap().write_all(line.as_bytes()).unwrap();
            }
            assert_eq!(fs::read_to_string(bed.path(place)).unwrap(), "one\ntwo\n");
        }
        assert!(append(kernel, &bed.path("none/log")).is_err());
        append(kernel, Path::new("/dev/null")).unwrap().write_all(b"x").unwrap();
    }
}

#[test]
fn ones_own_links_are_followed_where_nobody_else_writes() {
    for kernel in KERNELS {
        let bed = Bed::new();
        bed.link("private", "alias");
        bed.link("../private/real", "private/log");
        append(kernel, &bed.path("alias/log")).unwrap().write_all(b"x").unwrap();
        assert_eq!(fs::read_to_string(bed.path("private/real")).unwrap(), "x");
        bed.link("loop", "private/loop");
        assert!(append(kernel, &bed.path("private/loop")).is_err());
        bed.link(".././private/../private", "private/round");
        assert_eq!(
            Dir::open_by(kernel, &bed.path("alias/round/..")).unwrap().path(),
            fs::canonicalize(bed.0.path()).unwrap()
        );
    }
}

#[test]
fn a_descriptor_of_the_process_is_no_link_of_a_user() {
    for kernel in KERNELS {
        let bed = Bed::new();
        let file = File::create(bed.path("private/out")).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        append(kernel, Path::new(&format!("/proc/self/fd/{number}"))).unwrap().write_all(b"x").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1);
        let dir = Dir::open(&bed.path("private")).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&dir));
        let again = Dir::open_by(kernel, Path::new(&format!("/proc/self/fd/{number}"))).unwrap();
        assert_eq!(again.path(), dir.path());
    }
}

/// Operations in an open directory take place in it, even if its path names another directory by then.
#[test]
fn a_directory_that_is_swapped_meanwhile_changes_nothing() {
    for kernel in KERNELS {
        let bed = Bed::new();
        let (dir, made) = Dir::make(&bed.path("hostile/trace")).unwrap();
        assert!(made);
        fs::rename(bed.path("hostile/trace"), bed.path("hostile/away")).unwrap();
        bed.link("../private", "hostile/trace");
        dir.create("summary", Access::Write, 0o644).unwrap();
        dir.replace("receipt", b"text").unwrap();
        assert!(bed.path("hostile/away/summary").exists() && bed.path("hostile/away/receipt").exists());
        assert_eq!(dir.path(), fs::canonicalize(bed.path("hostile/away")).unwrap());
        dir.remove("summary").unwrap();
        assert_eq!(fs::read_dir(bed.path("private")).unwrap().count(), 0);
        refused(Dir::open_by(kernel, &bed.path("hostile/trace")), "is a symbolic link");
    }
}

#[test]
fn names_that_were_planted_are_not_created_over() {
    let bed = Bed::new();
    let dir = Dir::open(&bed.path("hostile")).unwrap();
    bed.link("../private/planted", "hostile/summary");
    bed.link("../secret", "hostile/receipt.new");
    assert_eq!(dir.create("summary", Access::Write, 0o644).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    dir.replace("receipt", b"text").unwrap();
    assert_eq!((bed.secret().as_str(), bed.path("private/planted").exists()), ("secret", false));
    assert_eq!(fs::read_to_string(bed.path("hostile/receipt")).unwrap(), "text");
    for name in ["..", "../private/x", "a/b", ""] {
        assert!(dir.create(name, Access::Write, 0o644).is_err() && dir.remove(name).is_err(), "{name:?}");
        assert!(dir.enter(name).is_err(), "{name:?}");
    }
}

#[test]
fn files_for_all_users_are_made_once_and_never_through_a_link() {
    let bed = Bed::new();
    let path = bed.path("hostile/lock");
    shared(&path, Access::ReadWrite).unwrap().write_all(b"x").unwrap();
    shared(&path, Access::Read).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.len()), (0o666, 1));
    bed.link("../secret", "hostile/owners");
    bed.link("../private/made", "hostile/dangling");
    let before = fs::metadata(bed.path("secret")).unwrap().mode();
    refused(shared(&bed.path("hostile/owners"), Access::ReadWrite), "is a symbolic link");
    refused(shared(&bed.path("hostile/dangling"), Access::ReadWrite), "is a symbolic link");
    assert_eq!(fs::metadata(bed.path("secret")).unwrap().mode(), before);
    assert!(!bed.path("private/made").exists());
    fifo(&bed.path("hostile/fifo"));
    refused(shared(&bed.path("hostile/fifo"), Access::Read), "is a FIFO");
}

#[test]
fn nothing_leads_out_of_a_tree() {
    for kernel in KERNELS {
        let bed = Bed::new();
        fs::create_dir_all(bed.path("tree/etc/deep")).unwrap();
        fs::create_dir_all(bed.path("tree/usr/lib")).unwrap();
        fs::create_dir(bed.path("outside")).unwrap();
        let outside = bed.path("outside");
        bed.link(outside.to_str().unwrap(), "tree/etc/absolute");
        bed.link("../../../../outside", "tree/etc/relative");
        bed.link("/usr/lib", "tree/lib");
        bed.link("../..", "tree/etc/deep/up");
        let tree = Tree::open_by(kernel, &bed.path("tree")).unwrap();
        for name in ["/etc/absolute", "/etc/relative", "/../outside", "/etc/deep/../../../outside"] {
            let opened = tree.dir(Path::new(name));
            assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::NotFound, "{name}");
            assert!(!tree.contains(&Path::new(name).join("file")));
        }
        let made = tree.make_parents(Path::new("/lib/systemd/system/x.service")).unwrap();
        assert_eq!(made, ["/lib/systemd", "/lib/systemd/system"].map(Path::new));
        assert!(bed.path("tree/usr/lib/systemd/system").is_dir(), "links are the tree's");
        let up = tree.dir(Path::new("/etc/deep/up/../../..")).unwrap();
        assert_eq!(up.path(), fs::canonicalize(bed.path("tree")).unwrap());
        assert_eq!(tree.entries(Path::new("/lib")).unwrap(), ["systemd"]);
        assert!(tree.entries(Path::new("/none")).is_err());
        // Through a link that leads out directories are not made either.
        assert!(tree.make_parents(Path::new("/etc/relative/x/y")).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}

#[test]
fn a_directory_that_leaves_the_tree_does_not_take_the_walk_along() {
    let bed = Bed::new();
    fs::create_dir_all(bed.path("tree/a/b")).unwrap();
    let tree = Tree::open_by(Kernel::Old, &bed.path("tree")).unwrap();
    let below = tree.dir(Path::new("/a/b")).unwrap();
    fs::rename(bed.path("tree/a/b"), bed.path("b")).unwrap();
    // Where it was moved, `..` is no directory of the tree. The walk goes back the way it came.
    bed.link("/a/b/../..", "tree/top");
    assert_eq!(below.path(), fs::canonicalize(bed.path("b")).unwrap());
    assert!(tree.dir(Path::new("/top")).is_err());
    assert_eq!(
        tree.dir(Path::new("/a/../../..")).unwrap().path(),
        fs::canonicalize(bed.path("tree")).unwrap()
    );
}

#[test]
fn where_others_can_replace_what_is_there() {
    let bed = Bed::new();
    assert_eq!(replaceable(&bed.path("private")).unwrap(), None);
    let hostile = fs::canonicalize(bed.path("hostile")).unwrap();
    fs::create_dir(bed.path("hostile/mine")).unwrap();
    assert_eq!(replaceable(&bed.path("hostile/mine")).unwrap(), Some(hostile));
    refused(reject_replaceable(&bed.path("hostile/mine")), "other users can replace what is in");
    reject_replaceable(&bed.path("private")).unwrap();
    if !geteuid().is_root() {
        // Of a directory that is open to all the sticky bit keeps what is this user's; its owner may remove
        // it all the same.
        fs::set_permissions(bed.path("hostile"), fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(replaceable(&bed.path("hostile/mine")).unwrap(), None);
    }
    assert!(replaceable(&bed.path("none")).is_err());
}

#[test]
fn owners_that_a_user_namespace_does_not_know() {
    let this_system = "         0          0 4294967295\n";
    let one_user = "0 1000 1\n";
    let container = "0 1000 1\n1 100000 65535\n";
    assert!(covers(this_system, NOBODY) && covers(container, NOBODY) && !covers(one_user, NOBODY));
    assert!(covers(one_user, 0) && !covers(one_user, 1) && !covers("x", 0));
}

#[test]
fn a_refusal_says_what_to_do() {
    let path = PathBuf::from("/tmp/x");
    for refusal in [
        Refusal::Link(path.clone()),
        Refusal::Kind { path: path.clone(), kind: "a FIFO" },
        Refusal::Owner { path: path.clone(), uid: 7 },
        Refusal::Names(path.clone()),
        Refusal::Replaceable(path.clone()),
        Refusal::Open(path.clone()),
        Refusal::Large { path, most: 1 },
    ] {
        assert!(refusal.to_string().contains("/tmp/x"));
        assert_eq!(hint(&io::Error::from(refusal.clone())), Some(refusal.hint()));
    }
    assert_eq!(hint(&io::Error::from_raw_os_error(2)), None);
}
