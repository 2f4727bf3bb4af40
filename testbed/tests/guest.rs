//! A real guest: a virtual machine boots, its kernel enumerates VGPU-STUB as a PCI device, and stock libggml-cuda.so finds the GPU
//! and moves bytes through BAR2. One boot serves all that is looked at: it is what takes the time.
//!
//! To be run in release: the soft executor is slow without optimisation.

use std::time::Duration;

use serde_json::Value;
use vgpu_llama::event::{Event, Job};
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::{Bed, Facts};
use vgpu_testbed::guest::{Place, Settings, model};
use vgpu_testbed::machine::{GuestMachine, Options};

/// A command of this test takes seconds on a machine that has nothing else to do.
const LIMIT: Duration = Duration::from_mins(2);

const PROMPT: &str = "The capital of France is";
/// So many tokens behind it are the same on every processor (as in `generate.rs`); the emulated one is slow.
const TOKENS: usize = 3;

/// The tokens that a model generates, from the lines that `vgpu-llama` prints.
fn tokens(lines: &str) -> Vec<i32> {
    let mut events = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    let done = events.find_map(|event| match event {
        Event::Done { tokens, .. } => Some(tokens),
        _ => None,
    });
    done.unwrap_or_else(|| panic!("never done: {lines}"))
}

/// The same model on the simulated bus.
fn tokens_on_the_simulated_bus() -> Vec<i32> {
    let bed = Bed::start("soft", &[Facts { memory_mib: 2048, ..Facts::random(&["6.1"]) }]).unwrap();
    let settings = Settings::new(model("smollm2").unwrap(), TOKENS);
    let job = Job { prompt: PROMPT.to_owned(), forced: None };
    let mut guest = settings.start(Place::Gpu(bed.sysfs()), &[job]).unwrap();
    let done = |event: &Event| match event {
        Event::Done { tokens, .. } => Some(tokens.clone()),
        _ => None,
    };
    let tokens = guest.until("that it is done", done).unwrap();
    guest.finish().unwrap();
    tokens
}

/// Runs a command, which must end well, and returns what it printed.
fn good(guest: &mut GuestMachine, user: &str, command: &[&str]) -> String {
    let (end, out, err) = guest.output(user, command, LIMIT).unwrap();
    assert_eq!(end.code(), 0, "{command:?} as {user}: {out}\n{err}\nconsole:\n{}", guest.console());
    out
}

#[test]
fn a_guest_boots_and_finds_the_gpu() {
    let backend = Backend::Cuda12.folder().unwrap();
    let model = model("smollm2").unwrap();
    let shares = vec![backend.clone(), model.parent().unwrap().to_owned()];
    let mut guest = GuestMachine::boot(&Options { shares, ..Options::default() }).unwrap();
    let function = "/sys/bus/pci/devices/0000:00:04.0";

    // What the guest's kernel enumerated.
    let ids = good(
        &mut guest,
        "guest",
        &[
            "sh",
            "-c",
            &format!("cd {function}; cat vendor device class subsystem_vendor subsystem_device revision"),
        ],
    );
    assert_eq!(
        ids.split_whitespace().collect::<Vec<_>>(),
        ["0x10de", "0x2331", "0x030200", "0x10de", "0x16c1", "0xa1"]
    );
    let resources = good(&mut guest, "guest", &["cat", &format!("{function}/resource")]);
    let bars: Vec<Vec<u64>> = resources
        .lines()
        .map(|line| line.split(' ').map(|n| u64::from_str_radix(&n[2..], 16).unwrap()).collect())
        .collect();
    assert_eq!(bars[0][1] - bars[0][0] + 1, 0x2000, "{resources}");
    assert_eq!(bars[1], [0, 0, 0], "{resources}");
    assert_eq!(bars[2][1] - bars[2][0] + 1, 256 << 20, "{resources}");
    // IORESOURCE_PREFETCH and IORESOURCE_MEM_64.
    assert_eq!(bars[2][2] & 0x10_2000, 0x10_2000, "{resources}");

    // Stock GGML, as the unprivileged user and as root.
    let library = backend.join("libggml-cuda.so");
    let library = library.to_str().unwrap();
    for user in ["guest", "root"] {
        let found = good(&mut guest, user, &["vgpu-run", "--", "vgpu-standin", "ggml", library]);
        let found: Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found["devices"].as_array().unwrap().len(), 1, "{found}");
        assert_eq!(found["devices"][0]["cc"], "6.1", "{found}");
        assert_eq!(found["devices"][0]["pci_id"], "0000:00:04.0", "{found}");
    }

    // Root gives the device away and drops to who had no right to it.
    let (end, out, err) =
        guest.output("nobody", &["vgpu-run", "--", "vgpu-standin", "ggml", library], LIMIT).unwrap();
    assert_eq!(end.code(), 125, "{out}{err}");
    assert!(err.contains("Permission denied"), "{err}");
    let given = ["vgpu-run", "--user", "nobody", "--", "vgpu-standin", "ggml", library];
    assert!(good(&mut guest, "root", &given).contains("0000:00:04.0"));

    // What `check` says where there is no Ollama: the chain up to it holds.
    let command = ["vgpu-run", "check", "--no-ollama", "--json"];
    let (end, out, err) = guest.output("guest", &command, LIMIT).unwrap();
    assert_eq!(end.code(), 1, "{out}{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["first_failure"]["link"], "ollama", "{report:#}");
    let checks = report["checks"].as_array().unwrap();
    let check = |id: &str| checks.iter().find(|check| check["id"] == id).unwrap();
    for id in ["pci", "permission", "device", "host", "loader"] {
        assert_eq!(check(id)["status"], "pass", "{id}: {report:#}");
    }
    assert!(check("window")["found"].as_str().unwrap().contains("write-combined"), "{report:#}");

    // The whole path: a model on the device, through the mapped BAR2, as on the simulated bus.
    let job = serde_json::to_string(&[Job { prompt: PROMPT.to_owned(), forced: None }]).unwrap();
    let script = format!(
        "echo '{job}' > /tmp/jobs && exec vgpu-run -- vgpu-llama --gpu-backend {library} --libraries {} --model {} --jobs /tmp/jobs \
         --tokens {TOKENS} --log warn",
        backend.display(),
        model.display()
    );
    let generated = tokens(&good(&mut guest, "guest", &["sh", "-c", &script]));
    assert_eq!(generated, tokens_on_the_simulated_bus());
    assert_eq!(generated.len(), TOKENS);
}

/// The same on a device of version 1, which is what existing hosts have: an exit for each access, and for root a window of the
/// guest's own large pages.
#[test]
fn a_guest_uses_a_device_of_version_1() {
    let backend = Backend::Cuda12.folder().unwrap();
    let device = ["--protocol", "v1"].map(str::to_owned).to_vec();
    let options = Options { shares: vec![backend.clone()], device, huge_pages: 24, ..Options::default() };
    let mut guest = GuestMachine::boot(&options).unwrap();
    let library = backend.join("libggml-cuda.so");
    let found =
        good(&mut guest, "guest", &["vgpu-run", "--", "vgpu-standin", "ggml", library.to_str().unwrap()]);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["devices"][0]["pci_id"], "0000:00:04.0", "{found}");

    // BAR1 is slow: a little goes a long way.
    for (user, mib) in [("guest", "0"), ("root", "16")] {
        let command = ["vgpu-run", "--", "vgpu-standin", "transport", "--calls", "20", "--mib", mib];
        let answer: Value = serde_json::from_str(&good(&mut guest, user, &command)).unwrap();
        assert_eq!(answer["same"], true, "as {user}: {answer}");
        let command = ["vgpu-run", "check", "--no-ollama", "--json"];
        let (_, out, err) = guest.output(user, &command, LIMIT).unwrap();
        let report: Value = serde_json::from_str(&out).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let window = checks.iter().find(|check| check["id"] == "window").unwrap();
        let way = if user == "root" { "of this guest's large pages" } else { "goes through BAR1" };
        assert!(window["found"].as_str().unwrap().contains(way), "as {user}: {report:#}\n{err}");
    }
}
