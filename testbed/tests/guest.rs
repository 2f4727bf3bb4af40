//! A real guest: a virtual machine boots, its kernel enumerates VGPU-STUB as a PCI device, and stock libggml-cuda.so finds the GPU
//! and moves bytes through BAR2. One boot serves all that is looked at: it is what takes the time.
//!
//! To be run in release: the soft executor is slow without optimisation.

use std::time::Duration;

use serde_json::Value;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::machine::{GuestMachine, Options};

/// A command of this test takes seconds on a machine that has nothing else to do.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a command, which must end well, and returns what it printed.
fn good(guest: &mut GuestMachine, user: &str, command: &[&str]) -> String {
    let (end, out, err) = guest.output(user, command, LIMIT).unwrap();
    assert_eq!(end.code(), 0, "{command:?} as {user}: {out}\n{err}\nconsole:\n{}", guest.console());
    out
}

#[test]
fn a_guest_boots_and_finds_the_gpu() {
    let backend = Backend::Cuda12.folder().unwrap();
    let options = Options { shares: vec![backend.clone()], ..Options::default() };
    let mut guest = GuestMachine::boot(&options).unwrap();
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

    // The data path: memory, copies both ways, a kernel and a product, compared.
    let checked = good(&mut guest, "guest", &["vgpu-run", "check", "--no-ollama", "--json"]);
    let report: Value = serde_json::from_str(&checked).unwrap();
    let links = report["links"].as_array().unwrap();
    let state = |id: &str| links.iter().find(|link| link["id"] == id).map(|link| &link["status"]);
    for id in ["pci", "permission", "device"] {
        assert_eq!(state(id), Some(&Value::from("pass")), "{id}: {report:#}");
    }
}
