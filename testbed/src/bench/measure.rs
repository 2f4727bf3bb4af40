//! What all figures are measured with.

use vgpu_serve::Facts;

/// Tokens that are decoded before they are counted: kernels are loaded with the first, a graph is captured
/// with the second.
pub const WARM: usize = 3;

/// Returns the middle one of some values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns a device of this compute capability, with 8 GiB.
pub fn facts(cc: &str) -> Facts {
    Facts {
        address: "0000:00:05.0".to_owned(),
        name: "VGPU-STUB bench".to_owned(),
        uuid: "5e".repeat(16),
        cc: cc.to_owned(),
        memory_mib: 8192,
    }
}
