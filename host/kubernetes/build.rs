//! Generates clients and servers of the kubelet's services. Their messages are in `src/api.rs`, so that no
//! compiler of Protocol Buffers is needed.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let method = |name: &str, route: &str, input: &str, output: &str| {
        let path = |message: &str| format!("crate::api::{message}");
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type(path(input))
            .output_type(path(output))
            .codec_path("tonic_prost::ProstCodec")
    };
    let registration = Service::builder()
        .package("v1beta1")
        .name("Registration")
        .method(method("register", "Register", "RegisterRequest", "Empty").build())
        .build();
    let plugin = Service::builder()
        .package("v1beta1")
        .name("DevicePlugin")
        .method(
            method("get_device_plugin_options", "GetDevicePluginOptions", "Empty", "DevicePluginOptions")
                .build(),
        )
        .method(
            method("list_and_watch", "ListAndWatch", "Empty", "ListAndWatchResponse")
                .server_streaming()
                .build(),
        )
        .method(method("get_preferred_allocation", "GetPreferredAllocation", "Empty", "Empty").build())
        .method(method("allocate", "Allocate", "AllocateRequest", "AllocateResponse").build())
        .method(
            method("pre_start_container", "PreStartContainer", "PreStartContainerRequest", "Empty").build(),
        )
        .build();
    let pods = Service::builder()
        .package("v1")
        .name("PodResourcesLister")
        .method(method("list", "List", "Empty", "ListPodResourcesResponse").build())
        .build();
    Builder::new().compile(&[registration, plugin, pods]);
}
