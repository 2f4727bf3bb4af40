//! Device addresses of the cuda executor: those that no other device of this host has and that the GPU's
//! driver reserves. The driver is asked in a process of its own, which may crash or hang.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use vgpu_device::{Addresses, ClaimError, RangeLocks};
use vgpu_executor_cuda::{CudaOptions, RangeOffer, offered_ranges};

use crate::helper;

/// Hidden command in which this program asks the driver.
pub const ANSWER: &str = "__ranges";

/// Time that the driver may take to answer. A driver that is loaded for the first time after a start of the
/// host initializes each GPU.
const LIMIT: Duration = Duration::from_mins(1);

/// Options of the hidden command [`ANSWER`].
#[derive(Debug, clap::Args)]
pub struct Question {
    question: String,
}

/// The driver and GPU to ask.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OfferQuestion {
    pub(crate) libcuda: Option<PathBuf>,
    pub(crate) uuid: Option<[u8; 16]>,
}

/// Answers a question, in the process that was started for it.
pub fn answer(question: &Question) -> Result<ExitCode> {
    let OfferQuestion { libcuda, uuid } = serde_json::from_str(&question.question)?;
    let options = CudaOptions { libcuda, uuid, ..CudaOptions::new(Addresses::next_in_process()) };
    println!("{}", serde_json::to_string(&offered_ranges(&options)?)?);
    Ok(ExitCode::SUCCESS)
}

impl OfferQuestion {
    /// Returns what the driver offers of each range.
    pub(crate) fn ask(&self) -> Result<Vec<RangeOffer>> {
        helper::ask(ANSWER, self, LIMIT, "asks the GPU's driver for device addresses")
    }
}

/// Returns a range of which the driver offers as much as of any other, and that no other device of this host
/// has; or the range of this number.
pub(crate) fn choose(
    offers: &[RangeOffer],
    number: Option<u32>,
    locks: Result<RangeLocks, ClaimError>,
) -> Result<Addresses> {
    let greatest = offers.iter().filter_map(|offer| offer.bytes.as_ref().ok()).max();
    let Some(&greatest) = greatest else {
        let reason = offers.iter().find_map(|offer| offer.bytes.as_ref().err());
        let reason = reason.map_or("it was asked for none", String::as_str);
        bail!("the GPU's driver reserves none of the address ranges that a device can have: {reason}");
    };
    let good = offers.iter().filter(|offer| offer.bytes == Ok(greatest)).map(|offer| offer.index);
    let addresses = claim(number, good, locks)?;
    let offer = offers.iter().find(|offer| offer.index == addresses.index());
    let bytes = offer.ok_or_else(|| anyhow!("the driver was not asked for range {}", addresses.index()))?;
    let bytes = bytes.bytes.clone().map_err(|reason| {
        anyhow!("--address-range {}: {reason}; without the option another range is chosen", addresses.index())
    })?;
    let addresses = addresses.shortened(bytes);
    tracing::info!(range = %addresses.range(), "device addresses that the GPU's driver reserves");
    Ok(addresses)
}

/// Returns the range of this number, or one of those `wanted` that no other device of this host has.
pub(crate) fn claim(
    number: Option<u32>,
    wanted: impl IntoIterator<Item = u32>,
    locks: Result<RangeLocks, ClaimError>,
) -> Result<Addresses, ClaimError> {
    match number {
        // A range that was chosen by option is used even where no lock can be taken.
        Some(number) => Addresses::chosen(number, locks.ok().as_ref()),
        None => locks?.draw_of(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(given: [Result<u64, &str>; 4]) -> Vec<RangeOffer> {
        let offer = |(index, bytes): (u32, Result<u64, &str>)| RangeOffer {
            index,
            bytes: bytes.map_err(str::to_owned),
        };
        (0..).zip(given).map(offer).collect()
    }

    #[test]
    fn a_device_has_a_range_of_which_the_driver_offers_most() {
        let folder = tempfile::tempdir().unwrap();
        let locks = || RangeLocks::open(&folder.path().join("ranges"));
        let some = offers([Ok(1 << 36), Ok(1 << 38), Err("elsewhere"), Ok(1 << 38)]);
        let drawn = [(); 2].map(|()| choose(&some, None, locks()).unwrap());
        assert_eq!(drawn.clone().map(|addresses| addresses.index()), [1, 3]);
        assert!(drawn.iter().all(|addresses| addresses.range().bytes == 1 << 38));
        let error = choose(&some, None, locks()).unwrap_err().to_string();
        assert!(error.contains("taken by devices of this host"), "{error}");

        let chosen = choose(&some, Some(0), locks()).unwrap();
        assert_eq!((chosen.index(), chosen.range().bytes), (0, 1 << 36));
        let error = choose(&some, Some(2), locks()).unwrap_err().to_string();
        assert!(error.contains("--address-range 2: elsewhere"), "{error}");
        let error = choose(&offers([Err("no room"); 4]), None, locks()).unwrap_err().to_string();
        assert!(error.ends_with("none of the address ranges that a device can have: no room"), "{error}");
    }
}
