//! A kubelet for tests: the server of registrations and of pod resources, and the client of a plugin.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use vgpu_kubernetes::api::device_plugin::device_plugin_client::DevicePluginClient;
use vgpu_kubernetes::api::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use vgpu_kubernetes::api::registration::registration_server::{Registration, RegistrationServer};
use vgpu_kubernetes::api::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse, ContainerDevices,
    ContainerResources, Empty, ListAndWatchResponse, ListPodResourcesResponse, PodResources,
    PreStartContainerRequest, RegisterRequest,
};

/// Time for which something is waited for that has to happen.
const PATIENCE: Duration = Duration::from_mins(2);

/// What the kubelet knows, which outlives its process.
#[derive(Default)]
struct KubeletState {
    pods: Vec<PodResources>,
    /// Number of registrations that are still refused.
    refusals: u32,
    /// Whether it answers who has which devices.
    is_silent: bool,
}

#[derive(Clone)]
struct Services {
    known: Arc<Mutex<KubeletState>>,
    registrations: mpsc::UnboundedSender<RegisterRequest>,
}

#[tonic::async_trait]
impl Registration for Services {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let mut known = self.known.lock().unwrap();
        if known.refusals > 0 {
            known.refusals -= 1;
            return Err(Status::failed_precondition("the node is not ready"));
        }
        // The test may have ended.
        let _ = self.registrations.send(request.into_inner());
        Ok(Response::new(Empty {}))
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Services {
    async fn list(&self, _: Request<Empty>) -> Result<Response<ListPodResourcesResponse>, Status> {
        let known = self.known.lock().unwrap();
        if known.is_silent {
            return Err(Status::unavailable("starting"));
        }
        Ok(Response::new(ListPodResourcesResponse { pod_resources: known.pods.clone() }))
    }
}

/// A kubelet's process in a directory.
pub struct Kubelet {
    folder: PathBuf,
    services: Services,
    registrations: mpsc::UnboundedReceiver<RegisterRequest>,
    servers: Vec<JoinHandle<()>>,
}

impl Kubelet {
    /// Makes a kubelet that does not run.
    pub fn new(folder: &Path) -> Self {
        let (to, registrations) = mpsc::unbounded_channel();
        let services = Services { known: Arc::default(), registrations: to };
        for name in ["device-plugins", "pod-resources"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        Self { folder: folder.to_owned(), services, registrations, servers: Vec::new() }
    }

    fn listen(&self, name: &str) -> UnixListenerStream {
        let path = self.folder.join(name).join("kubelet.sock");
        // The process before may have been killed.
        let _ = fs::remove_file(&path);
        UnixListenerStream::new(UnixListener::bind(path).unwrap())
    }

    /// Starts the process, which removes the sockets of plugins.
    pub fn start(&mut self) {
        for entry in fs::read_dir(self.folder.join("device-plugins")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let (plugins, pods) = (self.listen("device-plugins"), self.listen("pod-resources"));
        let (one, other) = (self.services.clone(), self.services.clone());
        self.servers.push(tokio::spawn(async move {
            Server::builder().serve_with_incoming(RegistrationServer::new(one), plugins).await.unwrap();
        }));
        self.servers.push(tokio::spawn(async move {
            let service = PodResourcesListerServer::new(other);
            Server::builder().serve_with_incoming(service, pods).await.unwrap();
        }));
    }

    pub fn stop(&mut self) {
        self.servers.drain(..).for_each(|server| server.abort());
    }

    /// Refuses the next registrations.
    pub fn refuse(&self, registrations: u32) {
        self.services.known.lock().unwrap().refusals = registrations;
    }

    /// Whether the kubelet tells which pods have devices.
    pub fn tells_pods(&self, tells: bool) {
        self.services.known.lock().unwrap().is_silent = !tells;
    }

    /// Returns the next registration, once its plugin answers.
    pub async fn registration(&mut self) -> Plugin {
        let request = within(self.registrations.recv()).await.unwrap();
        let path = self.folder.join("device-plugins").join(&request.endpoint);
        let endpoint = Endpoint::from_shared(format!("unix:{}", path.display())).unwrap();
        let mut client = DevicePluginClient::new(within(endpoint.connect()).await.unwrap());
        let options = within(client.get_device_plugin_options(Empty {})).await.unwrap().into_inner();
        assert_eq!(Some(options), request.options);
        let lists = within(client.list_and_watch(Empty {})).await.unwrap().into_inner();
        Plugin { request, client, lists }
    }

    /// Makes the pod `vm` known, with a container that has a device. A kubelet does so when it has the answer
    /// to its allocation; a test does so before, so that it can be stopped for any time in between.
    pub fn add_pod(&self, resource: &str, id: &str) {
        let devices =
            ContainerDevices { resource_name: resource.to_owned(), device_ids: vec![id.to_owned()] };
        let container = ContainerResources { name: "qemu".to_owned(), devices: vec![devices] };
        let (name, namespace) = ("vm".to_owned(), "default".to_owned());
        let pod = PodResources { name, namespace, containers: vec![container] };
        self.services.known.lock().unwrap().pods.push(pod);
    }

    /// Forgets the pods that have a device.
    pub fn remove_pod(&self, id: &str) {
        let has = |pod: &PodResources| pod.containers[0].devices[0].device_ids == [id];
        self.services.known.lock().unwrap().pods.retain(|pod| !has(pod));
    }

    /// Forgets all pods.
    pub fn remove_pods(&self) {
        self.services.known.lock().unwrap().pods.clear();
    }
}

/// A plugin as the kubelet calls it.
pub struct Plugin {
    pub request: RegisterRequest,
    client: DevicePluginClient<Channel>,
    lists: Streaming<ListAndWatchResponse>,
}

impl Plugin {
    /// Waits until the plugin's list says this of its devices, by their ids: whether each is healthy.
    pub async fn until_health(&mut self, wanted: &[(&str, bool)]) {
        let wanted: BTreeMap<String, bool> = wanted.iter().map(|&(id, is)| (id.to_owned(), is)).collect();
        while self.next_health().await != wanted {}
    }

    /// Returns what the plugin's next list says of its devices.
    pub async fn next_health(&mut self) -> BTreeMap<String, bool> {
        let list = within(self.lists.message()).await.unwrap().expect("the stream goes on");
        list.devices.into_iter().map(|device| (device.id, device.health == "Healthy")).collect()
    }

    /// Waits until the plugin's process has ended.
    pub async fn until_gone(&mut self) {
        while let Ok(Some(_)) = within(self.lists.message()).await {}
    }

    pub async fn allocate(&mut self, ids: &[&str]) -> Result<ContainerAllocateResponse, Status> {
        let devices_ids = ids.iter().map(|&id| id.to_owned()).collect();
        let request = AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids }] };
        let answer = within(self.client.allocate(request)).await?.into_inner();
        let [container] = &answer.container_responses[..] else { panic!("{answer:?}") };
        Ok(container.clone())
    }

    pub async fn pre_start(&mut self, id: &str) -> Result<(), Status> {
        let request = PreStartContainerRequest { devices_ids: vec![id.to_owned()] };
        within(self.client.pre_start_container(request)).await.map(drop)
    }
}

/// Waits for something that has to happen.
pub async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("waited in vain")
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "waited in vain: {what}");
}
