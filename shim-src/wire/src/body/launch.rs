//! Kernel launches.

wire_struct! {
    /// A kernel launch. The tail is the parameter buffer, laid out as the kernel's `.param` list says.
    pub struct Launch = 64 {
        /// Function.
        pub function: u32 = 0,
        /// The stream.
        pub stream: u32 = 4,
        /// Blocks in x, y, z.
        pub grid: [u32; 3] = 8,
        /// Threads in x, y, z.
        pub block: [u32; 3] = 20,
        /// Blocks of a cluster in x, y, z; zeros: no clusters.
        pub cluster: [u32; 3] = 32,
        /// Bytes of dynamic shared memory.
        pub shared_bytes: u32 = 44,
        /// [`LAUNCH_COOPERATIVE`], [`LAUNCH_PROGRAMMATIC`].
        pub flags: u32 = 48,
        /// Bytes of parameters, at most 32764 (the limit of CUDA 12.1 and later on cc 7.0 and above).
        pub param_bytes: u32 = 52,
        /// `cudaLaunchAttributePriority`.
        pub priority: i32 = 56,
        /// Zero.
        pub reserved: u32 = 60,
    }
}

/// [`Launch::flags`]: all blocks are resident at once and may synchronise.
pub const LAUNCH_COOPERATIVE: u32 = 1 << 0;
/// [`Launch::flags`]: may begin before its predecessor in the stream has ended.
pub const LAUNCH_PROGRAMMATIC: u32 = 1 << 1;
/// The most parameter bytes of any kernel.
pub const PARAM_BYTES_MAX: u32 = 32764;
