//! The pictures of the README: `vgpu-run check` on a broken guest, and the end of the demo, as a terminal shows
//! them. Each is made from a run, and must show what docs/pictures has, but for figures that differ between
//! runs. A picture that is stale is written beside, and the failure says how to take it over.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, chmod};
use vgpu_serve::Facts;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::{Bed, random_facts};
use vgpu_testbed::{announce, programs};

/// Width of the terminal in columns.
const COLUMNS: usize = 96;

/// Script that makes a guest in a mount namespace: a release of Ollama (a stand-in for its server, and GGML's
/// own backend), and a bus with the device, whose files root alone may open. It runs `check` as another user
/// in a terminal.
const GUEST: &str = r#"
set -e
mount -t tmpfs -o mode=755 none /usr/local
libraries=/usr/local/lib/ollama
mkdir -p /usr/local/bin $libraries/cuda_v12
cp "$PROGRAMS/vgpu-run" /usr/local/bin/
cp "$PROGRAMS/ollama-era-c" /usr/local/bin/ollama
cp "$PROGRAMS/ollama-llama-server" $libraries/llama-server
cp "$BACKEND"/libggml-base* "$BACKEND"/libggml-cpu-x64* "$BACKEND"/libggml-cpu-haswell* $libraries/
cp "$BACKEND"/libggml.* $libraries/libggml.so
cp "$BACKEND"/libllama.* $libraries/libllama.so
cp "$BACKEND/libggml-cuda.so" $libraries/cuda_v12/
install -d -o 65534 -g 65534 /usr/local/home
mount --bind "$BUS" /sys
cd /
exec env -i PATH=/usr/local/bin:/usr/bin:/bin TERM=xterm LANG=C.UTF-8 HOME=/usr/local/home USER=nobody \
    setpriv --reuid 65534 --regid 65534 --clear-groups \
    script --quiet --return --command "stty cols $COLUMNS rows 60; exec vgpu-run check --no-ollama --timeout 60 2>/dev/null" /dev/null
"#;

#[test]
fn check_on_a_broken_guest() {
    if !rustix::process::geteuid().is_root() {
        announce("the picture of check is made by root alone, who may be another user");
        return;
    }
    // At the address that QEMU gives its first device.
    let facts = Facts { address: "0000:00:05.0".to_owned(), ..random_facts(&["6.1"]) };
    let bed = Bed::start("null", &[facts]).unwrap();
    // The directory is this user's; the files in it have the modes that a kernel gives them.
    chmod(bed.sysfs(), Mode::from_raw_mode(0o755)).unwrap();
    // In the directory of the programs.
    let (launcher, _) = (programs::launcher().unwrap(), programs::standin().unwrap());
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", GUEST])
        .env("PROGRAMS", launcher.parent().unwrap())
        .env("BACKEND", Backend::Cuda12.folder().unwrap())
        .env("BUS", bed.sysfs())
        .env("COLUMNS", COLUMNS.to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
    // `script` ends with 0 as the first process of its namespace.
    assert!(said.contains("[✗]"), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    is_current("check", &format!("$ vgpu-run check --no-ollama\n{said}"));
}

#[test]
fn the_end_of_the_demo() {
    let output = Command::new(programs::testbed().unwrap())
        .args(["demo", "--no-ollama", "--tokens", "8"])
        .env_remove("VGPU_SYSFS")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let from = said.find("> What is").expect("the demo shows its question");
    // Whoever looks has no such directories.
    let root = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
    let backend = Backend::Cuda12.folder().unwrap();
    let end = said[from..]
        .replace(&format!("{}/", root.display()), "")
        .replace(&backend.display().to_string(), "~/.cache/vgpu-run/ggml-cuda12")
        // On a machine with a driver the sentence is another one, and no less true.
        .replace(
            "This machine has an NVIDIA driver (/proc/driver/nvidia), which took no part.",
            "This machine has no NVIDIA driver: /proc/driver/nvidia is not there.",
        );
    is_current(
        "demo",
        &format!("$ cargo run --release -p vgpu-testbed -- demo --tokens 8\n...\n{}", wrapped(&end)),
    );
}

/// Breaks lines between words, which a terminal does not do, and a reader prefers.
fn wrapped(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut open = String::new();
        for word in line.split(' ') {
            if !open.is_empty() && open.len() + 1 + word.len() > COLUMNS {
                lines.push(std::mem::replace(&mut open, " ".to_owned()));
            }
            if !open.is_empty() {
                open.push(' ');
            }
            open.push_str(word);
        }
        lines.push(open);
    }
    lines.join("\n")
}

/// Asserts that docs/pictures shows this text.
#[track_caller]
fn is_current(name: &str, text: &str) {
    let picture = anstyle_svg::Term::new().min_width_px(0).render_svg(text);
    let path =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/pictures")).join(format!("{name}.svg"));
    let (shown, wanted) = (fs::read_to_string(&path).unwrap_or_default(), said_by(&picture));
    if said_by(&shown) == wanted {
        return;
    }
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.svg"));
    fs::write(&fresh, &picture).unwrap();
    panic!(
        "docs/pictures/{name}.svg is stale; look at the new one, and take it over: cp {} docs/pictures/{name}.svg\n\
         it shows: {}\nthe run said: {wanted}",
        fresh.display(),
        said_by(&shown)
    );
}

/// Returns the text of a picture in one line, with `#` for each number, which differs between runs, and where
/// a longer one breaks a line elsewhere.
fn said_by(picture: &str) -> String {
    let mut said = String::new();
    // The style sheet is no text; what follows it is one element for each piece of a line.
    let shown = picture.split_once("<text").map_or("", |(_, shown)| shown);
    for piece in shown.split('>').skip(1).filter_map(|piece| piece.split('<').next()) {
        said.extend(piece.chars().filter(|letter| !letter.is_whitespace()));
    }
    let mut masked = String::new();
    for letter in said.chars() {
        if !letter.is_ascii_digit() {
            masked.push(letter);
        } else if !masked.ends_with('#') {
            masked.push('#');
        }
    }
    masked.replace("#.#", "#")
}

#[test]
fn numbers_and_breaks_are_no_difference_and_words_are_one() {
    let render = |text: &str| said_by(&anstyle_svg::Term::new().render_svg(text));
    assert_eq!(render("a 12 b\nc"), render("a 4.5\nb c"));
    assert_eq!(render("\u{1b}[1mbold\u{1b}[0m <x>"), "bold&lt;x&gt;");
    assert_ne!(render("a 12 b"), render("a 12 d"));
}
