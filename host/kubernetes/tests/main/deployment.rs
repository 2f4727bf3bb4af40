//! The kustomize folder: `kubectl` builds it, and what it builds fits the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes").join(name)
}

/// Returns the objects that kubectl builds of a folder. No cluster is asked.
fn objects(name: &str) -> Vec<Value> {
    let built = Command::new("kubectl").arg("kustomize").arg(folder(name)).output().expect("kubectl");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    // kubectl's own decoder of Kubernetes' types reads the objects.
    let mut decode = Command::new("kubectl")
        .args(["label", "--local", "--filename=-", "--output=json", "tried=yes"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut decode.stdin.take().unwrap(), &built.stdout).unwrap();
    let decoded = decode.wait_with_output().unwrap();
    assert!(decoded.status.success());
    let objects = serde_json::Deserializer::from_slice(&decoded.stdout).into_iter::<Value>();
    objects
        .map(Result::unwrap)
        .flat_map(|object| match &object["items"] {
            Value::Array(items) => items.clone(),
            _ => vec![object],
        })
        .collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects
        .iter()
        .find(|object| object["kind"] == kind)
        .unwrap_or_else(|| panic!("no {kind} in {objects:#?}"))
}

#[test]
fn the_daemon_set_has_what_the_plugin_uses() {
    let objects = objects("base");
    let set = of_kind(&objects, "DaemonSet");
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["hostPID"], true, "nsenter needs the host's first process");
    assert_eq!(pod["automountServiceAccountToken"], false, "it asks no API server");
    let account = of_kind(&objects, "ServiceAccount");
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
    let [container] = &pod["containers"].as_array().unwrap()[..] else { panic!("{pod:#}") };
    let mounts = container["volumeMounts"].as_array().unwrap();
    let volumes = pod["volumes"].as_array().unwrap();
    let mut paths: Vec<(&str, &str)> = Vec::new();
    for mount in mounts {
        let volume =
            volumes.iter().find(|volume| volume["name"] == mount["name"]).expect("the mount's volume");
        let host = volume["hostPath"]["path"].as_str().unwrap_or("a ConfigMap");
        paths.push((mount["mountPath"].as_str().unwrap(), host));
    }
    paths.sort_unstable();
    // The program's defaults, under the same paths: instances of the host read and make them.
    assert_eq!(
        paths,
        [
            ("/etc/vgpu-device", "/etc/vgpu-device"),
            ("/etc/vgpu-device-plugin", "a ConfigMap"),
            ("/run/vgpu-device", "/run/vgpu-device"),
            ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet/device-plugins"),
            ("/var/lib/kubelet/pod-resources", "/var/lib/kubelet/pod-resources"),
        ]
    );
    let map = of_kind(&objects, "ConfigMap");
    let profiles = map["data"]["profiles.toml"].as_str().unwrap();
    assert_eq!(profiles, include_str!("../../../../packaging/kubernetes/base/profiles.toml"));
    let image = container["image"].as_str().unwrap();
    assert!(image.ends_with(concat!("/vgpu-device-plugin:", env!("CARGO_PKG_VERSION"))), "{image}");
    let namespace = of_kind(&objects, "Namespace");
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "privileged");
    for object in [set, account, map] {
        assert_eq!(object["metadata"]["namespace"], namespace["metadata"]["name"]);
    }
}

#[test]
fn the_example_asks_for_a_resource_that_the_profiles_have() {
    let objects = objects("example");
    let pod = of_kind(&objects, "Pod");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["vgpu-run/8g"], "1");
    let words = container["command"].to_string();
    assert!(words.contains("VGPU_QEMU_ARGUMENTS"), "{words}");
    assert_eq!(pod["spec"]["securityContext"]["supplementalGroups"], serde_json::json!([107]));
}
