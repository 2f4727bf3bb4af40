//! The metrics of the node process, as scrapers get them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use vgpu_host_testing::commands::{LAUNCH, allocate, copy_in, function, launch, load, params, read};
use vgpu_host_testing::guest::until;
use vgpu_wire::body::launch::Launch;

use crate::serve::Served;
use crate::shares::{CONTEXT, GIB, Gpu, OUT_OF_MEMORY, PART, ask_for};

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3";

/// An answer of the endpoint.
pub(crate) struct Answer {
    head: String,
    pub(crate) body: String,
}

/// Sends bytes, and returns all that is answered.
pub(crate) fn exchange(mut stream: impl Read + Write, request: &[u8]) -> Answer {
    // A server that has heard enough may close the connection.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Answer { head: head.to_owned(), body: body.to_owned() }
}

fn get(path: &str, accept: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: node\r\nAccept: {accept}\r\n\r\n")
}

impl Gpu {
    pub(crate) fn metrics_socket(&self) -> PathBuf {
        self.shares().with_file_name("metrics")
    }

    /// Starts the node process, with metrics at an address.
    pub(crate) fn node(&self, metrics: &str) -> Served {
        std::fs::create_dir_all(self.shares()).unwrap();
        let shares = format!("--shares={}", self.shares().display());
        Served::run_as("node", &mut self.command(), &[&shares, &format!("--metrics={metrics}")])
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.metrics_socket()).unwrap()
    }

    /// Returns all metrics in the text format.
    pub(crate) fn scrape(&self) -> String {
        let answer = exchange(self.connect(), get("/metrics", "*/*").as_bytes());
        assert!(answer.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", answer.head);
        assert!(answer.head.contains("text/plain; version=0.0.4"), "{}", answer.head);
        answer.body
    }

    /// Returns the value of one metric of a VM, of which a label may be given too.
    fn value(&self, name: &str, vm: &str, label: &str) -> Option<String> {
        let text = self.scrape();
        let of = |line: &&str| {
            line.split_once('{').is_some_and(|(found, rest)| {
                found == name && rest.starts_with(&format!("vm=\"{vm}\"")) && rest.contains(label)
            })
        };
        let line = text.lines().find(of)?;
        Some(line.rsplit(' ').next().unwrap().to_owned())
    }

    /// Waits until metrics of `vm1` have these values.
    fn expect(&self, values: &[(&str, &str, u64)]) {
        for (name, label, value) in values {
            let mut last = None;
            let end = std::time::Instant::now() + Duration::from_mins(1);
            while last != Some(value.to_string()) {
                assert!(std::time::Instant::now() < end, "{name} {label} is {last:?}, not {value}");
                last = self.value(name, "vm1", label);
            }
        }
    }
}

#[test]
fn metrics_are_what_the_vms_did_and_end_with_them() {
    let gpu = Gpu::start();
    let node = gpu.node(&format!("unix:{}", gpu.metrics_socket().display()));
    let (first, second) = (gpu.serve("vm1", Some("1G")), gpu.serve("vm2", Some("2G")));
    let mut guest = gpu.attach("vm1", 0);
    let p = allocate(&mut guest, PART);
    copy_in(&mut guest, 0, p, &[7; 1000]);
    read(&mut guest, p, 24);
    load(&mut guest, 1);
    function(&mut guest, 1, "digit");
    for _ in 0..3 {
        launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(p, &[1]));
    }
    assert_eq!(ask_for(&mut guest, 2 * GIB), OUT_OF_MEMORY);
    let used = gpu.charged("vm1");
    assert!(used > CONTEXT + PART);
    gpu.expect(&[
        ("vgpu_memory_limit_bytes", "", GIB),
        ("vgpu_memory_used_bytes", "", used),
        ("vgpu_share_weight", "", 1),
        ("vgpu_connected", "", 1),
        ("vgpu_sessions", "", 1),
        ("vgpu_launches_total", "", 3),
        ("vgpu_copied_bytes_total", "direction=\"h2d\"", 1000),
        ("vgpu_copied_bytes_total", "direction=\"d2h\"", 24),
        ("vgpu_out_of_memory_total", "", 1),
        ("vgpu_sessions_lost_total", "reason=\"operator\"", 0),
        // On a busy machine the node process may have been silent.
        ("vgpu_gate_fallbacks_total", "", gpu.slot("vm1").fallbacks()),
        ("vgpu_slice_overrun_seconds_count", "", 0),
    ]);
    let slot = gpu.slot("vm1");
    let (uuid, device) = (slot.gpu().uuid().to_string(), slot.device_uuid().to_string());
    let text = gpu.scrape();
    let info = format!("\nvgpu_info{{vm=\"vm1\",device_uuid=\"{device}\",UUID=\"{uuid}\"}} 1\n");
    assert!(text.contains(&info), "{text}");
    assert!(text.contains(&format!("\nvgpu_gpu_memory_bytes{{UUID=\"{uuid}\"}} {}\n", 6 * GIB)), "{text}");
    let promised = format!("\nvgpu_gpu_memory_promised_bytes{{UUID=\"{uuid}\"}} {}\n", 3 * GIB);
    assert!(text.contains(&promised), "{text}");

    // Both formats have the same values.
    let answer = exchange(gpu.connect(), get("/metrics", OPEN_METRICS).as_bytes());
    assert!(answer.head.contains("application/openmetrics-text; version=1.0.0"), "{}", answer.head);
    assert!(answer.body.ends_with("\n# EOF\n") && answer.body.contains("# UNIT vgpu_wait_seconds seconds\n"));
    let values = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_seconds"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(values(&answer.body), values(&gpu.scrape()));

    // An endless kernel: while it is alone its time moves, and beside another VM it makes that wait.
    let time = |vm| gpu.value("vgpu_gpu_time_seconds_total", vm, "").unwrap().parse::<f64>().unwrap();
    let start = (std::time::Instant::now(), time("vm1"));
    function(&mut guest, 2, "endless");
    launch(&mut guest, Launch { function: 2, ..LAUNCH }, &params(0, &[]));
    guest.echo();
    until("its time moves", || time("vm1") > start.1 + 0.5);
    assert!(time("vm1") - start.1 <= start.0.elapsed().as_secs_f64() + 0.4, "it is no faster than the clock");
    let mut other = gpu.attach("vm2", 0);
    load(&mut other, 1);
    function(&mut other, 1, "digit");
    let q = allocate(&mut other, PART);
    until("the other has waited", || {
        launch(&mut other, Launch { function: 1, ..LAUNCH }, &params(q, &[1]));
        read(&mut other, q, 4);
        gpu.value("vgpu_wait_seconds_total", "vm2", "").is_some_and(|waited| waited != "0.0")
    });
    gpu.end_session("vm1");
    gpu.expect(&[
        ("vgpu_sessions_lost_total", "reason=\"operator\"", 1),
        ("vgpu_sessions_lost_total", "reason=\"worker\"", 0),
        ("vgpu_sessions", "", 0),
        ("vgpu_memory_used_bytes", "", 0),
        ("vgpu_launches_total", "", 4),
    ]);
    // The slice had an end, after which the kernel ran on for more than the shortest bucket.
    let overruns = |part, label| {
        let name = format!("vgpu_slice_overrun_seconds_{part}");
        gpu.value(&name, "vm1", label).unwrap().parse::<u64>().unwrap()
    };
    until("its overrun is counted", || overruns("count", "") > overruns("bucket", "le=\"0.005\""));
    gpu.expect(&[("vgpu_slice_overrun_seconds_bucket", "le=\"+Inf\"", overruns("count", ""))]);

    // The next device in the slot is another VM's, and starts anew.
    let last = time("vm1");
    assert!(last > 0.0);
    first.end();
    until("the VM is gone", || !gpu.scrape().contains("vm=\"vm1\""));
    let third = gpu.serve("vm3", Some("1G"));
    assert_eq!(gpu.slot("vm3").index(), 0);
    until("it is known", || gpu.scrape().contains("vm=\"vm3\""));
    for (name, zero) in [("vgpu_launches_total", "0"), ("vgpu_gpu_time_seconds_total", "0.0")] {
        assert_eq!(gpu.value(name, "vm3", "").as_deref(), Some(zero), "{name}");
        assert_ne!(gpu.value(name, "vm2", "").as_deref(), Some(zero), "{name}");
    }
    other.detach();
    third.end();
    second.end();
    until("no VM is left", || !gpu.scrape().contains("vm=\""));
    let mode = std::fs::metadata(gpu.metrics_socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it is this user's");
    node.end();
    assert!(!gpu.metrics_socket().exists());
}

/// A client that sends nothing, half a request or no HTTP, or reads nothing, keeps nobody from the metrics.
#[test]
fn slow_clients_and_rubbish_keep_no_scraper_waiting() {
    let gpu = Gpu::start();
    let node = gpu.node(&format!("unix:{}", gpu.metrics_socket().display()));
    let refused = |request: &str| exchange(gpu.connect(), request.as_bytes()).head;
    assert!(refused("GET / HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("HTTP/1.1 404 "));
    let post = refused("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("allow: GET, HEAD"), "{post}");
    let long = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "x".repeat(20_000));
    assert!(refused(&long).starts_with("HTTP/1.1 431 "), "{}", refused(&long));
    assert!(refused(&"\u{1f980}\r\n".repeat(20)).starts_with("HTTP/1.1 400 "));
    let head = exchange(gpu.connect(), b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(head.head.starts_with("HTTP/1.1 200 ") && head.body.is_empty());

    // Whoever asks in a loop is not served before the arbiters.
    let threads =
        std::fs::read_dir(format!("/proc/{}/task", node.process())).unwrap().map(|thread| thread.unwrap());
    let stats = threads.map(|thread| std::fs::read_to_string(thread.path().join("stat")).unwrap());
    let stat = stats.into_iter().find(|stat| stat.contains("(metrics)")).unwrap();
    assert_eq!(stat.rsplit(") ").next().unwrap().split(' ').nth(16), Some("10"), "{stat}");

    let mut held = Vec::new();
    for number in 0..200 {
        let mut client = gpu.connect();
        match number % 4 {
            0 => {}
            1 => client.write_all(b"GET /metrics HTTP/1.1\r\nHo").unwrap(),
            2 => client.write_all(get("/metrics", "*/*").as_bytes()).unwrap(),
            _ => client.write_all(&[0; 100]).unwrap(),
        }
        held.push(client);
        if number % 10 == 0 {
            assert!(gpu.scrape().contains("# TYPE vgpu_info gauge\n"));
        }
    }
    assert!(gpu.scrape().contains("# TYPE vgpu_info gauge\n"));
    // Even a client that came last is not served for ever.
    let mut silent = gpu.connect();
    silent.write_all(b"GET").unwrap();
    silent.set_read_timeout(Some(Duration::from_mins(2))).unwrap();
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).expect("it is closed");
    drop(held);
    node.end();
}

#[test]
fn a_port_in_use_is_said_once_and_keeps_no_arbiter_from_working() {
    let gpu = Gpu::start();
    let _device = gpu.serve("vm1", Some("1G"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut node = gpu.node(&address);
    let said = node.error();
    assert!(said.contains("NO METRICS are served at http://127.0.0.1:"), "{said}");
    let slot = gpu.slot("vm1");
    let beats = || slot.gpu().node_word(0).load(std::sync::atomic::Ordering::Relaxed);
    let before = beats();
    until("the arbiter goes on", || beats() > before + 2);
    drop(taken);
    until("the port is used as soon as it is free", || TcpStream::connect(&address).is_ok());
    let answer = exchange(TcpStream::connect(&address).unwrap(), get("/metrics", "*/*").as_bytes());
    assert!(answer.body.contains("vgpu_sessions{vm=\"vm1\""), "{}", answer.body);
    let (printed, errors) = node.end_with_errors();
    assert!(
        errors.ends_with(&format!("metrics are served at http://{address}/metrics from now on\n")),
        "{errors}"
    );
    assert!(printed.is_empty() && errors.lines().count() == 1, "{printed}{errors}");
}

#[test]
fn a_wrong_address_is_refused() {
    let output = crate::program::program().args(["node", "--metrics", "here"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("expected IP:PORT such as 127.0.0.1:19400"), "{said}");
}
