//! Tests private directories in a temporary location, and that files of others stay untouched.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::*;
use crate::scratch::Scratch;

static OBJECTS: [EmbeddedObject; 2] = [
    EmbeddedObject { soname: "libcuda.so.1", bytes: b"driver" },
    EmbeddedObject { soname: "libtwo.so.2", bytes: b"two" },
];

fn files() -> Vec<&'static EmbeddedObject> {
    OBJECTS.iter().collect()
}

fn create(place: &Path, owner: Owner) -> Result<PrivateFolder, Unfit> {
    PrivateFolder::create(place, owner, Content::Files(&files()))
}

/// Returns the owner for a process that has ended.
fn gone() -> Owner {
    let mut child = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().unwrap();
    let this = Owner::this().unwrap().label();
    let (namespace, _) = this.split_once('.').unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let started = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap();
    let owner = Owner::from_label(&format!("{namespace}.{}.{started}", child.id())).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    owner
}

#[test]
fn holds_the_libraries_for_their_owner_alone() {
    let scratch = Scratch::new();
    let folder = create(scratch.path(), Owner::this().unwrap()).unwrap();
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(folder.path()), 0o700);
    assert_eq!(mode(&folder.path().join("libtwo.so.2")), 0o400);
    assert_eq!(fs::read(folder.path().join("libcuda.so")).unwrap(), b"driver");
    assert_eq!(fs::read(folder.path().join("libcuda.so.1")).unwrap(), b"driver");
    assert!(is_ours(folder.path()));
    assert!(is_ours(&folder.path().join("libcuda.so.1")));
    assert!(!is_ours(scratch.path()));
}

#[test]
fn links_lead_where_they_are_told() {
    let scratch = Scratch::new();
    let target = scratch.join("target");
    fs::write(&target, "bytes").unwrap();
    let links = [("libcuda.so.1", target)];
    let folder =
        PrivateFolder::create(scratch.path(), Owner::this().unwrap(), Content::Links(&links)).unwrap();
    assert_eq!(fs::read(folder.path().join("libcuda.so")).unwrap(), b"bytes");
}

#[test]
fn is_removed_unless_kept() {
    let scratch = Scratch::new();
    let mut folder = create(scratch.path(), Owner::this().unwrap()).unwrap();
    let path = folder.path().to_owned();
    folder.persist();
    drop(folder);
    assert!(path.exists());
    let folder = create(scratch.path(), Owner::this().unwrap()).unwrap();
    let path = folder.path().to_owned();
    drop(folder);
    assert!(!path.exists());
}

#[test]
fn the_next_start_removes_what_belongs_to_the_gone_and_nothing_else() {
    let scratch = Scratch::new();
    let this = Owner::this().unwrap();
    let mut dead = create(scratch.path(), gone()).unwrap();
    dead.persist();
    let alive = create(scratch.path(), this).unwrap();
    // Files of others, one of which is a link with a name like a private directory's.
    fs::create_dir(scratch.join("vgpu-run.not-a-label")).unwrap();
    let other = scratch.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "").unwrap();
    let named = scratch.join(format!("{PREFIX}{}.abcdef", gone().label()));
    symlink(&other, &named).unwrap();

    let fresh = create(scratch.path(), this).unwrap();
    assert!(!dead.path().exists());
    assert!(alive.path().exists() && fresh.path().exists());
    assert!(scratch.join("vgpu-run.not-a-label").exists());
    assert!(fs::symlink_metadata(&named).is_ok() && other.join("file").exists(), "links are not followed");
}

#[test]
fn places_that_others_can_change_are_refused() {
    let scratch = Scratch::new();
    let set = |mode| fs::set_permissions(scratch.path(), fs::Permissions::from_mode(mode)).unwrap();
    let this = Owner::this().unwrap();
    set(0o777);
    assert!(matches!(create(scratch.path(), this), Err(Unfit::Shared)));
    set(0o770);
    assert!(matches!(create(scratch.path(), this), Err(Unfit::Shared)));
    set(0o1777);
    assert!(create(scratch.path(), this).is_ok());
    set(0o700);
    assert!(matches!(create(&scratch.join("a b"), this), Err(Unfit::Path)));
    assert!(matches!(create(&scratch.join("missing"), this), Err(Unfit::System(_))));
    fs::write(scratch.join("file"), "").unwrap();
    assert!(matches!(create(&scratch.join("file"), this), Err(Unfit::Shared)));
    // Whoever can replace a parent directory can replace everything below it.
    fs::create_dir(scratch.join("own")).unwrap();
    set(0o777);
    assert!(matches!(create(&scratch.join("own"), this), Err(Unfit::Shared)));
    set(0o700);
    assert!(create(&scratch.join("own"), this).is_ok());
}

#[test]
fn the_best_places_come_first() {
    let environment = Environment::from_iter([(XDG_RUNTIME_DIR, "/run/user/7"), (TMPDIR, "/var/tmp")]);
    let places = candidates(&environment, Uid::from_raw(7));
    let expected: [&Path; 4] = ["/run/user/7", "/dev/shm", "/var/tmp", "/tmp"].map(Path::new);
    assert_eq!(places, expected);
    let places = candidates(&Environment::from_iter([(TMPDIR, "")]), Uid::from_raw(0));
    assert_eq!(places, ["/run/user/0", "/dev/shm", "/tmp", "/var/tmp"].map(Path::new));
}
