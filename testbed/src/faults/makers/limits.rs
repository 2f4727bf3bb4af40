//! Faults of limits: resource limits (setrlimit(2)) of the check, of a script on the way, of one of Ollama's
//! programs and of the service's unit, and a seccomp filter that ends a process.

use super::super::plan::{Maker, ScenePlan};
use super::ollama::{DEVICE_FILES, llama_server, wrapper};
use super::rights::open_to_all;

/// Runs the check as nobody, who may open the device, because limits on processes do not apply to root.
fn nobody(plan: &mut ScenePlan) {
    plan.nobody = true;
    open_to_all(plan, &DEVICE_FILES);
}

/// Makers in this file, by their names in the catalogue.
pub const MAKERS: &[(&str, Maker)] = &[
    ("script-limits-address-space", |plan| {
        wrapper(plan, "ulimit -v 100000000\nexec \"$OLLAMA\" \"$@\"");
    }),
    ("script-leaves-no-address-space", |plan| {
        wrapper(plan, "ulimit -v 500000\nexec \"$OLLAMA\" \"$@\"");
    }),
    ("unit-limits-address-space", |plan| {
        let service = plan.service();
        service.running = false;
        service.properties.push(("LimitAS", "107374182400".to_owned()));
    }),
    ("llama-server-short-of-addresses", |plan| {
        llama_server(plan, "ulimit -v 100000000\nexec \"$REAL\" \"$@\"");
    }),
    ("llama-server-short-of-descriptors", |plan| {
        llama_server(plan, "ulimit -n 4\nexec \"$REAL\" \"$@\"");
    }),
    ("llama-server-short-of-threads", |plan| {
        nobody(plan);
        llama_server(plan, "exec prlimit --nproc=1:1 -- \"$REAL\" \"$@\"");
    }),
    ("data-limited", |plan| plan.limits.push("ulimit -d 40000".to_owned())),
    ("file-size-limited", |plan| plan.limits.push("ulimit -f 64".to_owned())),
    ("stack-unlimited", |plan| plan.limits.push("ulimit -s unlimited".to_owned())),
    ("filter-kills-llama-server", |plan| {
        // 41 is socket(2): without it no server can listen, and the loader has no use for it.
        llama_server(plan, "exec \"$PROGRAMS/vgpu-standin\" sandbox --kill 41 -- \"$REAL\" \"$@\"");
    }),
];
