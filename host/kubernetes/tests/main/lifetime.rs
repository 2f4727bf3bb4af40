//! The life of an instance: from the allocation of its device to the end of its pod.

use rustix::process::Signal;

use crate::kubelet::until;
use crate::node::{SMALL, registered};

#[tokio::test]
async fn a_pod_gets_an_instance_which_ends_with_it() {
    let (node, kubelet, mut plugin) = registered(SMALL).await;
    let (one, other) = (node.id("small", 0), node.id("small", 1));
    assert_eq!((&*plugin.request.version, &*plugin.request.resource_name), ("v1beta1", "vgpu-run/small"));
    assert!(plugin.request.options.unwrap().pre_start_required);
    plugin.until_health(&[(&one, true), (&other, true)]).await;

    kubelet.add_pod("vgpu-run/small", &one);
    let given = plugin.allocate(&[&one]).await.unwrap();
    let shown = node.path(&format!("run/{one}/vm")).display().to_string();
    let [mount] = &given.mounts[..] else { panic!("{given:?}") };
    assert_eq!((&mount.host_path, &mount.container_path, mount.read_only), (&shown, &shown, true));
    assert_eq!(given.envs["VGPU_DEVICE_SOCKET"], format!("{shown}/device"));
    let arguments = &given.envs["VGPU_QEMU_ARGUMENTS"];
    assert!(arguments.contains(&format!("\"path\":\"{shown}/device\"")), "{arguments}");
    assert!(arguments.contains("-m 1024M") && arguments.contains("vfio-user-pci"), "{arguments}");
    let [device] = &given.devices[..] else { panic!("{given:?}") };
    assert_eq!((&*device.host_path, &*device.permissions), ("/dev/null", "rw"));

    plugin.pre_start(&one).await.unwrap();
    drop(node.vm(&one));
    // Only the VM's socket is in the container, and nobody else's.
    let seen: Vec<_> = std::fs::read_dir(&shown).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(seen, ["device"]);
    assert!(!node.path(&format!("run/{other}")).exists());

    kubelet.remove_pods();
    node.until_served(&one, false).await;
    assert_eq!(node.orders().last().unwrap(), &format!("stop {one}"));
    assert!(plugin.allocate(&[&one]).await.is_ok(), "the next pod gets it");
}

/// The pod before has ended, and its instance is being stopped when the next pod gets the device.
#[tokio::test]
async fn the_end_of_one_pod_does_not_stop_the_instance_of_the_next() {
    let (node, kubelet, mut plugin) = registered(SMALL).await;
    let one = node.id("small", 0);
    node.slow_stops();
    plugin.allocate(&[&one]).await.unwrap();
    let [restart, stop, stopped] = ["restart", "stop", "stopped"].map(|order| format!("{order} {one}"));
    until("nobody has it", || node.orders().contains(&stop)).await;
    kubelet.add_pod("vgpu-run/small", &one);
    plugin.allocate(&[&one]).await.unwrap();
    until("the stop is done", || node.orders().contains(&stopped)).await;
    assert_eq!(node.orders(), [restart.clone(), stop, stopped, restart]);
    plugin.pre_start(&one).await.unwrap();
    drop(node.vm(&one));
}

/// A container that starts again has a VM that connects anew: to a process that knows nothing of the one
/// before.
#[tokio::test]
async fn a_container_that_starts_again_gets_a_new_instance() {
    let (node, kubelet, mut plugin) = registered(SMALL).await;
    let one = node.id("small", 0);
    kubelet.add_pod("vgpu-run/small", &one);
    plugin.allocate(&[&one]).await.unwrap();
    let first = node.process(&one);
    plugin.pre_start(&one).await.unwrap();
    assert_eq!(node.process(&one), first, "it has just been started");
    let vm = node.vm(&one);
    // An order that fails does not leave the instance to the next container.
    node.fail("restart", true);
    let error = plugin.pre_start(&one).await.unwrap_err();
    assert!(error.message().ends_with("Failed to restart: Connection timed out"), "{error}");
    node.fail("restart", false);
    plugin.pre_start(&one).await.unwrap();
    assert_ne!(node.process(&one), first);
    drop((vm, node.vm(&one)));
}

#[tokio::test]
async fn a_device_that_fails_is_unhealthy_until_it_works() {
    let (node, kubelet, mut plugin) = registered(SMALL).await;
    let (one, other) = (node.id("small", 0), node.id("small", 1));
    kubelet.add_pod("vgpu-run/small", &one);
    plugin.allocate(&[&one]).await.unwrap();
    plugin.pre_start(&one).await.unwrap();
    plugin.until_health(&[(&one, true), (&other, true)]).await;

    // Its process neither ends nor answers.
    node.signal(&one, Signal::STOP);
    plugin.until_health(&[(&one, false), (&other, true)]).await;
    assert!(node.log().contains("it has not answered"), "{}", node.log());
    node.signal(&one, Signal::CONT);
    plugin.until_health(&[(&one, true), (&other, true)]).await;

    node.signal(&one, Signal::KILL);
    plugin.until_health(&[(&one, false), (&other, true)]).await;
    assert!(node.log().contains("pod default/vm (container qemu)"), "{}", node.log());
    plugin.pre_start(&one).await.unwrap();
    plugin.until_health(&[(&one, true), (&other, true)]).await;

    // Nobody has it any more: whether it works is the next start's to say.
    node.signal(&one, Signal::KILL);
    plugin.until_health(&[(&one, false), (&other, true)]).await;
    kubelet.remove_pods();
    plugin.until_health(&[(&one, true), (&other, true)]).await;
}

/// Devices of the host that are not the plugin's may take memory while it runs.
#[tokio::test]
async fn devices_without_room_are_unhealthy() {
    let (mut node, kubelet, mut plugin) = registered(SMALL).await;
    let (one, other) = (node.id("small", 0), node.id("small", 1));
    plugin.until_health(&[(&one, true), (&other, true)]).await;
    // 7680 MiB are for VMs, and the two devices need 4096.
    node.serve_other("vm1", "4000M");
    plugin.until_health(&[(&one, true), (&other, false)]).await;
    kubelet.add_pod("vgpu-run/small", &other);
    plugin.allocate(&[&other]).await.unwrap();
    plugin.pre_start(&other).await.unwrap();
    plugin.until_health(&[(&one, false), (&other, true)]).await;
    node.end_others();
    plugin.until_health(&[(&one, true), (&other, true)]).await;
}
