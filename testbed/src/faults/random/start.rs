//! Random changes of how the server is started: the values of its own variables, and scripts between the
//! launcher and the program, as people write them.

use std::fs;
use std::os::unix::fs::symlink;

use rand::RngExt;
use rand::rngs::StdRng;

use super::super::plan::{Maker, ScenePlan, When};
use super::super::scene::install::script;
use super::made::{Made, pick};

/// Variables of Ollama, llama-server and ggml with values that people give them. `$SCENE` stands for the scene's
/// directory, `$PORT` for the port at which the server is asked.
const VALUES: &[(&str, &[&str])] = &[
    (
        "OLLAMA_HOST",
        &[
            "127.0.0.1:$PORT",
            "http://127.0.0.1:$PORT",
            "0.0.0.0:$PORT",
            ":$PORT",
            "[::]:$PORT",
            "localhost:$PORT",
            "\"127.0.0.1:$PORT\"",
            "203.0.113.7:$PORT",
            "no-such-host.invalid:$PORT",
        ],
    ),
    ("OLLAMA_KV_CACHE_TYPE", &["", "f16", "q8_0", "Q4_0", "q9_9", "none"]),
    ("OLLAMA_MODELS", &["/etc/passwd", "/proc/models", "/nonexistent/models"]),
    ("OLLAMA_NOPRUNE", &["0", "1", "yes"]),
    ("OLLAMA_ORIGINS", &["*", "http://localhost"]),
    ("OLLAMA_KEEP_ALIVE", &["-1", "0", "24h"]),
    ("OLLAMA_LOAD_TIMEOUT", &["30s", "1h"]),
    ("OLLAMA_MAX_QUEUE", &["1"]),
    ("LLAMA_ARG_CACHE_TYPE_K", &["q8_0", "q9_9"]),
    ("LLAMA_ARG_CTX_SIZE", &["512", "x"]),
    ("LLAMA_ARG_MAIN_GPU", &["0", "7"]),
    ("LLAMA_ARG_SPLIT_MODE", &["layer", "none", "diagonal"]),
    ("LLAMA_ARG_THREADS", &["1", "-1", "x"]),
    ("LLAMA_ARG_FLASH_ATTN", &["on", "off", "auto", "perhaps"]),
    ("LLAMA_API_KEY", &["", "secret"]),
    ("LLAMA_ARG_LOG_FILE", &["$SCENE/home/llama.log", "/nonexistent/llama.log"]),
    ("GGML_CUDA_FORCE_MMQ", &["1"]),
    ("HTTP_PROXY", &["http://127.0.0.1:9"]),
    ("http_proxy", &["http://127.0.0.1:9"]),
    ("NO_COLOR", &["1"]),
];

/// Changes of the home, each with what is so then.
const HOMES: &[(&str, Maker)] = &[
    ("HOME is not set", |plan| plan.limits.push("unset HOME".to_owned())),
    (".ollama leads nowhere", |plan| {
        plan.step(When::Served, |scene| {
            let own = scene.path("home/.ollama");
            // A stand-in has made none yet.
            _ = fs::rename(&own, scene.path("home/away"));
            Ok(symlink("/nonexistent", own)?)
        });
    }),
    ("the home is read-only", |plan| {
        plan.mounts
            .push("mount --bind $SCENE/home $SCENE/home && mount -o remount,bind,ro $SCENE/home".to_owned());
    }),
];

/// Scripts that start `$OLLAMA`, with what they do.
const SCRIPTS: &[(&str, &str)] = &[
    ("becomes it", "exec \"$OLLAMA\" \"$@\""),
    ("starts it and waits", "\"$OLLAMA\" \"$@\""),
    ("starts it in the background and waits", "\"$OLLAMA\" \"$@\" &\nwait $!"),
    ("is nice", "exec nice -n 5 \"$OLLAMA\" \"$@\""),
    ("changes the directory", "cd / && exec \"$OLLAMA\" \"$@\""),
    ("writes a line before", "echo starting; exec \"$OLLAMA\" \"$@\""),
    ("sends the errors to a file", "exec \"$OLLAMA\" \"$@\" 2> \"$SYSTEM/errors\""),
    ("sends all output to a file", "exec \"$OLLAMA\" \"$@\" >> \"$SYSTEM/all\" 2>&1"),
    ("closes its input", "exec \"$OLLAMA\" \"$@\" <&-"),
    ("holds a lock", "exec flock \"$SYSTEM/free\" \"$OLLAMA\" \"$@\""),
    ("reads a file of the home", ". \"$HOME/.ollamarc\" && exec \"$OLLAMA\" \"$@\""),
    ("sets a limit", "ulimit -n 1024; exec \"$OLLAMA\" \"$@\""),
    ("removes LD_LIBRARY_PATH", "exec env -u LD_LIBRARY_PATH \"$OLLAMA\" \"$@\""),
    ("removes LD_PRELOAD", "unset LD_PRELOAD; exec \"$OLLAMA\" \"$@\""),
    ("fails", "exit 3"),
    ("fails with a line", "echo 'no licence' >&2; exit 1"),
];

/// Sets a variable of the server, or changes a file of its home.
pub fn value(plan: &mut ScenePlan, made: &Made, rng: &mut StdRng) {
    let at = rng.random_range(0..VALUES.len() + HOMES.len());
    let Some((name, values)) = VALUES.get(at) else {
        let (what, change) = *pick(rng, HOMES);
        made.record(what);
        change(plan);
        return;
    };
    let value = *pick(rng, values);
    made.record(format!("{name}={value:?}"));
    plan.environment.retain(|(other, _)| other != name);
    plan.set(name, value);
}

/// Puts a script between the launcher and the program.
pub fn wrapper(plan: &mut ScenePlan, made: &Made, rng: &mut StdRng) {
    let (what, text) = *pick(rng, SCRIPTS);
    made.record(format!("a script {what}"));
    plan.step(When::Installed, move |scene| {
        let path = scene.path("path/ollama");
        fs::remove_file(&path)?;
        fs::write(scene.path("home/.ollamarc"), "OK=yes\n")?;
        // Whoever runs the script may write there.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(scene.path("system"), open)?;
        let (program, folder) = (scene.ollama(), scene.path("system"));
        script(&path, &format!("OLLAMA={}\nSYSTEM={}\n{text}", program.display(), folder.display()))
    });
}
