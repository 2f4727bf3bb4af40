//! Links of the host apart from the GPU: limits, pages, and the socket's directory.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use vgpu_findings::size;

use crate::accounts::Accounts;
use crate::catalogue::{Finding, LinkId, cause, fix};
use crate::subject::{HostFacts, Subject};

/// Examines the limit of locked memory.
pub fn memlock(subject: &Subject, _known: &mut HostFacts) -> Finding {
    match subject.root.locked_memory() {
        None => Finding::pass(LinkId::Memlock, "unlimited"),
        Some(limit) => Finding::warn(cause::memlock::LIMITED, format!("limited to {}", size(limit)))
            .expected("unlimited"),
    }
}

/// Examines whether the VM's memory gets large pages.
pub fn huge_pages(subject: &Subject, _known: &mut HostFacts) -> Finding {
    let setting = subject.root.text("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    // always within_size advise [never] deny force
    let chosen = setting.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let reserved = subject.root.text("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
    let reserved: u64 = reserved.and_then(|number| number.parse().ok()).unwrap_or(0);
    let detail = format!("{reserved} pages of 2 MiB are reserved");
    match chosen {
        Some(setting) if !["never", "deny"].contains(&setting) => {
            Finding::pass(LinkId::HugePages, format!("shared memory gets them: {setting}")).detail(detail)
        }
        _ if reserved > 0 => Finding::pass(LinkId::HugePages, detail),
        _ => Finding::warn(cause::huge_pages::SMALL_PAGES, "a VM's shared memory gets pages of 4 KiB")
            .expected("pages of 2 MiB"),
    }
}

/// Returns whether `serve` may make the directory: the one above it is there, and nobody but root and this
/// user can change it.
pub fn makeable(folder: &Path) -> bool {
    let above = match folder.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => return false,
    };
    !folder.exists() && matches!(vgpu_paths::replaceable(above), Ok(None))
}

/// Examines the directory in which the socket is made, and who may connect.
pub fn socket(subject: &Subject, _known: &mut HostFacts) -> Finding {
    let Some(path) = &subject.socket else {
        return Finding::skip(LinkId::Socket, "no vfio-user socket is given");
    };
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    };
    if makeable(folder) {
        return connections(subject, &format!("{}, which serve makes", folder.display()));
    }
    let data = match fs::metadata(folder) {
        Ok(data) if data.is_dir() => data,
        Ok(_) => {
            return Finding::fail(
                cause::socket::FOLDER_MISSING,
                format!("{} is no directory", folder.display()),
            )
            .fix(fix::socket::NO_FOLDER);
        }
        Err(error) => {
            return Finding::fail(cause::socket::FOLDER_MISSING, format!("{}: {error}", folder.display()))
                .with("folder", folder.display());
        }
    };
    match vgpu_paths::replaceable(folder) {
        Ok(None) => {}
        Ok(Some(place)) => {
            return Finding::fail(
                cause::socket::FOLDER_OPEN,
                format!("other users can write to {}", place.display()),
            )
            .with("folder", place.display());
        }
        Err(error) => return Finding::unknown(LinkId::Socket, format!("{}: {error}", folder.display())),
    }
    if let Some(group) = subject.group {
        // Only the mode of the directory itself is checked. Those above it are usually open to all.
        let all = data.mode() & 0o001 != 0;
        let theirs = data.gid() == group && data.mode() & 0o010 != 0;
        if !all && !theirs {
            let found = format!("the group {group} may not enter {}", folder.display());
            return Finding::fail(cause::socket::FOLDER_CLOSED, found)
                .with("group", group)
                .with("folder", folder.display());
        }
    }
    connections(subject, &folder.display().to_string())
}

/// Examines whether libvirt's QEMU may connect to a socket in `folder`, if this host has libvirt.
fn connections(subject: &Subject, folder: &str) -> Finding {
    let accounts = Accounts::read(&subject.root);
    let allowed = match subject.group {
        Some(group) => format!("the group {}", accounts.group_name(group)),
        None => "only this user".to_owned(),
    };
    let found = format!("{folder}; {allowed} may connect");
    let Some(user) = accounts.qemu_user().filter(|user| user != "root") else {
        return Finding::pass(LinkId::Socket, found);
    };
    let groups = accounts.groups_of(&user);
    if subject.group.is_some_and(|group| groups.contains(&group)) {
        return Finding::pass(LinkId::Socket, found);
    }
    let names: Vec<String> = groups.iter().map(|group| accounts.group_name(*group)).collect();
    Finding::warn(cause::socket::QEMU_EXCLUDED, format!("{found}, and libvirt's QEMU runs as {user}"))
        .expected(format!("a group of that user: {}", names.join(", ")))
        .with("group", names.first().map_or("kvm", String::as_str))
}
