//! Selects the lines of a server's log that explain its choice of GPUs, and the line with which a dying
//! server gives its reason.

use super::log::FOUND;

/// Maximum number of characters of a line that are shown. A line with all CPU features is longer.
const SHOWN: usize = 300;
/// Maximum number of lines of evidence.
const MOST: usize = 12;

/// Texts that mark a line about GPUs.
const ABOUT: [&str; 16] = [
    "CUDA",
    "cuda",
    "GPU",
    "NVIDIA",
    "load_backend",
    "llama-server",
    "runner",
    "Available devices",
    "(none)",
    "Device ",
    FOUND,
    "discover",
    "vgpu-run:",
    "vgpu[",
    "filter",
    "library",
];
/// Texts that mark a line with a reason.
const WHY: [&str; 15] = [
    "failed",
    "failure",
    "Unable",
    "unable",
    "error",
    "level=WARN",
    "level=ERROR",
    "skipping",
    "filtering",
    "too old",
    "timed out",
    "no nvidia devices",
    "SIG",
    "ASSERT",
    "exited",
];
/// Words that mark lines about configuration or Go stack traces, which are no evidence.
const NOISE: [&str; 4] = ["server config", "msg=subprocess", "(0x", " +0x"];

/// Returns the lines about GPUs. If there are too many, lines with a reason take precedence. The order of the
/// log is kept.
pub fn about_gpus(log: &str) -> Vec<String> {
    let about = |line: &&str| {
        let holds = |words: &[&str]| words.iter().any(|word| line.contains(word));
        (holds(&ABOUT) || holds(&WHY)) && !holds(&NOISE)
    };
    let mut lines: Vec<(usize, &str)> = log.lines().map(str::trim).filter(about).enumerate().collect();
    lines.dedup_by(|next, line| next.1 == line.1);
    // Stable, so that what says why comes first and the order stays otherwise.
    lines.sort_by_key(|(_, line)| !WHY.iter().any(|word| line.contains(word)));
    lines.truncate(MOST);
    lines.sort_unstable();
    lines.into_iter().map(|(_, line)| shortened(line)).collect()
}

/// Starts of the line in which a dying program gives the reason. The stack traces that follow say less.
const LAST_WORDS: [&str; 9] = [
    "runtime: ",
    "runtime/cgo: ",
    "fatal error: ",
    "panic: ",
    "SIG",
    "Error: ",
    "terminate called",
    "vgpu-run: ",
    "CUDA error: ",
];
/// Texts that mark a line with the reason after the program's name.
const WITHIN: [&str; 5] = [
    "error while loading shared libraries",
    "error while handling",
    "symbol lookup error",
    "failed to create new OS thread",
    "annot allocate memory",
];

/// Returns the first line in which a dying server gives its reason.
pub fn last_words(log: &str) -> Option<String> {
    let fatal = |line: &&str| {
        LAST_WORDS.iter().any(|word| line.starts_with(word)) || WITHIN.iter().any(|word| line.contains(word))
    };
    log.lines().map(str::trim).find(fatal).map(shortened)
}

pub(super) fn shortened(line: &str) -> String {
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FOUND_LINE: &str = r#"level=INFO msg="inference compute" id=0 library=CUDA"#;

    #[test]
    fn evidence_is_what_says_why() {
        let noise = "msg=\"looking at GPU\" x\n";
        let why = "0.00 E load_backend: failed to load /l/libggml-cuda.so: libcudart.so.12: cannot open";
        let log = format!(
            "GIN debug\nmsg=\"server config\" env=\"CUDA_VISIBLE_DEVICES:\"\n{}{why}\n{FOUND_LINE}\n",
            noise.repeat(2)
        );
        let lines = about_gpus(&log);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!((lines[1].as_str(), lines[0].as_str()), (why, noise.trim()));
        let many: Vec<String> = (0..30).map(|at| format!("GPU number {at}")).collect();
        let lines = about_gpus(&format!("{}\n{why}\n", many.join("\n")));
        assert_eq!((lines.len(), lines.last().map(String::as_str)), (MOST, Some(why)));
    }

    #[test]
    fn last_words_are_the_first_of_a_dump() {
        let dump = "time=x level=INFO msg=\"Listening\"\nruntime: may need to increase max user processes (ulimit -u)\n\
                    fatal error: newosproc\n\nruntime stack:\nruntime.throw({0x1, 0x2})\n";
        assert_eq!(
            last_words(dump).as_deref(),
            Some("runtime: may need to increase max user processes (ulimit -u)")
        );
        let said = |line: &str| last_words(&format!("a\n{line}\nb\n"));
        for line in [
            "fatal error: failed to reserve page summary memory",
            "Error: listen tcp 127.0.0.1:1: bind: address already in use",
            "/x/ollama: error while loading shared libraries: libx.so: cannot open shared object file",
            "error while handling environment variable \"LLAMA_ARG_DEVICE\": invalid device: CUDA7",
            "/x/llama-server: symbol lookup error: /x/liby.so: undefined symbol: z_init",
        ] {
            assert_eq!(said(line).as_deref(), Some(line));
        }
        assert_eq!(said("msg=\"no error\""), None);
    }

    proptest! {
        #[test]
        fn nothing_breaks_the_readers(text in ".{0,80}") {
            let _ = (about_gpus(&text), last_words(&text), last_words(&format!("fatal error: {text}")));
        }
    }
}
