//! Whether a GPU has room for a VM beside what others have been promised, as `check` asks.

use std::time::Duration;

use vgpu_share::{Claim, Figure, GpuMemory, GpuUuid, ShareError};

use crate::context_cost::PLAUSIBLE;
use crate::settings::Settings;
use crate::share::{RESERVE, existing_gpus};

/// Returns why a start of the device `name` would not be promised its memory, if that is so. `bytes` is what
/// the GPU has, as far as devices that run have not found it.
pub(crate) fn refusal(
    name: &str,
    settings: &Settings,
    gpu: GpuUuid,
    bytes: u64,
) -> Result<Option<String>, ShareError> {
    let Some(gpus) = existing_gpus(settings.shares.as_deref())? else { return Ok(None) };
    if !gpus.all()?.contains(&gpu) {
        return Ok(None);
    }
    let share = gpus.existing_gpu(gpu)?;
    let holders = share.holders()?;
    let known = holders.iter().map(|holder| holder.figure(Figure::ContextBytes));
    let context_bytes = known.filter(|bytes| PLAUSIBLE.contains(bytes)).max().unwrap_or(0);
    let judged = share.judge(&Claim {
        name,
        promised: settings.memory.map(|memory| memory.0),
        overhead: 0,
        context_bytes,
        weight: settings.weight.unwrap_or(1).into(),
        memory: GpuMemory {
            bytes: if holders.is_empty() { bytes } else { share.memory_bytes() },
            reserve: settings.reserve.unwrap_or(RESERVE).0,
        },
        patience: Duration::ZERO,
    });
    match judged {
        Ok(()) => Ok(None),
        Err(error @ (ShareError::Promise(_) | ShareError::TooLittle { .. } | ShareError::Full(_))) => {
            Ok(Some(error.to_string()))
        }
        Err(error) => Err(error),
    }
}
