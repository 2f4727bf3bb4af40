//! Tests that a script which is interrupted or truncated leaves no temporary or incomplete files.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::bed::{self, Bed, SCRIPT, Said, shells};
use super::releases::Releases;
use super::{BASE, in_each_shell};

/// Signals end the script even if the tests were started by a shell in the background, whose children inherit
/// an ignored SIGINT.
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

/// No temporary file stays if the reader of the output is gone, as in `curl | sh | head`. The script notices
/// that only at its end.
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

/// No file stays if a signal ends `mktemp` or `mkdir` after it has created something and before the script
/// knows.
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

/// A truncated script does nothing. It is cut at every byte when read from a file, because a shell reads
/// files in blocks, and at every line's end when read from a pipe, which a shell reads byte by byte.
#[test]
fn cut_short_at_every_byte() {
    let releases = Releases::one();
    let url = releases.file_url();
    for shell in shells() {
        println!("{} reads {} beginnings of the script", shell.name, SCRIPT.len());
        // Nothing depends on the last byte, a line's end.
        let next = AtomicUsize::new(0);
        let work = || {
            let bed = Bed::new(&shell);
            let before = bed.tree();
            let place = bed.path("home/bin").display().to_string();
            let environment = [(BASE, url.as_str()), ("VGPU_RUN_INSTALL_DIR", &place)];
            let first = SCRIPT.find("\n{\n").unwrap() + 2;
            loop {
                let length = next.fetch_add(1, Ordering::Relaxed);
                if length >= SCRIPT.len() - 1 {
                    return;
                }
                let cut = &SCRIPT[..length];
                let mut starts = vec![bed.start_from_file(cut, &environment)];
                if cut.ends_with('\n') {
                    starts.push(bed.start_fast(cut, &environment));
                }
                for child in starts {
                    let said = Said::of(child.wait_with_output().unwrap());
                    // There is nothing to do in the remarks at the top; in what follows the shell misses its
                    // end.
                    let is_remark = length < first;
                    assert_eq!(
                        (said.code == Some(0), said.out.as_str(), said.err.is_empty()),
                        (is_remark, "", is_remark),
                        "{} at {length}: {said:?}",
                        shell.name
                    );
                    assert!(bed.tree() == before, "{} at {length}", shell.name);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
    }
}
