//! The kubelet and the plugin start anew while VMs run.

use rustix::process::Signal;

use crate::kubelet::{Kubelet, until};
use crate::node::{Node, SMALL, registered};

#[tokio::test]
async fn a_kubelet_that_starts_anew_is_registered_with_and_takes_nothing_from_a_vm() {
    let (node, mut kubelet, mut plugin) = registered(SMALL).await;
    let (one, other) = (node.id("small", 0), node.id("small", 1));
    kubelet.add_pod("vgpu-run/small", &one);
    plugin.allocate(&[&one]).await.unwrap();
    plugin.pre_start(&one).await.unwrap();
    let (vm, process) = (node.vm(&one), node.process(&one));
    plugin.until_health(&[(&one, true), (&other, true)]).await;

    kubelet.stop();
    // It lists no pod until it has heard of them from the API server.
    kubelet.remove_pods();
    kubelet.start();
    let mut plugin = kubelet.registration().await;
    plugin.until_health(&[(&one, true), (&other, true)]).await;
    // The grace is over when another instance has been started and ended.
    plugin.allocate(&[&other]).await.unwrap();
    until("the other has ended", || node.orders().contains(&format!("stop {other}"))).await;
    assert_eq!(node.process(&one), process);
    node.until_served(&one, true).await;
    drop(vm);
    node.until_served(&one, false).await;
}

#[tokio::test]
async fn a_plugin_that_starts_anew_keeps_what_runs() {
    let (mut node, mut kubelet, mut plugin) = registered(SMALL).await;
    let (one, other) = (node.id("small", 0), node.id("small", 1));
    for id in [&one, &other] {
        kubelet.add_pod("vgpu-run/small", id);
        plugin.allocate(&[id]).await.unwrap();
        plugin.pre_start(id).await.unwrap();
    }
    let process = node.process(&one);
    for signal in [Signal::KILL, Signal::TERM] {
        let in_order = node.end_plugin(signal);
        assert_eq!(in_order, signal == Signal::TERM, "{}", node.log());
        plugin.until_gone().await;
        assert!(node.path(&format!("run/{one}/vm/device")).exists());
        if signal == Signal::TERM {
            kubelet.remove_pod(&other);
        }
        node.start_plugin();
        plugin = kubelet.registration().await;
        plugin.until_health(&[(&one, true), (&other, true)]).await;
    }
    // The pod of the other ended while there was no plugin.
    node.until_served(&other, false).await;
    assert_eq!(node.process(&one), process);
    assert!(node.path(&format!("run/{one}/vm/device")).exists());
    // The new process knows that a container has been started with it.
    plugin.pre_start(&one).await.unwrap();
    assert_ne!(node.process(&one), process);
}

/// A device whose profile was removed serves its pod until the pod ends. Then it ends, and its configuration
/// is removed.
#[tokio::test]
async fn a_profile_that_is_gone_ends_with_its_pods() {
    // It fills the GPU, so that there is no room for the new profile until it ends.
    let (mut node, mut kubelet, mut plugin) =
        registered("[[profile]]\nname = \"large\"\nmemory = \"7G\"\ncount = 1\n").await;
    let one = node.id("large", 0);
    kubelet.add_pod("vgpu-run/large", &one);
    plugin.allocate(&[&one]).await.unwrap();
    plugin.pre_start(&one).await.unwrap();
    let configuration = node.path(&format!("etc/{one}.toml"));
    assert!(configuration.exists());
    std::fs::write(node.path("etc/k8s-own.toml"), "# the operator's\n").unwrap();

    assert!(node.end_plugin(Signal::TERM));
    node.configure(&SMALL.replace("small", "tiny"));
    node.start_plugin();
    let mut plugin = kubelet.registration().await;
    assert_eq!(plugin.request.resource_name, "vgpu-run/tiny");
    let tiny = [node.id("tiny", 0), node.id("tiny", 1)];
    plugin.until_health(&[(&tiny[0], false), (&tiny[1], false)]).await;
    assert!(node.path(&format!("run/{one}/vm/device")).exists());
    kubelet.remove_pods();
    node.until_served(&one, false).await;
    plugin.until_health(&[(&tiny[0], true), (&tiny[1], true)]).await;
    until("its configuration is gone", || !configuration.exists()).await;
    assert!(node.path("etc/k8s-own.toml").exists());
}

/// The operator resizes a profile while a pod has a device of the old size.
#[tokio::test]
async fn a_profile_of_another_size_takes_nothing_from_what_runs() {
    let profile =
        |memory, count| format!("[[profile]]\nname = \"a\"\nmemory = \"{memory}\"\ncount = {count}\n");
    let (mut node, mut kubelet, mut plugin) = registered(&profile("4G", 1)).await;
    let [one, two, three] = [0, 1, 2].map(|index| node.id("a", index));
    kubelet.add_pod("vgpu-run/a", &one);
    plugin.allocate(&[&one]).await.unwrap();
    plugin.pre_start(&one).await.unwrap();
    let configuration = node.path(&format!("etc/{one}.toml"));
    let text = std::fs::read_to_string(&configuration).unwrap();

    assert!(node.end_plugin(Signal::TERM));
    node.configure(&profile("2G", 3));
    node.start_plugin();
    let mut plugin = kubelet.registration().await;
    // Of 7680 MiB for VMs it has 4096.
    plugin.until_health(&[(&one, true), (&two, true), (&three, false)]).await;
    // A crash would have it start again with what is in the file.
    assert_eq!(std::fs::read_to_string(&configuration).unwrap(), text);
    // Another container is another VM, which has the new size.
    plugin.pre_start(&one).await.unwrap();
    plugin.until_health(&[(&one, true), (&two, true), (&three, true)]).await;
    assert!(std::fs::read_to_string(&configuration).unwrap().contains("memory = \"2048M\""));
}

/// The plugin may be older than the kubelet, which may refuse it at first.
#[tokio::test]
async fn a_plugin_waits_for_its_kubelet() {
    let mut node = Node::new(SMALL);
    let mut kubelet = Kubelet::new(&node.path("kubelet"));
    node.start_plugin();
    until("the log says that there is no kubelet", || {
        node.log().contains("register profile small with the kubelet at")
            && node.log().contains("kubelet.sock")
    })
    .await;
    kubelet.refuse(1);
    kubelet.start();
    let mut plugin = kubelet.registration().await;
    plugin.until_health(&[(&node.id("small", 0), true), (&node.id("small", 1), true)]).await;
    assert!(node.log().contains("FailedPrecondition: the node is not ready"), "{}", node.log());
}
