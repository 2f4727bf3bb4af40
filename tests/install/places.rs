//! Tests on machines and in directories where installing is impossible or unusual.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::bed::{self, Bed, program};
use super::releases::Releases;
use super::{BASE, in_each_shell, refused};

#[test]
fn on_other_machines() {
    in_each_shell(|shell| {
        let releases = Releases::one();
        let url = releases.file_url();
        let bed = Bed::new(shell);
        let uname = |system: &str, machine: &str, release: &str| {
            let text = format!(
                "case $1 in -s) echo {system} ;; -m) echo {machine} ;; -r) echo {release} ;; *) exit 9 ;; esac"
            );
            bed.tool("uname", &text);
        };
        uname("Linux", "aarch64", "6.1.0");
        refused(&bed, &url, "vgpu-run is there for x86_64, and this machine is aarch64");
        uname("Darwin", "x86_64", "23.0");
        refused(&bed, &url, "vgpu-run runs in Linux guests, and this is Darwin");
        uname("Linux", "x86_64", "2.6.32-754.el6");
        refused(&bed, &url, "vgpu-run needs Linux 3.2 or later, and this is 2.6.32-754.el6");
        uname("Linux", "x86_64", "3.10.0-1160.el7");
        bed.tool("getconf", "echo glibc 2.17");
        let said = bed.run(&[], &[(BASE, &url)]);
        assert!(!said.well(&["is installed"]).out.contains("glibc"), "{said:?}");
        bed.tool("getconf", "echo glibc 2.12");
        bed.run(&[], &[(BASE, &url)]).well(&["This machine has glibc 2.12. "]);
        bed.tool("getconf", "exit 1");
        bed.run(&[], &[(BASE, &url)]).well(&["This machine's C library is not glibc."]);
    });
}

#[test]
fn where_nothing_can_be_written() {
    in_each_shell(|shell| {
        let releases = Releases::one();
        let url = releases.file_url();
        let bed = Bed::new(shell);
        // Of root, where the tests run as root: not the user's to write to.
        let place = bed.path("theirs/bin");
        fs::create_dir_all(&place).unwrap();
        for folder in [place.clone(), bed.path("theirs")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o555)).unwrap();
        }
        let shown = place.display().to_string();
        let said = bed.run(&[], &[(BASE, &url), ("VGPU_RUN_INSTALL_DIR", &shown)]);
        said.badly(&format!("{shown} cannot be written to"));
        let deep = format!("{shown}/a/b");
        let said = bed.run(&[], &[(BASE, &url), ("VGPU_RUN_INSTALL_DIR", &deep)]);
        said.badly(&format!("failed to make the folder {shown}/a"));
        // The program could be written, and what comes with it not.
        fs::create_dir_all(bed.path("home/.local/share")).unwrap();
        fs::set_permissions(bed.path("home/.local/share"), fs::Permissions::from_mode(0o555)).unwrap();
        refused(&bed, &url, "failed to make the folder");
        fs::remove_dir_all(bed.path("home/.local")).unwrap();
        // What is there and is not ours.
        for make in [|path: &Path| program(path, "mine"), |path: &Path| fs::create_dir(path).unwrap()] {
            fs::create_dir_all(bed.path("home/own")).unwrap();
            make(&bed.path("home/own/vgpu-run"));
            bed::give(&bed.path("home/own"));
            let before = bed.tree();
            let own = bed.path("home/own").display().to_string();
            bed.run(&[], &[(BASE, &url), ("VGPU_RUN_INSTALL_DIR", &own)]).badly("/own/vgpu-run is");
            assert_eq!(bed.tree(), before);
            fs::remove_dir_all(bed.path("home/own")).unwrap();
        }

        // A read-only file system stops even root, at installing and at removing.
        let said = bed.as_root(
            "mount -t tmpfs -o mode=755 none /usr/local; mkdir /usr/local/bin; mount -o remount,ro /usr/local\n\
             code=0; run || code=$?; echo code $code; mount -o remount,rw /usr/local; run; mount -o remount,ro /usr/local\n\
             code=0; run --uninstall || code=$?; echo code $code; find /usr/local/bin -type f",
            &[(BASE, &url)],
        );
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(said.out.matches("code 1\n").count(), 2, "{said:?}");
        assert_eq!(said.err.matches(" cannot be written to").count(), 2, "{}", said.err);
        let left: Vec<_> = said.out.rsplit("code 1\n").next().unwrap().lines().collect();
        assert_eq!(left, ["/usr/local/bin/vgpu-run"], "it is all there still");
    });
}

#[test]
fn a_folder_of_ones_own() {
    in_each_shell(|shell| {
        let releases = Releases::one();
        let bed = Bed::new(shell);
        let before = bed.tree();
        let place = ("VGPU_RUN_INSTALL_DIR", "my programs");
        bed.run(&[], &[(BASE, &releases.file_url()), place]).well(&["/my programs/vgpu-run\n"]);
        let names: Vec<_> = bed.tree().into_keys().map(|path| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["my programs", ".vgpu-run-receipt", "vgpu-run"]);
        bed.run(&["--uninstall"], &[place]).well(&["removed "]);
        assert_eq!(bed.tree(), before);
    });
}

#[test]
fn what_was_changed_is_left() {
    in_each_shell(|shell| {
        let releases = Releases::one();
        let bed = Bed::new(shell);
        bed.run(&[], &[(BASE, &releases.file_url())]).well(&["is installed"]);
        let readme = bed.path("home/.local/share/doc/vgpu-run/README.md");
        fs::write(&readme, "my notes").unwrap();
        fs::remove_file(bed.path("home/.local/share/doc/vgpu-run/LICENSE-MIT")).unwrap();
        let said = bed.run(&["--uninstall"], &[]);
        assert_eq!((said.code, said.err.as_str()), (Some(1), ""), "{said:?}");
        assert!(
            said.out.contains("README.md was changed since it was installed, and is left\n"),
            "{}",
            said.out
        );
        assert!(said.out.contains("LICENSE-MIT was gone already\n"), "{}", said.out);
        let files: Vec<_> = bed.tree().into_keys().filter(|path| path.is_file()).collect();
        assert_eq!(files, [readme]);
    });
}
