//! Debian's Prometheus scrapes the node process, its `promtool` has nothing against the metrics, and each
//! query of the dashboard has an answer.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;
use vgpu_host_testing::commands::{LAUNCH, allocate, copy_in, function, launch, load, params, read};
use vgpu_host_testing::guest::until;
use vgpu_wire::body::launch::Launch;

use crate::metrics::exchange;
use crate::shares::{Gpu, PART};

/// A program that ends when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn debians(name: &str) -> PathBuf {
    vgpu_artifacts::fetch("prometheus").unwrap().join("usr/bin").join(name)
}

/// Returns an address of this machine that nobody listens at. Its port is none that the system gives to those
/// who ask for any, and each test process asks for other ones, so that nobody takes it in the meantime.
fn free_address() -> String {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 2000) as u16 * 10;
    let mut addresses =
        std::iter::repeat_with(|| format!("127.0.0.1:{}", first + TAKEN.fetch_add(1, Ordering::Relaxed)));
    addresses.find(|address| TcpListener::bind(address).is_ok()).unwrap()
}

/// A Prometheus that scrapes an address every two seconds.
struct Prometheus {
    address: String,
    _process: Running,
}

impl Prometheus {
    fn start(folder: &Path, scraped: &str) -> Self {
        let address = free_address();
        let configuration = folder.join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 2s, scrape_timeout: 2s }}\n\
             scrape_configs: [{{ job_name: vgpu, static_configs: [{{ targets: ['{scraped}'] }}] }}]\n"
        );
        std::fs::write(&configuration, text).unwrap();
        let process = Command::new(debians("prometheus"))
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--log.level=error"])
            .spawn()
            .unwrap();
        let prometheus = Self { address, _process: Running(process) };
        until("Prometheus listens", || TcpStream::connect(&prometheus.address).is_ok());
        prometheus
    }

    /// Returns the results of a query.
    fn query(&self, query: &str) -> Vec<Value> {
        let mut request = "GET /api/v1/query?query=".to_owned();
        for byte in query.bytes() {
            write!(request, "%{byte:02x}").unwrap();
        }
        request.push_str(" HTTP/1.0\r\nHost: a\r\n\r\n");
        let answer = exchange(TcpStream::connect(&self.address).unwrap(), request.as_bytes());
        // It may still be starting.
        let Ok(answer) = serde_json::from_str::<Value>(&answer.body) else { return Vec::new() };
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// Returns the value of a query that has one result.
    fn value(&self, query: &str) -> String {
        let result = self.query(query);
        result.first().map(|result| result["value"][1].as_str().unwrap().to_owned()).unwrap_or_default()
    }
}

/// Returns the queries of the dashboard that this endpoint is to answer, with their variables replaced.
fn queries() -> Vec<String> {
    let text = include_str!("../../share/grafana-dashboard.json");
    let dashboard: Value = serde_json::from_str(text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    let own = expressions.filter(|expression| !expression.contains("DCGM"));
    own.map(|expression| {
        let query = expression.replace("$__rate_interval", "10s");
        query.replace("$gpu", ".*").replace("$vm", ".*")
    })
    .collect()
}

#[test]
fn a_real_prometheus_scrapes_what_promtool_finds_clean() {
    let gpu = Gpu::start();
    let address = free_address();
    let _node = gpu.node(&address);
    let (_first, _second) = (gpu.serve("vm1", Some("1G")), gpu.serve("vm2", Some("2G")));
    let folder = tempfile::tempdir().unwrap();
    let prometheus = Prometheus::start(folder.path(), &address);
    let mut guest = gpu.attach("vm1", 0);
    let p = allocate(&mut guest, PART);
    copy_in(&mut guest, 0, p, &[7; 1000]);
    load(&mut guest, 1);
    function(&mut guest, 1, "digit");
    launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(p, &[1]));
    read(&mut guest, p, 4);
    until("it is scraped", || prometheus.value("up") == "1");
    until("the launch is known", || prometheus.value("vgpu_launches_total{vm=\"vm1\"}") == "1");
    let copied = "vgpu_copied_bytes_total{vm=\"vm1\",direction=\"h2d\"}";
    until("the bytes are known", || prometheus.value(copied) == "1000");
    // As joins with DCGM's metrics are made.
    let joined = "vgpu_memory_limit_bytes * on (vm, UUID) group_left (device_uuid) vgpu_info{vm=\"vm2\"}";
    let mut result = Vec::new();
    // After a scrape that failed there are no values until the next one.
    until("the join has a result", || {
        result = prometheus.query(joined);
        !result.is_empty()
    });
    assert_eq!(result.len(), 1, "{result:?}");
    assert_eq!(result[0]["metric"]["device_uuid"], gpu.slot("vm2").device_uuid().to_string());
    assert_eq!(result[0]["value"][1], (2u64 << 30).to_string());
    let queries = queries();
    assert!(queries.len() > 12);
    for query in queries {
        until(&format!("{query} has a result"), || !prometheus.query(&query).is_empty());
    }

    let text = exchange(TcpStream::connect(&address).unwrap(), b"GET /metrics HTTP/1.0\r\n\r\n").body;
    assert!(text.contains("vgpu_launches_total{vm=\"vm1\""), "{text}");
    let mut promtool = Command::new(debians("promtool"));
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}{text}", String::from_utf8_lossy(&said));
}
