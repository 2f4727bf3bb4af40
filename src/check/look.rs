//! What runs in check's own children: `vgpu-run __look TASK`. As another user where `--user` says so. Each prints the steps that
//! [`super::child`] reads.

use std::io::Write;

use serde_json::{Value, json};

/// Says that a step begins.
pub fn begin(step: &str) {
    say(&json!({"step": step, "begin": true}));
}

/// Says how a step ended.
pub fn end(step: &str, ok: bool, mut fields: Value) {
    fields["step"] = step.into();
    fields["ok"] = ok.into();
    say(&fields);
}

fn say(line: &Value) {
    // Who reads it may be gone, and then nobody wants to know.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
