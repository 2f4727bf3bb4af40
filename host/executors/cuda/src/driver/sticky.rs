//! Error codes after which a context carries out nothing more, by CUDA's manual: `CUresult` in "Data types
//! used by CUDA driver", and `cudaError_t`, which has the same codes.
//!
//! `UNKNOWN` (999), "an unknown internal error has occurred", is not among them, because the manual does not
//! say that later work fails. A GPU that fell off its bus often returns it. Then the next query of a fence
//! fails as well, and the completion thread loses the context whatever the code is.

use vgpu_abi::CUresult;

/// Codes of which the manual states: "This leaves the process in an inconsistent state and any further CUDA
/// work will return the same error. To continue using CUDA, the process must be terminated and relaunched."
const RELAUNCH: &[CUresult] = &[
    CUresult::CONTAINED,
    CUresult::ILLEGAL_ADDRESS,
    CUresult::LAUNCH_TIMEOUT,
    CUresult::HARDWARE_STACK_ERROR,
    CUresult::ILLEGAL_INSTRUCTION,
    CUresult::MISALIGNED_ADDRESS,
    CUresult::INVALID_ADDRESS_SPACE,
    CUresult::INVALID_PC,
    CUresult::LAUNCH_FAILED,
    CUresult::TENSOR_MEMORY_LEAK,
    CUresult::MPS_CLIENT_TERMINATED,
    CUresult::EXTERNAL_DEVICE,
];

/// Codes of a lost context: "The context cannot be used anymore, and must be destroyed" after a failed
/// assertion, and the code of a context that "has been destroyed".
const CONTEXT: &[CUresult] = &[CUresult::CONTEXT_IS_DESTROYED, CUresult::ASSERT];

/// Hardware errors "detected during the execution". It is unknown which work they belong to, and in which
/// state that work was left.
const HARDWARE: &[CUresult] = &[CUresult::ECC_UNCORRECTABLE, CUresult::NVLINK_UNCORRECTABLE];

/// Codes of a driver that was shut down or never started, and of a "requested CUDA device" that "is
/// unavailable". The manual has the latter for contexts that cannot be created. From a call in an existing
/// context it means that the device is gone.
const GONE: &[CUresult] = &[CUresult::NOT_INITIALIZED, CUresult::DEINITIALIZED, CUresult::DEVICE_UNAVAILABLE];

/// Returns whether a call that returns this code has lost its context.
pub(crate) fn loses_context(code: CUresult) -> bool {
    [RELAUNCH, CONTEXT, HARDWARE, GONE].iter().any(|codes| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test covers all codes, so that a decision is made about each code that is added.
    #[test]
    fn these_codes_and_no_others_lose_the_context() {
        let lost: Vec<u32> =
            CUresult::ALL.iter().filter(|&&code| loses_context(code)).map(|code| code.0).collect();
        let expected =
            [3, 4, 46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911];
        assert_eq!(lost, expected);
        assert_eq!(CUresult::ALL.len(), 106, "the new code is in the right table, or in none");
    }
}
