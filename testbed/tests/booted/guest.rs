//! A real guest: a virtual machine boots, its kernel enumerates VGPU-STUB as a PCI device, and stock
//! libggml-cuda.so finds the GPU and moves bytes through BAR2. One boot serves all that is looked at: it is
//! what takes the time.
//!
//! To be run in release: the soft executor is slow without optimisation.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vgpu_llama::event::{Event, Job};
use vgpu_serve::Facts;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::{Bed, StandIn, TICK, random_facts, sessions};
use vgpu_testbed::guest::{Place, Settings, model};
use vgpu_testbed::machine::{GuestMachine, Options};
use vgpu_testbed::programs;
use vgpu_testbed::unit::Instance;

/// Limit of a command, which takes seconds on an idle machine.
const LIMIT: Duration = Duration::from_mins(2);

/// Time for which a device process is stopped. QEMU waits 5 s for the answer to a message by default.
const SILENCE: Duration = Duration::from_secs(7);

const PROMPT: &str = "The capital of France is";
/// Number of generated tokens. This many are equal on every processor (see `generate.rs`), and the emulated
/// one is slow.
const TOKENS: usize = 3;

/// Returns the tokens that a model generated, from the lines that `vgpu-llama` prints.
fn tokens(lines: &str) -> Vec<i32> {
    let mut events = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    let done = events.find_map(|event| match event {
        Event::Done { tokens, .. } => Some(tokens),
        _ => None,
    });
    done.unwrap_or_else(|| panic!("never done: {lines}"))
}

/// Returns the tokens that the same model generates on the simulated bus.
fn tokens_on_the_simulated_bus() -> Vec<i32> {
    let bed = Bed::start("soft", &[Facts { memory_mib: 2048, ..random_facts(&["6.1"]) }]).unwrap();
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

/// Runs a command, which must succeed, and returns its stdout.
fn good(guest: &mut GuestMachine, user: &str, command: &[&str]) -> String {
    let (end, out, err) = guest.output(user, command, LIMIT).unwrap();
    assert_eq!(end.code(), 0, "{command:?} as {user}: {out}\n{err}\nconsole:\n{}", guest.console());
    out
}

/// Returns what `check` reports on the shared window: one sentence, and all its lines.
fn window(guest: &mut GuestMachine, user: &str) -> (String, String) {
    let report = good(guest, user, &["vgpu-run", "check", "--only", "window", "--json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    let window = report["checks"].as_array().unwrap().iter().find(|check| check["id"] == "window").unwrap();
    (window["found"].as_str().unwrap().to_owned(), window["details"].to_string())
}

/// Generates in the guest and returns the tokens, and the number of bytes of guest pages that the host had
/// mapped meanwhile.
fn generate(guest: &mut GuestMachine, user: &str, script: &str) -> (Vec<i32>, u64) {
    let (mut lines, mut pages) = (String::new(), None);
    let end = guest.follow(user, &["sh", "-c", script], LIMIT, |line, status| {
        if let Ok(Event::Token { .. }) = serde_json::from_str(line)
            && pages.is_none()
        {
            let status = status()?;
            pages = status["sessions"][0]["page_bytes"].as_u64();
        }
        lines.push_str(line);
        lines.push('\n');
        Ok(())
    });
    assert_eq!(end.unwrap().code(), 0, "as {user}: {lines}");
    (tokens(&lines), pages.expect("a session"))
}

/// Checks that a VM survives a device process that is silent during a register access for longer than QEMU's
/// own limit of 5 s, because the VM's arguments set another limit.
fn survives_silence(guest: &mut GuestMachine) {
    let device = Pid::from_raw(guest.device_pid().unwrap().cast_signed()).unwrap();
    kill_process(device, Signal::STOP).unwrap();
    let goes_on = std::thread::spawn(move || {
        std::thread::sleep(SILENCE);
        kill_process(device, Signal::CONT).unwrap();
    });
    let begun = Instant::now();
    let script = "bar=$(head -1 /sys/bus/pci/devices/0000:00:04.0/resource | cut -d' ' -f1)
        devmem $bar 32 && exec vgpu-run -- vgpu-standin soak --seed 7 --operations 20";
    let said = good(guest, "root", &["sh", "-c", script]);
    goes_on.join().unwrap();
    assert!(begun.elapsed() >= SILENCE, "nothing was read while the device was silent: {said}");
    let (register, report) = said.split_once('\n').unwrap();
    assert_ne!(register, "0xFFFFFFFF", "the read failed");
    let report: Value = serde_json::from_str(report.lines().last().unwrap()).unwrap();
    assert_eq!((&report["wrong"], &report["operations"]), (&0.into(), &20.into()), "{report}");
}

#[test]
fn a_guest_boots_and_finds_the_gpu() {
    let backend = Backend::Cuda12.folder().unwrap();
    let model = model("smollm2").unwrap();
    let shares = vec![backend.clone(), model.parent().unwrap().to_owned()];
    let mut guest = GuestMachine::boot(&Options { shares, huge_pages: 8, ..Options::default() }).unwrap();
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
        // A busy machine answers slowly, which is a warning.
        let slow = check(id)["cause"].as_str().is_some_and(|cause| cause.ends_with("-slow"));
        assert!(check(id)["status"] == "pass" || slow, "{id}: {report:#}");
    }
    assert!(check("window")["found"].as_str().unwrap().contains("write-combined"), "{report:#}");

    // Without the loopback interface no server could listen, which is told before anything else.
    good(&mut guest, "root", &["ifconfig", "lo", "down"]);
    let (end, out, err) =
        guest.output("guest", &["vgpu-run", "check", "--no-ollama", "--json"], LIMIT).unwrap();
    assert_eq!(end.code(), 1, "{out}{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["first_failure"]["cause"], "no-loopback", "{report:#}");
    good(&mut guest, "root", &["ifconfig", "lo", "up"]);

    // As in a guest that nobody has set up: memory decoding is off. Root's start turns it on, and root's
    // check says so; a user's start fails.
    let enable = "/sys/bus/pci/devices/0000:00:04.0/enable";
    good(&mut guest, "root", &["sh", "-c", &format!("echo 0 >{enable}")]);
    let command = ["vgpu-run", "check", "--json", "--only", "pci,host"];
    let (end, out, err) = guest.output("guest", &command, LIMIT).unwrap();
    assert_eq!(end.code(), 1, "{out}{err}");
    assert!(out.contains("\"issues\":[\"pci/memory-decoding-off\"]"), "{out}");
    let report: Value = serde_json::from_str(&good(&mut guest, "root", &command)).unwrap();
    assert_eq!(report["issues"], serde_json::json!(["pci/memory-decoding-off"]), "{report:#}");
    assert_eq!(report["verdict"], "works", "{report:#}");
    assert_eq!(good(&mut guest, "root", &["cat", enable]).trim(), "1");

    // A user reads what the host writes from the window; root has it written to large pages of the guest's
    // own.
    let (found, details) = window(&mut guest, "guest");
    assert!(!found.contains("large pages"), "{found}");
    assert!(details.contains("only root may name guest pages"), "{details}");
    let (found, details) = window(&mut guest, "root");
    assert!(found.contains("4 MiB of this guest's large pages"), "{found} {details}");
    assert!(details.contains("from the window (resource2)"), "{details}");

    // Pages outlive a process that is killed, for the host may still write to them; the next one to come
    // gives them back.
    let script = "free() { cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages; }; free
        vgpu-run -- vgpu-standin state message > /tmp/said & until [ -s /tmp/said ]; do sleep 0.1; done
        free; kill -9 $!; wait $!; free
        vgpu-run -- vgpu-standin transport --calls 5 --kib 4096 > /tmp/measured || exit 1
        grep -q '\"same\":true' /tmp/measured || exit 2; free";
    let free = good(&mut guest, "root", &["sh", "-c", script]);
    assert_eq!(free.split_whitespace().collect::<Vec<_>>(), ["8", "6", "6", "8"]);

    survives_silence(&mut guest);

    // The whole path: a model on the device, through the mapped BAR2 and through guest pages, as on the
    // simulated bus.
    let job = serde_json::to_string(&[Job { prompt: PROMPT.to_owned(), forced: None }]).unwrap();
    let script = format!(
        "echo '{job}' > /tmp/jobs.$$ && exec vgpu-run -- vgpu-llama --gpu-backend {library} --libraries {} --model {} --jobs /tmp/jobs.$$ \
         --tokens {TOKENS} --log warn",
        backend.display(),
        model.display()
    );
    let expected = tokens_on_the_simulated_bus();
    assert_eq!(expected.len(), TOKENS);
    assert_eq!(generate(&mut guest, "guest", &script), (expected.clone(), 0));
    // The return area, and what lies behind it in 4 MiB.
    assert_eq!(generate(&mut guest, "root", &script), (expected, (4 << 20) - 0x8000));
}

/// Checks that a VM goes on with its device after the device's process was killed: programs learn that their
/// sessions are lost, new ones work, and nothing has to be done.
fn goes_on(guest: &mut GuestMachine, instance: &mut Instance, library: &str) {
    for number in 1..=3 {
        // A program that has work until it is told.
        let script = "cd /tmp && rm -f said && { setsid vgpu-run -- vgpu-standin soak --seed 3 --seconds 900 >said 2>errors & } && \
             until grep -q working said; do kill -0 %1 || { cat errors >&2; exit 1; }; sleep 0.1; done";
        good(guest, "root", &["sh", "-c", script]);
        instance.crash().unwrap();
        let ready = Instant::now();
        let told = "cd /tmp && until grep -q returned errors; do sleep 0.05; done; cat errors";
        let errors = good(guest, "root", &["sh", "-c", told]);
        eprintln!("crash {number}: told {:?} after the next process was ready", ready.elapsed());
        assert!(errors.contains("the device is gone: it was started anew"), "{errors}");
        let status = instance.status().unwrap()["instances"][0].take();
        let restart = serde_json::json!({ "kept": true, "crashes": number });
        assert_eq!((&status["restart"], &status["connected"]), (&restart, &true.into()), "{status:#}");
        good(guest, "root", &["vgpu-run", "check", "--only", "device,host"]);
        good(guest, "root", &["vgpu-run", "--", "vgpu-standin", "ggml", library]);
        good(guest, "root", &["vgpu-run", "--", "vgpu-standin", "soak", "--seed", "7", "--operations", "20"]);
    }
}

/// Checks that a VM gets its device back while it runs, after the device's process was killed and started
/// anew, without a store.
fn comes_back(guest: &mut GuestMachine, instance: &mut Instance, monitor: &Path, library: &str) {
    let replug = |instance: &Instance| {
        let mut command = Command::new(programs::device().unwrap());
        command.args(["replug", "vm1", "--control"]).arg(instance.control().unwrap());
        let output = command.arg("--qmp").arg(monitor).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap(), output.stderr)
    };
    let (done, _, why) = replug(instance);
    assert!(!done && String::from_utf8_lossy(&why).contains("is connected to vm1"), "{why:?}");
    instance.lose_store();
    instance.crash().unwrap();
    let lost = guest.output("root", &["vgpu-run", "check", "--only", "device"], LIMIT).unwrap();
    assert_ne!(lost.0.code(), 0, "{lost:?}");
    let (done, said, why) = replug(instance);
    assert!(done && said.contains("has its GPU again"), "{said}{}", String::from_utf8_lossy(&why));
    // Another user gets it by udev's rule, which this guest does not have.
    good(guest, "root", &["vgpu-run", "--", "vgpu-standin", "ggml", library]);
    good(guest, "root", &["vgpu-run", "--", "vgpu-standin", "soak", "--seed", "7", "--operations", "20"]);
}

/// Starts the device's unit with the executor for real GPUs, and a soft device in the place of a GPU.
fn unit_with_a_gpu() -> (Facts, StandIn, Instance) {
    let facts = Facts { memory_mib: 2048, ..random_facts(&["6.1"]) };
    let gpu = StandIn::start(&facts, &[], false).unwrap();
    let program = programs::device().unwrap();
    let instance = Instance::start_on_gpu(&program, "vm1", &gpu, "vm-memory = \"1G\"\n").unwrap();
    (facts, gpu, instance)
}

/// Arguments of QEMU beside those that the unit prints. The firmware places windows of ports above 4 GiB only
/// if it knows how many addresses a processor has, which it believes Intel's to say.
const PROCESSOR: [&str; 2] = ["-cpu", "max,vendor=GenuineIntel"];

#[test]
fn a_guest_goes_on_after_its_device_crashed() {
    let (_, gpu, mut instance) = unit_with_a_gpu();
    let backend = Backend::Cuda12.folder().unwrap();
    let options = Options { shares: vec![backend.clone()], ..Options::default() };
    let mut arguments = instance.qemu_arguments().unwrap();
    arguments.extend(PROCESSOR.map(str::to_owned));
    let mut guest = GuestMachine::boot_on(&options, &arguments).unwrap();
    goes_on(&mut guest, &mut instance, backend.join("libggml-cuda.so").to_str().unwrap());
    drop(guest);
    instance.stop().unwrap();
    assert!(sessions(&gpu.bed.status().unwrap()).is_empty());
}

/// The executor for real GPUs is served by its systemd unit, with a soft device in place of a GPU. A machine
/// started with the arguments that `serve` prints answers a prompt, and both ends report their work.
#[test]
fn a_prompt_is_answered_through_the_cuda_executor() {
    let (facts, gpu, mut instance) = unit_with_a_gpu();
    let backend = Backend::Cuda12.folder().unwrap();
    let model = model("smollm2").unwrap();
    let shares = vec![backend.clone(), model.parent().unwrap().to_owned()];
    let options = Options { shares, ..Options::default() };
    let monitor = tempfile::tempdir().unwrap();
    let monitor = monitor.path().join("qmp");
    let mut arguments = instance.qemu_arguments().unwrap();
    arguments.extend(["-qmp".to_owned(), format!("unix:{},server=on,wait=off", monitor.display())]);
    arguments.extend(PROCESSOR.map(str::to_owned));
    let mut guest = GuestMachine::boot_on(&options, &arguments).unwrap();
    let device = |instance: &Instance| instance.status().unwrap()["instances"][0]["devices"][0].take();

    // Who looks for a GPU starts no worker.
    let library = backend.join("libggml-cuda.so");
    let library = library.to_str().unwrap();
    let found = good(&mut guest, "guest", &["vgpu-run", "--", "vgpu-standin", "ggml", library]);
    assert!(found.contains(&facts.name), "{found}");
    let status = device(&instance);
    assert_eq!((&status["executor"], &status["workers_started"]), (&"cuda".into(), &0.into()), "{status}");

    // A model that waits behind its first token, until the other end of its input is closed.
    let job = serde_json::to_string(&[Job { prompt: PROMPT.to_owned(), forced: None }]).unwrap();
    let script = format!(
        "cd /tmp && echo '{job}' > jobs && mkfifo go && \
         {{ setsid vgpu-run -- vgpu-llama --gpu-backend {library} --libraries {} --model {} --jobs jobs \
         --tokens {TOKENS} --pause-from 1 --log warn <go >said 2>errors & }} && \
         {{ setsid sh -c 'exec 3>go; until [ -e answered ]; do sleep 0.1; done' >/dev/null 2>&1 & }} && \
         until grep -q paused said; do kill -0 %1 || {{ cat errors >&2; exit 1; }}; sleep 0.1; done; cat said",
        backend.display(),
        model.display()
    );
    good(&mut guest, "guest", &["sh", "-c", &script]);
    let seen: Value =
        serde_json::from_str(&good(&mut guest, "guest", &["vgpu-run", "status", "--json"])).unwrap();
    let [process] = &seen["devices"][0]["processes"].as_array().unwrap()[..] else { panic!("{seen:#}") };
    assert!(process["command"].as_str().unwrap().starts_with("vgpu-llama"), "{process}");
    let status = device(&instance);
    assert_eq!((&status["workers_started"], &status["workers_running"]), (&1.into(), &1.into()), "{status}");
    let [session] = &status["sessions"].as_array().unwrap()[..] else { panic!("{status:#}") };
    assert_eq!(session["process"], process["pid"], "{session} {process}");
    // The weights take 92.17 MiB.
    assert!(session["allocated"].as_u64().unwrap() > 92 << 20, "{session}");
    assert!(process["memory"].as_u64().unwrap() > 92 << 20, "{process}");
    assert!(session["kinds"]["Launch"].as_u64().unwrap() > 1000, "{session}");

    let script = "cd /tmp && touch answered && until grep -q done said; do sleep 0.1; done; cat said";
    let said = good(&mut guest, "guest", &["sh", "-c", script]);
    assert_eq!(tokens(&said), tokens_on_the_simulated_bus());
    // The process ends behind its last word.
    let end = Instant::now() + LIMIT;
    while !device(&instance)["sessions"].as_array().unwrap().is_empty() {
        assert!(Instant::now() < end, "the session does not end: {}", device(&instance));
        std::thread::sleep(TICK);
    }
    let status = device(&instance);
    assert_eq!((&status["workers_running"], &status["allocated"]), (&0.into(), &0.into()), "{status}");
    comes_back(&mut guest, &mut instance, &monitor, library);
    drop(guest);
    instance.stop().unwrap();
    assert!(sessions(&gpu.bed.status().unwrap()).is_empty());
}

/// A guest uses a device of version 1, as existing hosts have: each access is an exit, and root gets a window
/// of the guest's own large pages.
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
    for (user, kib) in [("guest", "4"), ("root", "16384")] {
        let command = ["vgpu-run", "--", "vgpu-standin", "transport", "--calls", "20", "--kib", kib];
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
