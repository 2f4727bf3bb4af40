//! The socket of a resource, and its registration with the kubelet.
//!
//! A kubelet that starts removes the sockets of all plugins and makes its own anew. That is how a plugin
//! knows that it has to make its socket again, and register.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::api::device_plugin::device_plugin_server::DevicePluginServer;
use crate::api::registration::registration_client::RegistrationClient;
use crate::api::{RegisterRequest, VERSION};
use crate::error::{PluginError, RpcError, sentence};
use crate::pods::connect;
use crate::pool::Pool;
use crate::service::{OPTIONS, ProfileService};

/// Time in which the kubelet answers a registration.
const ANSWER_MOST: Duration = Duration::from_secs(10);
/// Interval at which sockets are looked at, and between two tries to register.
const PAUSE: Duration = Duration::from_secs(1);

/// Identity of a socket: what changes when another one is made in its place.
type Made = (u64, u64, i64, i64);

/// Serves a profile for as long as the plugin runs: at a new socket, with a new registration, whenever the
/// kubelet starts. `folder` is the kubelet's directory for device plugins.
pub(crate) async fn serve(pool: Arc<Pool>, profile: usize, folder: PathBuf) {
    let mut last = None;
    loop {
        let outcome = serve_once(&pool, profile, &folder).await;
        let complaint = outcome.err().map(|error| sentence(&error));
        // The kubelet may be away for long, which is said once.
        if let Some(error) = complaint.as_ref().filter(|_| last != complaint) {
            tracing::warn!("{error}; it is tried again each {} s", PAUSE.as_secs());
        }
        if complaint.is_some() {
            tokio::time::sleep(PAUSE).await;
        }
        last = complaint;
    }
}

/// Serves a profile until the kubelet starts anew.
async fn serve_once(pool: &Arc<Pool>, profile: usize, folder: &Path) -> Result<(), PluginError> {
    let name = pool.config().profiles[profile].name.clone();
    let endpoint = format!("vgpu-device-{name}.sock");
    let (own, kubelet) = (folder.join(&endpoint), folder.join("kubelet.sock"));
    let listener = listen(&own).map_err(|source| PluginError::Socket {
        profile: name.clone(),
        path: own.clone(),
        source,
    })?;
    let service = DevicePluginServer::new(ProfileService { pool: Arc::clone(pool), profile });
    let served = Server::builder().serve_with_incoming(service, UnixListenerStream::new(listener));
    let registered = async {
        let (here, there) = (made(&own), made(&kubelet));
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint,
            resource_name: pool.config().resource(&name),
            options: Some(OPTIONS),
        };
        let resource = request.resource_name.clone();
        let answer = tokio::time::timeout(ANSWER_MOST, register(&kubelet, request)).await;
        let answer = answer.unwrap_or(Err(RpcError::Silent(ANSWER_MOST.as_secs())));
        answer.map_err(|source| PluginError::Register {
            profile: name.clone(),
            path: kubelet.clone(),
            source,
        })?;
        tracing::info!(resource, "registered");
        while here.is_some() && here == made(&own) && there == made(&kubelet) {
            tokio::time::sleep(PAUSE).await;
        }
        tracing::info!(resource, "the kubelet was started anew");
        Ok(())
    };
    tokio::select! {
        outcome = registered => outcome,
        ended = served => {
            let words = ended.err().map_or_else(|| "it ended".to_owned(), |error| sentence(&error));
            let source = io::Error::other(words);
            Err(PluginError::Socket { profile: name.clone(), path: own.clone(), source })
        }
    }
}

async fn register(kubelet: &Path, request: RegisterRequest) -> Result<(), RpcError> {
    let channel = connect(kubelet, ANSWER_MOST).await?;
    RegistrationClient::new(channel).register(request).await?;
    Ok(())
}

/// Listens at a socket, in the place of the one that an earlier plugin has left.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(socket)
}

fn made(socket: &Path) -> Option<Made> {
    let found = fs::symlink_metadata(socket).ok()?;
    Some((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
}
