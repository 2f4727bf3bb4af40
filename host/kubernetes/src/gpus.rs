//! The GPUs of the node, as the installed `vgpu-device` sees them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use vgpu_share::GpuUuid;

use crate::command::HostCommands;
use crate::config::Config;
use crate::error::PluginError;

/// Time that the driver may take. One that is loaded for the first time initializes each GPU.
const LIMIT: Duration = Duration::from_mins(1);

#[derive(Deserialize)]
struct Listed {
    #[serde(deserialize_with = "uuid")]
    uuid: GpuUuid,
    memory: u64,
}

fn uuid<'de, D: Deserializer<'de>>(from: D) -> Result<GpuUuid, D::Error> {
    String::deserialize(from)?.parse().map_err(de::Error::custom)
}

/// Returns the bytes of memory of each GPU of the node.
pub(crate) async fn list(
    commands: &HostCommands,
    config: &Config,
) -> Result<BTreeMap<GpuUuid, u64>, PluginError> {
    let libcuda = config.path_setting("libcuda").map(|path| format!("--libcuda={}", path.display()));
    let mut words = vec!["vgpu-device", "gpus"];
    words.extend(libcuda.as_deref());
    let text = commands.run(&words, LIMIT).await?;
    let listed: Vec<Listed> = serde_json::from_str(&text).map_err(PluginError::Gpus)?;
    Ok(listed.into_iter().map(|gpu| (gpu.uuid, gpu.memory)).collect())
}
