//! Options of `vgpu-testbed reload`.

/// Options of `reload`.
#[derive(clap::Args, Debug)]
pub struct ReloadArgs {
    /// Boot virtual machines instead of playing them. Their programs are `vgpu-llama`, which streams the
    /// tokens, and, with `--sessions`, `vgpu-standin soak`.
    #[arg(long)]
    pub(super) booted: bool,
    /// Number of VMs, which share a GPU. Each has a device, and all devices are reloaded.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=4))]
    pub(super) vms: u64,
    /// Have the node process share the GPU's time among the VMs, so that reloads come while it holds work
    /// back.
    #[arg(long)]
    pub(super) node: bool,
    /// Number of tokens that each VM streams.
    #[arg(long, default_value_t = 200)]
    pub(super) tokens: usize,
    /// Number of reloads of each device. They are spread over the stream.
    #[arg(long, default_value_t = 20)]
    pub(super) reloads: usize,
    /// Number of programs of each VM that use the device at a time, that which streams included. In a played
    /// VM a quarter of them are attaching all the time, and five of them copy, launch graphs, load
    /// modules and allocate memory that is not free yet.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=40))]
    pub(super) sessions: u32,
    /// MiB of each copy within device memory in a played VM.
    #[arg(long, default_value_t = 1024)]
    pub(super) copy_mib: u64,
    /// MiB of each copy through the window in a played VM, in each direction.
    #[arg(long, default_value_t = 64)]
    pub(super) window_mib: u64,
    /// Add a program to a played VM whose kernel never ends.
    #[arg(long)]
    pub(super) endless: bool,
    /// Print the report as JSON.
    #[arg(long)]
    pub(super) json: bool,
}
