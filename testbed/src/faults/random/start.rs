//! Random changes of how the server is started: the values of its own variables, and scripts between the
//! launcher and the program, as people write them.

use std::fs;
use std::os::unix::fs::symlink;

use rand::RngExt;
use rand::rngs::StdRng;

use super::super::plan::{Maker, ScenePlan, When};
use super::super::scene::install::script;
use super::made::{Made, pick};

/// Variables of Ollama, llama-server and ggml with values, as the file says itself.
const VARIABLES: &str = include_str!("../../../faults/variables.txt");

/// Change of the home, with its description.
type HomeChange = (&'static str, Maker);

/// Changes of the home, each with what is so then.
const HOMES: &[HomeChange] = &[
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
    ("sends its output through tee", "\"$OLLAMA\" \"$@\" 2>&1 | tee \"$SYSTEM/all\""),
    ("closes its output", "exec \"$OLLAMA\" \"$@\" >&-"),
    ("limits its time", "exec timeout 900 \"$OLLAMA\" \"$@\""),
    ("starts it in a session", "exec setsid --wait \"$OLLAMA\" \"$@\""),
    ("pins it", "exec taskset -c 0 \"$OLLAMA\" \"$@\""),
    ("clears PATH", "PATH=/nonexistent exec \"$OLLAMA\" \"$@\""),
    ("fails", "exit 3"),
    ("fails with a line", "echo 'no licence' >&2; exit 1"),
];

/// Returns the names and values of the data.
fn variables() -> Vec<(&'static str, Vec<&'static str>)> {
    let lines = VARIABLES.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, values)| (name, values.split('|').collect()))
        .collect()
}

/// Sets a variable of the server, or changes its home.
pub fn value(plan: &mut ScenePlan, made: &Made, rng: &mut StdRng) {
    if rng.random_bool(0.1) {
        let (what, change) = *pick(rng, HOMES);
        made.record(what);
        change(plan);
        return;
    }
    let variables = variables();
    let (name, values) = pick(rng, &variables);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variable_has_values() {
        let variables = variables();
        assert!(variables.len() > 200, "{}", variables.len());
        for (name, values) in &variables {
            assert!(
                !name.is_empty()
                    && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            );
            assert!(!values.is_empty(), "{name}");
        }
        assert!(variables.is_sorted());
    }
}
