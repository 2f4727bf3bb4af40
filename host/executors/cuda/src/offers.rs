//! Offers of a driver: which device addresses it reserves, asked before a device announces its addresses.
//!
//! A driver takes the address of `cuMemAddressReserve` as a hint, and some refuse 1 TiB. So each range is
//! asked for at several sizes. The calls need a context, and a driver may fail badly in them, so they belong
//! in a process that ends afterwards.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use vgpu_device::{ADDRESS_RANGES, Addresses};

use crate::LoadError;
use crate::driver::context::DriverContext;
use crate::driver::device::DriverDevice;
use crate::driver::library::DriverLibrary;
use crate::driver::range::Reserved;
use crate::options::CudaOptions;

/// Sizes that are asked for, in bytes, as powers of two from 1 TiB to 64 GiB.
const SIZES: [u64; 5] = [1 << 40, 1 << 39, 1 << 38, 1 << 37, 1 << 36];

/// The part of one range of device addresses that a driver reserves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeOffer {
    /// Number of the range, as [`Addresses::index`] returns it.
    pub index: u32,
    /// Greatest number of bytes that the driver reserves at the start of the range, or the reason for which
    /// it does not reserve the smallest size either.
    pub bytes: Result<u64, String>,
}

/// Asks the driver for each of the [`ADDRESS_RANGES`] ranges of addresses. Returns one offer for each, in
/// their order.
///
/// # Errors
/// The driver cannot be loaded, or gives no context.
pub fn offered_ranges(options: &CudaOptions) -> Result<Vec<RangeOffer>, LoadError> {
    let driver = DriverLibrary::load(options.libcuda.as_deref())?;
    let device = DriverDevice::find(&driver, options.uuid)?;
    let context = DriverContext::create(&device)?;
    Ok((0..ADDRESS_RANGES).map(|index| RangeOffer { index, bytes: largest(&context, index) }).collect())
}

/// Returns the greatest size that the driver reserves at the start of a range.
fn largest(context: &Arc<DriverContext>, index: u32) -> Result<u64, String> {
    let base = Addresses::unlocked(index).range().base;
    let mut refusal = String::new();
    for bytes in SIZES {
        match Reserved::reserve(context, base, bytes) {
            Ok(_) => return Ok(bytes),
            Err(error) => refusal = error.to_string(),
        }
    }
    Err(refusal)
}
