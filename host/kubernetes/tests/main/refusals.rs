//! What is refused, and with which words.

use tonic::Code;

use crate::kubelet::{Kubelet, until};
use crate::node::{Node, SMALL, registered};

#[tokio::test]
async fn profiles_that_do_not_fit_are_refused_with_who_holds_what() {
    let mut node = Node::new(SMALL);
    let (fits, said) = node.check();
    assert!(fits && said.contains("vgpu-run/small 2\n"), "{said}");
    node.serve_other("vm1", "2G");
    node.configure(&SMALL.replace("count = 2", "count = 3"));
    let (fits, said) = node.check();
    assert!(!fits);
    let said = said.lines().last().unwrap();
    assert!(
        said.contains(
            "cannot promise 6144 MiB: of 7680 MiB for VMs 5632 MiB are free, because vm1 holds 2048 MiB"
        ) && said.contains("need 3 x 2048 MiB for small")
            && said.contains("profiles.toml"),
        "{said}"
    );
}

#[tokio::test]
async fn a_node_without_the_gpu_or_its_driver_is_refused() {
    let node = Node::new(SMALL);
    node.configure(&format!("{SMALL}gpu = \"GPU-00112233-4455-6677-8899-aabbccddeeff\"\n"));
    let (fits, said) = node.check();
    let named = said.contains("profile small: this node has no GPU-00112233") && said.contains("it has GPU-");
    assert!(!fits && named, "{said}");
    node.configure(SMALL);
    let text = std::fs::read_to_string(node.path("profiles.toml")).unwrap();
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("libcuda")).collect();
    std::fs::write(
        node.path("profiles.toml"),
        text.join("\n").replace("[settings]", "[settings]\nlibcuda = \"/no/libcuda.so\""),
    )
    .unwrap();
    let (fits, said) = node.check();
    assert!(!fits && said.contains("`vgpu-device gpus") && said.contains("/no/libcuda.so"), "{said}");
}

#[tokio::test]
async fn a_call_that_makes_no_sense_is_refused() {
    let (node, _kubelet, mut plugin) = registered(SMALL).await;
    let (one, other) = (node.id("small", 0), node.id("small", 1));
    let error = plugin.allocate(&["other"]).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert_eq!(error.message(), "profile small has no device \"other\"");
    assert_eq!(plugin.pre_start("../x").await.unwrap_err().code(), Code::NotFound);
    let error = plugin.allocate(&[&one, &other]).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("asks for 2 of profile small"), "{}", error.message());
    assert_eq!(node.orders(), Vec::<String>::new());
}

/// The kubelet shows the words of a refusal in the pod's events.
#[tokio::test]
async fn an_instance_that_does_not_start_says_why() {
    let (mut node, kubelet, mut plugin) = registered(SMALL).await;
    let one = node.id("small", 0);
    node.serve_other("vm1", "6G");
    kubelet.add_pod("vgpu-run/small", &one);
    plugin.allocate(&[&one]).await.unwrap();
    until("the kubelet's list is known", || node.log().contains("healthy")).await;
    let error = plugin.pre_start(&one).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let said = error.message();
    assert!(
        said.starts_with(&format!("device {one} of profile small for "))
            && said.contains("is not ready: ")
            && said.contains(
                "cannot promise 2048 MiB: of 7680 MiB for VMs 1536 MiB are free, because vm1 holds"
            ),
        "{said}"
    );
    // The kubelet tries again until there is room, which is no news.
    let why = said.split_once("is not ready: ").unwrap().1.to_owned();
    until("it is unhealthy", || node.log().contains(&format!("unhealthy: {why}"))).await;
    let said_of_health = |log: &str| log.matches("healthy").count();
    let before = said_of_health(&node.log());
    for _ in 0..3 {
        plugin.pre_start(&one).await.unwrap_err();
        node.until_looks(2).await;
    }
    let log = node.log();
    assert_eq!((log.matches(" not ready: ").count(), said_of_health(&log)), (1, before), "{log}");
    node.end_others();
    plugin.pre_start(&one).await.unwrap();
    drop(node.vm(&one));
}

#[tokio::test]
async fn a_systemd_that_does_not_answer_is_told_and_what_runs_goes_on() {
    let (node, kubelet, mut plugin) = registered(SMALL).await;
    let (one, other) = (node.id("small", 0), node.id("small", 1));
    node.fail("restart", true);
    let error = plugin.allocate(&[&one]).await.unwrap_err();
    let words = "`systemctl restart --no-block vgpu-device@";
    assert!(
        error.message().starts_with(words) && error.message().ends_with("Connection timed out"),
        "{error}"
    );
    node.fail("restart", false);
    kubelet.add_pod("vgpu-run/small", &one);
    plugin.allocate(&[&one]).await.unwrap();
    plugin.pre_start(&one).await.unwrap();
    plugin.until_health(&[(&one, true), (&other, true)]).await;
    let process = node.process(&one);

    // Neither who has what nor what runs is known: nothing ends.
    node.fail("show", true);
    until("the log says it", || node.log().contains("Failed to show: Connection timed out")).await;
    node.fail("show", false);
    kubelet.tells_pods(false);
    until("the log says it", || node.log().contains("which pods have devices: it answers")).await;
    // An instance that nobody has does not end either.
    plugin.allocate(&[&other]).await.unwrap();
    plugin.pre_start(&other).await.unwrap();
    // At 50 ms and more each, this is past the grace of 1 s.
    node.until_looks(40).await;
    assert!(!node.orders().contains(&format!("stop {other}")));
    kubelet.tells_pods(true);
    node.until_served(&other, false).await;
    assert_eq!(node.process(&one), process);
    drop(node.vm(&one));
}

/// With an empty list the node's capacity would be 0, and pods would be refused that it has room for.
#[tokio::test]
async fn a_plugin_that_has_not_seen_its_devices_yet_does_not_register() {
    let mut node = Node::new(SMALL);
    let ids = [node.id("small", 0), node.id("small", 1)];
    let mut kubelet = Kubelet::new(&node.path("kubelet"));
    kubelet.start();
    node.fail("show", true);
    node.start_plugin();
    node.until_looks(10).await;
    assert!(!node.log().contains("registered"), "{}", node.log());
    node.fail("show", false);
    let mut plugin = kubelet.registration().await;
    assert_eq!(plugin.next_health().await, ids.map(|id| (id, true)).into());
}
