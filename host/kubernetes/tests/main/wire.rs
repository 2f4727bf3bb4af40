//! The contract with the kubelet in bytes, written down from the API's own description (`k8s.io/kubelet`)
//! rather than by the program's types: a played kubelet that shares them would share their mistakes.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use prost::Message;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use vgpu_kubernetes::api::device_plugin::device_plugin_client::DevicePluginClient;
use vgpu_kubernetes::api::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use vgpu_kubernetes::api::registration::registration_client::RegistrationClient;
use vgpu_kubernetes::api::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse, ContainerDevices,
    ContainerResources, Device, DevicePluginOptions, DeviceSpec, Empty, HEALTHY, ListAndWatchResponse,
    ListPodResourcesResponse, Mount, PodResources, PreStartContainerRequest, RegisterRequest, UNHEALTHY,
    VERSION,
};

/// Checks that a message is written as these bytes, and read from them.
fn is_written<M: Message + Default + PartialEq + Debug>(message: &M, bytes: &[u8]) {
    assert_eq!(message.encode_to_vec().escape_ascii().to_string(), bytes.escape_ascii().to_string());
    assert_eq!(&M::decode(bytes).unwrap(), message);
}

// The first byte of a field is its number times 8, plus 2 for a text or a message, whose length follows.

#[test]
fn a_registration_is_written_as_the_kubelet_reads_it() {
    let options = DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };
    is_written(&options, b"\x08\x01\x10\x01");
    let request = RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: "a.sock".to_owned(),
        resource_name: "b/8g".to_owned(),
        options: Some(options),
    };
    is_written(&request, b"\x0a\x07v1beta1\x12\x06a.sock\x1a\x04b/8g\x22\x04\x08\x01\x10\x01");
    is_written(&Empty {}, b"");
}

#[test]
fn a_list_is_written_as_the_kubelet_reads_it() {
    let device = |id: &str, health: &str| Device { id: id.to_owned(), health: health.to_owned() };
    let list = ListAndWatchResponse { devices: vec![device("a", HEALTHY), device("b", UNHEALTHY)] };
    is_written(&list, b"\x0a\x0c\x0a\x01a\x12\x07Healthy\x0a\x0e\x0a\x01b\x12\x09Unhealthy");
}

#[test]
fn an_allocation_is_read_and_written_as_the_kubelet_does() {
    let asked = |ids: &[&str]| ContainerAllocateRequest {
        devices_ids: ids.iter().map(|&id| id.to_owned()).collect(),
    };
    let request = AllocateRequest { container_requests: vec![asked(&["a", "b"]), asked(&["c"])] };
    is_written(&request, b"\x0a\x06\x0a\x01a\x0a\x01b\x0a\x03\x0a\x01c");
    let [container_path, host_path] = ["/c", "/h"].map(str::to_owned);
    let response = ContainerAllocateResponse {
        envs: [("K".to_owned(), "v".to_owned())].into(),
        mounts: vec![Mount {
            container_path: container_path.clone(),
            host_path: host_path.clone(),
            read_only: true,
        }],
        devices: vec![DeviceSpec { container_path, host_path, permissions: "rw".to_owned() }],
    };
    is_written(
        &AllocateResponse { container_responses: vec![response] },
        b"\x0a\x22\
          \x0a\x06\x0a\x01K\x12\x01v\
          \x12\x0a\x0a\x02/c\x12\x02/h\x18\x01\
          \x1a\x0c\x0a\x02/c\x12\x02/h\x1a\x02rw",
    );
    is_written(&PreStartContainerRequest { devices_ids: vec!["a".to_owned()] }, b"\x0a\x01a");
}

#[test]
fn pods_are_read_as_the_kubelet_writes_them() {
    let devices = ContainerDevices {
        resource_name: "b/8g".to_owned(),
        device_ids: vec!["a".to_owned(), "b".to_owned()],
    };
    let container = ContainerResources { name: "q".to_owned(), devices: vec![devices] };
    let pod = PodResources { name: "vm".to_owned(), namespace: "ns".to_owned(), containers: vec![container] };
    let pods = ListPodResourcesResponse { pod_resources: vec![pod] };
    is_written(&pods, b"\x0a\x1b\x0a\x02vm\x12\x02ns\x1a\x11\x0a\x01q\x12\x0c\x0a\x04b/8g\x12\x01a\x12\x01b");
    // With a container's processors (3), a device's NUMA node (topology, 3), and a pod's processors (4), of
    // which the program knows nothing.
    let more = b"\x0a\x28\x0a\x02vm\x12\x02ns\x1a\x1a\x0a\x01q\
                 \x12\x12\x0a\x04b/8g\x12\x01a\x12\x01b\x1a\x04\x0a\x02\x08\x01\
                 \x1a\x01\x07\x22\x02\x01\x02";
    assert_eq!(ListPodResourcesResponse::decode(&more[..]).unwrap(), pods);
}

/// A server that refuses all calls, and records their paths.
#[derive(Clone, Default)]
struct Paths(Arc<Mutex<Vec<String>>>);

impl Service<http::Request<Body>> for Paths {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.lock().unwrap().push(request.uri().path().to_owned());
        ready(Ok(tonic::Status::unimplemented("recorded").into_http()))
    }
}

/// Servers are generated from the same description as clients, and called by them in the other tests.
#[tokio::test]
async fn calls_have_the_paths_of_the_api() {
    let paths = Paths::default();
    let mut plugin = DevicePluginClient::new(paths.clone());
    let registered = RegistrationClient::new(paths.clone()).register(RegisterRequest::default()).await;
    assert!(registered.is_err());
    assert!(plugin.get_device_plugin_options(Empty {}).await.is_err());
    assert!(plugin.list_and_watch(Empty {}).await.is_err());
    assert!(plugin.get_preferred_allocation(Empty {}).await.is_err());
    assert!(plugin.allocate(AllocateRequest::default()).await.is_err());
    assert!(plugin.pre_start_container(PreStartContainerRequest::default()).await.is_err());
    assert!(PodResourcesListerClient::new(paths.clone()).list(Empty {}).await.is_err());
    assert_eq!(
        *paths.0.lock().unwrap(),
        [
            "/v1beta1.Registration/Register",
            "/v1beta1.DevicePlugin/GetDevicePluginOptions",
            "/v1beta1.DevicePlugin/ListAndWatch",
            "/v1beta1.DevicePlugin/GetPreferredAllocation",
            "/v1beta1.DevicePlugin/Allocate",
            "/v1beta1.DevicePlugin/PreStartContainer",
            "/v1.PodResourcesLister/List",
        ]
    );
}
