//! The launch of a kernel.

wire_struct! {
    /// `cuLaunchKernel`. The tail is the parameter buffer, laid out as the kernel's `.param` list says.
    pub struct Launch = 64 {
        /// Number of the kernel, from [`FunctionGet::function`](super::module::FunctionGet::function).
        pub function: u32 = 0,
        /// Stream that orders the launch; 0 is the legacy default stream.
        pub stream: u32 = 4,
        /// Number of blocks in x, y and z.
        pub grid: [u32; 3] = 8,
        /// Number of threads of a block in x, y and z.
        pub block: [u32; 3] = 20,
        /// Number of blocks of a cluster in x, y and z; zeros for a launch without clusters.
        pub cluster: [u32; 3] = 32,
        /// Dynamic shared memory of a block in bytes.
        pub shared_bytes: u32 = 44,
        /// Combination of [`LAUNCH_COOPERATIVE`] and [`LAUNCH_PROGRAMMATIC`].
        pub flags: u32 = 48,
        /// Length of the parameter buffer in bytes, at most [`PARAM_BYTES_MAX`].
        pub param_bytes: u32 = 52,
        /// Value of `cudaLaunchAttributePriority`, lower is more urgent; 0 if the program gives none.
        pub priority: i32 = 56,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 60,
    }
}

/// [`Launch::flags`]: all blocks are resident at once and may synchronise with each other.
pub const LAUNCH_COOPERATIVE: u32 = 1 << 0;
/// [`Launch::flags`]: the kernel may start before its predecessor in the stream has ended.
pub const LAUNCH_PROGRAMMATIC: u32 = 1 << 1;
/// Maximum length in bytes of a kernel's parameters: the limit of CUDA 12.1 and later from compute capability
/// 7.0 on.
pub const PARAM_BYTES_MAX: u32 = 32764;
