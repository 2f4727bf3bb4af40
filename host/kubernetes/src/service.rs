//! The service that the kubelet calls for one resource.

use std::pin::Pin;
use std::sync::Arc;

use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use crate::api::device_plugin::device_plugin_server::DevicePlugin;
use crate::api::{
    AllocateRequest, AllocateResponse, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest,
};
use crate::error::{PluginError, sentence};
use crate::pool::Pool;

/// What the kubelet is to call.
pub(crate) const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: false };

/// The devices of one profile.
#[derive(Clone, Debug)]
pub(crate) struct ProfileService {
    pub(crate) pool: Arc<Pool>,
    pub(crate) profile: usize,
}

/// Returns the answer to a call that failed, by which the kubelet tells the pod's events why.
fn status(error: &PluginError) -> Status {
    let text = sentence(error);
    match error {
        PluginError::Unknown { .. } => Status::not_found(text),
        PluginError::Several { .. } => Status::invalid_argument(text),
        _ => Status::unavailable(text),
    }
}

#[tonic::async_trait]
impl DevicePlugin for ProfileService {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let lists = WatchStream::new(self.pool.list(self.profile));
        Ok(Response::new(Box::pin(lists.map(|devices| Ok(ListAndWatchResponse { devices })))))
    }

    async fn get_preferred_allocation(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Err(Status::unimplemented("all devices of a profile are alike"))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let mut answer = AllocateResponse::default();
        for container in request.into_inner().container_requests {
            let given = self.pool.allocate(self.profile, &container.devices_ids).await;
            answer.container_responses.push(given.map_err(|error| status(&error))?);
        }
        Ok(Response::new(answer))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<Empty>, Status> {
        let ids = request.into_inner().devices_ids;
        self.pool.pre_start(self.profile, &ids).await.map_err(|error| status(&error))?;
        Ok(Response::new(Empty {}))
    }
}
