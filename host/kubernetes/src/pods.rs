//! Which pods have which devices, by the kubelet's API of pod resources.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use crate::api::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use crate::api::{Empty, ListPodResourcesResponse};
use crate::error::{PluginError, RpcError};

/// Time in which the kubelet answers.
const ANSWER_MOST: Duration = Duration::from_secs(5);
/// Maximum length of an answer in bytes, as the kubelet's own clients accept it.
const ANSWER_BYTES: usize = 16 << 20;

/// The container that has a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    namespace: String,
    pod: String,
    container: String,
}

impl Holder {
    #[cfg(test)]
    pub(crate) fn of_test() -> Self {
        let [namespace, pod, container] = ["default", "vm", "qemu"].map(str::to_owned);
        Self { namespace, pod, container }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {}/{} (container {})", self.namespace, self.pod, self.container)
    }
}

/// Connects to a socket of the kubelet.
pub(crate) async fn connect(socket: &Path, limit: Duration) -> Result<Channel, RpcError> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()))?;
    let endpoint = endpoint.connect_timeout(limit).timeout(limit);
    match tokio::time::timeout(limit, endpoint.connect()).await {
        Ok(channel) => Ok(channel?),
        Err(_) => Err(RpcError::Silent(limit.as_secs())),
    }
}

/// Returns the holder of each device, by the devices' ids.
pub(crate) async fn list(socket: &Path) -> Result<BTreeMap<String, Holder>, PluginError> {
    let listed = tokio::time::timeout(ANSWER_MOST, ask(socket)).await;
    let listed = listed.unwrap_or(Err(RpcError::Silent(ANSWER_MOST.as_secs())));
    let listed = listed.map_err(|source| PluginError::Pods { path: socket.to_owned(), source })?;
    let mut holders = BTreeMap::new();
    for pod in listed.pod_resources {
        for container in pod.containers {
            for id in container.devices.into_iter().flat_map(|devices| devices.device_ids) {
                let (namespace, pod) = (pod.namespace.clone(), pod.name.clone());
                holders.insert(id, Holder { namespace, pod, container: container.name.clone() });
            }
        }
    }
    Ok(holders)
}

async fn ask(socket: &Path) -> Result<ListPodResourcesResponse, RpcError> {
    let channel = connect(socket, ANSWER_MOST).await?;
    let mut client = PodResourcesListerClient::new(channel).max_decoding_message_size(ANSWER_BYTES);
    Ok(client.list(Empty {}).await?.into_inner())
}
