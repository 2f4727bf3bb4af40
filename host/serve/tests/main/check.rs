//! Tests of `vgpu-device check`: every cause of its catalogue is produced on a host, and must be named.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::host::Host;
use crate::program::program;

const GPU: &str = "GPU-00112233-4455-6677-8899-aabbccdd0001";
const INSTANCE: &str = "MIG-00112233-4455-6677-8899-aabbccdd0064";
const SHARED: [&str; 4] =
    ["-object", "memory-backend-memfd,id=m,size=1G", "-machine", "q35,memory-backend=m"];

/// Id of a cause, and the function that produces it on a good host.
type Made = (&'static str, fn(&mut Host));

/// Every cause of the catalogue, and the function that produces it.
#[rustfmt::skip]
const CAUSES: &[Made] = &[
    ("driver/module-missing", |host| {
        host.variable("FAKE_CUINIT", "100").remove("proc/driver/nvidia/version");
    }),
    ("driver/library-missing", |host| { host.option("--libcuda", "/does/not/exist.so"); }),
    ("driver/version-mismatch", |host| { host.variable("FAKE_CUINIT", "803"); }),
    ("driver/init-failed", |host| { host.variable("FAKE_CUINIT", "999"); }),
    ("driver/too-old", |host| { host.variable("FAKE_CUDA", "11080"); }),
    ("driver/crashed", |host| { host.variable("FAKE_CUINIT", "crash"); }),
    ("driver/does-not-answer", |host| {
        host.variable("FAKE_CUINIT", "hang").option("--library-limit", "300ms");
    }),
    ("gpu/no-gpu", |host| { host.variable("FAKE_GPUS", "0"); }),
    ("gpu/gpu-absent", |host| { host.option("--gpu", "GPU-ffffffff-4455-6677-8899-aabbccdd0001"); }),
    ("gpu/gpu-ambiguous", |host| { host.variable("FAKE_GPUS", "2"); }),
    ("gpu/memory-short", |host| { host.option("--memory", "81G"); }),
    ("room/promised", |host| { host.promise(74 << 30).option("--memory", "8G"); }),
    ("compute-mode/exclusive-process", |host| { host.variable("FAKE_MODE", "3"); }),
    ("compute-mode/prohibited", |host| { host.variable("FAKE_MODE", "2"); }),
    ("mps/running", |host| { host.process(99, "nvidia-cuda-mps", &["nvidia-cuda-mps-control", "-d"]); }),
    ("mig/whole-gpu", |host| { host.variable("FAKE_MIG", "1").variable("FAKE_INSTANCES", "2"); }),
    ("mig/no-instance", |host| { host.variable("FAKE_MIG", "1"); }),
    ("persistence/off", |host| { host.variable("FAKE_PERSISTENCE", "0"); }),
    ("cublas/library-missing", |host| { host.option("--libcublas", "/does/not/exist.so"); }),
    ("cublas/unloadable", |host| {
        let text = host.path("text.so");
        host.file("text.so", "not a library").option("--libcublas", text);
    }),
    ("memlock/limited", |host| {
        let limits = "Max locked memory         8388608              8388608              bytes\n";
        host.file("proc/self/limits", limits);
    }),
    ("huge-pages/small-pages", |host| {
        let pages = "always within_size advise [never] deny force\n";
        host.file("sys/kernel/mm/transparent_hugepage/shmem_enabled", pages);
    }),
    ("numa/remote", |host| { host.file("proc/self/status", "Cpus_allowed_list:\t0-1\n"); }),
    ("socket/folder-missing", |host| { host.option("--bus", "vfio-user:/does/not/exist/socket"); }),
    ("socket/folder-open", |host| mode(host, 0o777)),
    ("socket/qemu-excluded", |host| {
        host.file("etc/passwd", "libvirt-qemu:x:64055:106::/var/lib/libvirt:/usr/sbin/nologin\n");
    }),
    ("socket/folder-closed", |host| {
        mode(host, 0o700);
        host.option("--group", "4242");
    }),
    ("qemu/qemu-missing", |host| { host.option("--qemu", "/does/not/exist"); }),
    ("qemu/too-old", |host| { host.qemu("10.0.9", true); }),
    ("qemu/no-vfio-user", |host| { host.qemu("10.1.0", false); }),
    ("vm/ram-private", |host| { host.vm(&["-m", "1G"]); }),
    ("vm/balloon", |host| { host.vm(&[&SHARED[..], &["-device", "virtio-balloon-pci,id=b"]].concat()); }),
    ("vm/virtio-mem", |host| {
        host.vm(&[&SHARED[..], &["-device", "virtio-mem-pci,id=v,memdev=x"]].concat());
    }),
];

fn mode(host: &Host, mode: u32) {
    fs::set_permissions(host.path("run"), fs::Permissions::from_mode(mode)).unwrap();
}

fn check<'a>(report: &'a Value, link: &str) -> &'a Value {
    report["checks"].as_array().unwrap().iter().find(|check| check["id"] == link).unwrap()
}

#[test]
fn every_cause_of_the_catalogue_is_made_and_named_with_its_remedy() {
    let list = program().args(["check", "--list", "--verbose"]).output().unwrap();
    let mut link = "";
    let mut known = Vec::new();
    let list = String::from_utf8(list.stdout).unwrap();
    for line in list.lines() {
        let word = line.split_whitespace().next().unwrap();
        if line.starts_with(' ') { known.push(format!("{link}/{word}")) } else { link = word }
    }
    let made: Vec<&str> = CAUSES.iter().map(|(cause, _)| *cause).collect();
    for cause in &known {
        assert!(made.contains(&cause.as_str()), "nothing makes {cause}");
    }
    assert_eq!(known.len(), made.len());
    for (cause, make) in CAUSES {
        let mut host = Host::new();
        make(&mut host);
        let report = host.report();
        assert_eq!(report["issues"], serde_json::json!([cause]), "{report:#}");
        let (link, id) = cause.split_once('/').unwrap();
        let found = check(&report, link);
        assert_eq!(found["cause"], id);
        assert!(found["why"].is_string() && found["fix"]["text"].is_string(), "{found:#}");
    }
}

#[test]
fn a_good_host_is_ready() {
    let mut host = Host::new();
    host.vm(&SHARED);
    let report = host.report();
    assert_eq!(report["issues"], serde_json::json!([]), "{report:#}");
    assert_eq!(report["headline"], "Ready: a VM can get 8 GiB of Fake 1.");
    assert_eq!(report["versions"]["driver"], "580.65.06");
    assert_eq!(check(&report, "vm")["found"], "process 4711 shares its memory, which keeps its size");
    assert!(report["checks"].as_array().unwrap().iter().all(|check| check["status"] == "pass"), "{report:#}");
    let output = host.check(&["--verbose"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("[\u{2713}] NVIDIA driver         580.65.06, CUDA 13.0\n"), "{text}");
    assert!(text.contains("at 0000:a1:00.0") && text.trim_end().ends_with("of Fake 1."), "{text}");
}

#[test]
fn a_gpu_or_an_instance_is_chosen_by_its_uuid() {
    let mut host = Host::new();
    host.variable("FAKE_GPUS", "2").option("--gpu", GPU);
    let report = host.report();
    assert!(check(&report, "gpu")["found"].as_str().unwrap().starts_with(GPU), "{report:#}");
    host.variable("FAKE_MIG", "1").variable("FAKE_INSTANCES", "1").option("--gpu", INSTANCE);
    let report = host.report();
    assert_eq!(report["issues"], serde_json::json!([]), "{report:#}");
    assert!(check(&report, "mig")["found"].as_str().unwrap().ends_with(INSTANCE));
    host.option("--memory", "11G");
    assert_eq!(host.report()["issues"], serde_json::json!(["gpu/memory-short"]), "an instance has 10 GiB");
}

#[test]
fn without_a_gpu_links_of_nvidia_are_left_out() {
    let mut host = Host::new();
    host.option("--executor", "soft").option("--libcuda", "/does/not/exist");
    let report = host.report();
    assert_eq!(report["verdict"], "works", "{report:#}");
    assert_eq!(check(&report, "driver")["status"], "skip");
    assert_eq!(check(&report, "qemu")["status"], "pass");
}

#[test]
fn the_last_line_names_every_broken_link() {
    let mut host = Host::new();
    host.option("--libcublas", "/does/not/exist.so").option("--qemu", "/does/not/exist");
    let output = String::from_utf8(host.check(&["--color", "never"]).stdout).unwrap();
    let last = output.trim_end().lines().last().unwrap();
    assert!(
        last.starts_with("Broken: cuBLAS: ") && last.contains(" Also broken: QEMU: there is no /"),
        "{output}"
    );
    // QEMU is looked at without a bus too, and not where none connects.
    host.options.retain(|(name, _)| *name != "--bus");
    assert_eq!(check(&host.report(), "qemu")["cause"], "qemu-missing");
    host.option("--bus", "sim:/tmp/x");
    assert_eq!(check(&host.report(), "qemu")["status"], "skip");
}

#[test]
fn it_is_said_who_may_connect() {
    let mut host = Host::new();
    let found = |host: &Host| check(&host.report(), "socket")["found"].as_str().unwrap().to_owned();
    assert!(found(&host).ends_with("; only this user may connect"), "{}", found(&host));
    host.file("etc/passwd", "libvirt-qemu:x:64055:106::/:/bin/false\n").file("etc/group", "kvm:x:106:\n");
    assert!(found(&host).ends_with("and libvirt's QEMU runs as libvirt-qemu"), "{}", found(&host));
    let report = host.report();
    assert!(
        check(&report, "socket")["fix"]["text"].as_str().unwrap().contains("group = \"kvm\""),
        "{report:#}"
    );
    host.option("--group", "106");
    assert!(found(&host).ends_with("; the group kvm may connect"), "{}", found(&host));
    host.file("etc/libvirt/qemu.conf", "# The user\nuser = \"root\"\n")
        .options
        .retain(|(name, _)| *name != "--group");
    assert!(found(&host).ends_with("; only this user may connect"), "{}", found(&host));
    // A directory that is not there is made by serve.
    host.option("--bus", format!("vfio-user:{}", host.path("run/vm1/device").display()));
    assert!(found(&host).contains("vm1, which serve makes;"), "{}", found(&host));
}

#[test]
fn strictly_a_warning_is_a_failure() {
    let mut host = Host::new();
    host.variable("FAKE_PERSISTENCE", "0");
    assert_eq!(host.check(&[]).status.code(), Some(0));
    assert_eq!(host.check(&["--strict"]).status.code(), Some(1));
}
