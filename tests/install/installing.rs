//! Tests of installation, upgrade and removal, and of refused installations.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::bed::{self, Bed};
use super::releases::{Releases, stand_in};
use super::{BASE, in_each_shell, refused};

#[test]
fn a_user_installs_upgrades_and_removes() {
    in_each_shell(|shell| {
        let bed = Bed::new(shell);
        fs::create_dir(bed.path("home/.config")).unwrap();
        let before = bed.tree();
        let releases = Releases::one();
        let served = releases.serve();
        let url = [(BASE, served.url.as_str())];
        let program = bed.program();
        let shown = program.display().to_string();
        bed.run(&[], &url).well(&[
            &format!("vgpu-run 1.0.0 is installed: {shown}\n"),
            ".local/bin is not on your PATH",
            "There is no VGPU-STUB device",
            "install Ollama, then",
        ]);
        assert_eq!(fs::read_to_string(&program).unwrap(), stand_in("1.0.0"));
        assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o7777, 0o755);
        let license = bed.path("home/.local/share/doc/vgpu-run/LICENSE-MIT");
        assert_eq!(fs::metadata(&license).unwrap().permissions().mode() & 0o7777, 0o644);
        let first = bed.tree();
        assert!(!first.keys().any(|path| path.to_string_lossy().contains(".vgpu-run.")), "{first:?}");

        bed.run(&[], &url).well(&["vgpu-run 1.0.0 is installed anew"]);
        assert_eq!(bed.tree(), first, "installing again changes nothing");

        releases.add("1.1.0", stand_in("1.1.0").as_bytes(), &["README.md"]);
        bed.run(&[], &url).badly("several versions");
        assert_eq!(bed.tree(), first);
        bed.run(&[], &[url[0], ("VGPU_RUN_VERSION", "1.1.0")])
            .well(&["vgpu-run 1.1.0 is installed in place of 1.0.0"]);
        assert_eq!(fs::read_to_string(&program).unwrap(), stand_in("1.1.0"));
        assert!(!license.exists(), "a file that the new version has not");

        let said = bed.run(&["--uninstall"], &[]);
        said.well(&[&format!("removed {shown}\n"), "doc/vgpu-run/README.md"]);
        assert_eq!(bed.tree(), before, "nothing is left");
        bed.run(&["--uninstall"], &[]).badly("there is no receipt");
    });
}

#[test]
fn root_installs_for_all() {
    in_each_shell(|shell| {
        let bed = Bed::new(shell);
        let releases = Releases::one();
        let said = bed.as_root(
            "mount -t tmpfs -o mode=755 none /usr/local; cd /usr/local\n\
             run; find . -type f -printf 'found %p %m\\n'; run; run --uninstall; find . -printf 'left %p\\n'",
            &[(BASE, &releases.file_url())],
        );
        said.well(&[
            "vgpu-run 1.0.0 is installed: /usr/local/bin/vgpu-run\n",
            "vgpu-run 1.0.0 is installed anew: /usr/local/bin/vgpu-run\n",
            "removed /usr/local/bin/vgpu-run\n",
        ]);
        let mut found: Vec<_> = said.out.lines().filter_map(|line| line.strip_prefix("found ")).collect();
        found.sort_unstable();
        let files = [
            "bin/vgpu-run 755",
            "share/doc/vgpu-run/LICENSE-MIT 644",
            "share/doc/vgpu-run/README.md 644",
            "share/vgpu-run/receipt 644",
        ];
        assert_eq!(found, files.map(|file| format!("./{file}")));
        let left: Vec<_> = said.out.lines().filter_map(|line| line.strip_prefix("left ")).collect();
        assert_eq!(left, ["."], "nothing is left");
    });
}

/// Guards against privilege escalation: if other users can write or replace a directory on the path, root
/// installs nothing there and removes nothing that a receipt there names.
#[test]
fn root_installs_only_where_nobody_else_can_write() {
    in_each_shell(|shell| {
        let bed = Bed::new(shell);
        let releases = Releases::one();
        let lines = |more: &str| {
            format!(
                "mount -t tmpfs -o mode=755 none /usr/local; cd /usr/local; umask 022\n\
                 try() {{ code=0; VGPU_RUN_INSTALL_DIR=$1 run || code=$?; echo \"$1 code $code\"; }}\n\
                 mkdir -p open shared open/bin own\n{more}\
                 chmod 777 open; chmod 1777 shared; ln -s /usr/local/open link; echo mine >victim\n\
                 printf '%s  /usr/local/victim\\n' \"$(sha256sum <victim | cut -c-64)\" >shared/.vgpu-run-receipt\n\
                 find . -printf '%p %m %s\\n' >/before\n\
                 for place in open shared open/bin open/new link $OTHERS; do try /usr/local/$place; done\n\
                 VGPU_RUN_INSTALL_DIR=/usr/local/shared run --uninstall && echo 'uninstalled'\n\
                 find . -printf '%p %m %s\\n' >/after; cmp /before /after; cat victim\n\
                 try /usr/local/shared/deep/bin; try /usr/local/own"
            )
            // Not below the folder that is compared.
            .replace("/before", "\"$HOME/before\"")
            .replace("/after", "\"$HOME/after\"")
        };
        let mut reasons = vec![
            ("open", "all users can write to /usr/local/open"),
            ("shared", "all users can write to /usr/local/shared"),
            ("open/bin", "all users can write to /usr/local/open"),
            ("open/new", "all users can write to /usr/local/open"),
            ("link", "all users can write to /usr/local/link"),
        ];
        let (mut more, mut others) = ("", "");
        if nix::unistd::Uid::effective().is_root() {
            more =
                "mkdir -p theirs/bin grouped; chown 65534 theirs; chown 0:65534 grouped; chmod 775 grouped\n";
            others = "theirs theirs/bin grouped";
            reasons.extend([
                ("theirs", "/usr/local/theirs belongs to another user"),
                ("theirs/bin", "/usr/local/theirs belongs to another user"),
                ("grouped", "a group can write to /usr/local/grouped"),
            ]);
        }
        let said = bed.as_root(&lines(more), &[(BASE, &releases.file_url()), ("OTHERS", others)]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let codes: Vec<_> = said.out.lines().filter(|line| line.contains(" code ")).collect();
        let expected: Vec<_> = reasons
            .iter()
            .map(|(place, _)| format!("/usr/local/{place} code 1"))
            .chain(["shared/deep/bin", "own"].map(|place| format!("/usr/local/{place} code 0")))
            .collect();
        assert_eq!(codes, expected, "{said:?}");
        let sentences: Vec<_> = said.err.lines().filter(|line| !line.starts_with("hint: ")).collect();
        let expected: Vec<_> = reasons
            .iter()
            .chain([&("shared", "all users can write to /usr/local/shared")])
            .map(|(place, why)| format!("install.sh: root does not install to /usr/local/{place}: {why}"))
            .collect();
        assert_eq!(sentences, expected, "{}", said.err);
        assert_eq!(
            said.err.matches("hint: Name a folder that root alone can write to").count(),
            expected.len()
        );
        assert!(said.out.contains("\nmine\n") && !said.out.contains("uninstalled"), "{}", said.out);
    });
}

#[test]
fn what_is_not_the_release_is_not_installed() {
    in_each_shell(|shell| {
        let bed = Bed::new(shell);
        let releases = Releases::one();
        let served = releases.serve();
        let name = "vgpu-run-1.0.0-x86_64-linux.tar.gz";
        let whole = fs::read(releases.path(name)).unwrap();
        for (bytes, what) in
            [(&whole[..whole.len() / 2], "half of it"), (b"<html>".as_slice(), "something else")]
        {
            fs::write(releases.path(name), bytes).unwrap();
            println!("{what}");
            refused(&bed, &served.url, "is not what SHA256SUMS says");
        }
        fs::remove_file(releases.path(name)).unwrap();
        refused(&bed, &served.url, "failed to fetch");
        refused(&bed, &releases.file_url(), "failed to fetch file://");
        fs::write(releases.path(name), &whole).unwrap();

        let sums = fs::read_to_string(releases.path("SHA256SUMS")).unwrap();
        let wrong = sums.replace(&bed::sha256(&whole), &"0".repeat(64));
        for (text, sentence) in [
            ("", "names no release for x86_64"),
            (wrong.as_str(), "should be 0000"),
            ("a  vgpu-run-$(id)-x86_64-linux.tar.gz\n", "is no version"),
            ("x  vgpu-run-1-x86_64-linux.tar.gz\nx  vgpu-run-2-x86_64-linux.tar.gz\n", "several versions"),
        ] {
            fs::write(releases.path("SHA256SUMS"), text).unwrap();
            refused(&bed, &served.url, sentence);
        }
        fs::remove_file(releases.path("SHA256SUMS")).unwrap();
        refused(&bed, &served.url, "failed to fetch");

        // A release whose launcher does not run here, or is another version.
        for (launcher, sentence) in [
            ("#!/no/such/interpreter\n", "does not run in"),
            ("#!/bin/sh\necho vgpu-run 0.9.0\n", "says that it is: vgpu-run 0.9.0"),
        ] {
            let releases = Releases::new();
            releases.add("1.0.0", launcher.as_bytes(), &[]);
            refused(&bed, &releases.file_url(), sentence);
        }
    });
}

#[test]
fn a_version_that_is_not_there_is_named() {
    in_each_shell(|shell| {
        let bed = Bed::new(shell);
        let releases = Releases::one();
        let said = bed.run(&[], &[(BASE, &releases.file_url()), ("VGPU_RUN_VERSION", "9.9.9")]);
        said.badly("SHA256SUMS has no vgpu-run-9.9.9-x86_64-linux.tar.gz");
    });
}

#[test]
fn nothing_comes_over_a_network_in_the_clear() {
    in_each_shell(|shell| {
        let bed = Bed::new(shell);
        for url in [
            "http://example.org/vgpu-run",
            "http://127.0.0.1.example.org",
            "http://localhost@example.org",
            "http://localhost:80@example.org",
            "ftp://127.0.0.1",
            "/srv/release",
            "file://host/srv",
        ] {
            refused(&bed, url, "is neither https:// nor file://");
        }
        refused(&bed, "", "nothing says where the release is");
        // How it would be fetched: by a stand-in that looks at what it was told.
        let releases = Releases::one();
        let folder = releases.path("").display().to_string();
        let serve = format!(
            "for word; do case $word in https://example.org/*) from=${{word#https://example.org/}} ;; esac; done\n\
             while [ \"$1\" != -o ] && [ \"$1\" != -O ]; do shift; done\n\
             exec /bin/cp {folder}$from \"$2\""
        );
        bed.tool(
            "curl",
            &format!("case \"$*\" in *'--proto =https --tlsv1.2'*) ;; *) exit 9 ;; esac\n{serve}"),
        );
        bed.run(&[], &[(BASE, "https://example.org/")]).well(&["is installed"]);
        bed.without("curl").tool(
            "wget",
            &format!(
                "case \"$*\" in --version) echo GNU Wget 1.21; exit ;; *--max-redirect=0*) ;; *) exit 9 ;; esac\n{serve}"
            ),
        );
        bed.run(&[], &[(BASE, "https://example.org/")]).well(&["is installed anew"]);
    });
}

#[test]
fn with_whatever_tools_there_are() {
    in_each_shell(|shell| {
        let releases = Releases::one();
        let served = releases.serve();
        let bed = Bed::new(shell);
        bed.without("curl");
        if bed.has_all() {
            bed.link("wget");
        } else {
            refused(&bed, &served.url, "neither curl nor wget is here");
            bed.run(&[], &[(BASE, &releases.file_url())]).well(&["is installed"]);
            bed.link("wget");
        }
        let proxy = ("http_proxy", "http://127.0.0.1:9/");
        bed.run(&[], &[(BASE, &served.url), proxy]).well(&["is installed"]);
        if !bed.has_all() {
            bed.tool("wget", "echo BusyBox v1.35");
        }
        let said = bed.run(&[], &[(BASE, "https://example.org")]);
        said.badly("does not check whom it talks to");

        let bed = Bed::new(shell);
        if bed.has_all() {
            return;
        }
        bed.without("sha256sum");
        refused(&bed, &served.url, "nothing is installed unchecked");
        bed.link("openssl");
        bed.run(&[], &[(BASE, &served.url), ("http_proxy", "http://127.0.0.1:9/")]).well(&["is installed"]);
        bed.without("openssl").tool("shasum", "exec /usr/bin/sha256sum");
        bed.run(&[], &[(BASE, &served.url)]).well(&["is installed anew"]);
        bed.without("tar");
        bed.run(&["--uninstall"], &[]).badly("this needs the command tar");
    });
}
