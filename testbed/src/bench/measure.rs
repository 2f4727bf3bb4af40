//! Helpers that all measurements share.

use vgpu_serve::Facts;

/// Number of tokens decoded before counting: the first loads kernels, the second captures a graph.
pub const WARM: usize = 3;

/// Returns the median of some values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the facts of a device with this compute capability and 8 GiB.
pub fn facts(cc: &str) -> Facts {
    Facts {
        address: "0000:00:05.0".to_owned(),
        name: "VGPU-STUB bench".to_owned(),
        uuid: "5e".repeat(16),
        cc: cc.to_owned(),
        memory_mib: 8192,
    }
}
