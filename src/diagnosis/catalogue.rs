//! The chain by which Ollama finds a GPU, as data: its links in the order in which a call travels them, what
//! each link needs, and the causes that are known to break it.
//!
//! Ids are permanent: scripts and bug reports name them.

pub use vgpu_findings::catalogue::{cause_of, of};

/// A step of the chain.
pub type Link = vgpu_findings::Link<LinkId>;

/// Why a link is broken.
pub type Cause = vgpu_findings::Cause<LinkId>;

vgpu_findings::chain! {
    Kernel kernel "kernel" "Kernel and sandbox" needs [] {
        NO_EXECUTABLE_MAPPING "no-executable-mapping" "The libraries can be handed over only where memory files or a private folder may be mapped for execution."
        RESOURCE_LIMIT "resource-limit" "No process of Ollama's starts with so little, and check itself has no room to look further."
        NO_PROC "no-proc" "The libraries are named through /proc, which is not mounted here."
    }
    Pci pci "pci" "PCI function" needs [] {
        SYSFS_MISSING "sysfs-missing" "The device is found through sysfs."
        DEVICE_ABSENT "device-absent" "Without the VGPU-STUB function the guest has no way to the host's GPU."
        REAL_GPU "real-gpu" "A real GPU has the same PCI id as VGPU-STUB; vgpu-run leaves it alone."
        BARS_MISSING "bars-missing" "The registers or the shared window have no address, so nothing can be said to the host."
        MEMORY_DECODING_OFF "memory-decoding-off" "The function does not answer to its addresses until memory decoding is on."
        DRIVER_BOUND "driver-bound" "A kernel driver owns the function and may write to its registers."
    }
    Permission permission "permission" "Permission" needs [Pci] {
        DEVICE_PERMISSION "device-permission" "The user that Ollama runs as must be able to open the device's files."
        LOCKDOWN "lockdown" "Kernel lockdown refuses device memory even to root."
        TURN_FILE "turn-file" "Processes of a machine take turns at a device of version 1, by a file that each of them must be able to open."
        SYSFS_READ_ONLY "sysfs-read-only" "The device's files must be opened for writing, and sysfs is read-only here."
    }
    Device device "device" "Device" needs [Permission] {
        HOST_GONE "host-gone" "Nobody serves the device on the host's side."
        DEVICE_MUTE "device-mute" "Every process of Ollama asks the device when it starts, and waits for as long as it is silent."
        NOT_A_STUB "not-a-stub" "What answers is no VGPU-STUB device."
        VERSION_1 "version-1" "The registers say version 1 of the protocol, the BARs version 2: neither can be trusted."
        DEVICE_SLOW "device-slow" "Every start of a process waits for the device's registers, and Ollama gives up after 3 seconds."
        SPEECH_MISMATCH "speech-mismatch" "Guest and host are of different builds and would misunderstand each other."
    }
    Window window "window" "Shared window" needs [Device] {
        WINDOW_UNMAPPABLE "window-unmappable" "All data travels through the shared window."
        WINDOW_SLOW "window-slow" "Copies can be no faster than the window."
        NO_CHANNEL "no-channel" "Each process needs a channel of the window, and all are taken."
    }
    Host host "host" "Host" needs [Device] {
        EXECUTOR_NOT_READY "executor-not-ready" "The host has nothing to run the calls on."
        BAD_FACTS "bad-facts" "Ollama drops a device whose own description makes no sense."
        NO_MEMORY "no-memory" "A device without free memory is not used."
        MEMORY_TOO_SMALL "memory-too-small" "Ollama leaves a part of a device's memory free, and puts no layer onto a device that has no more than that."
        SESSION_REFUSED "session-refused" "The host lets no process in."
        CONTEXT_LOST "context-lost" "A kernel's fault ended the GPU context that all processes share on a host of version 1, and such a host makes no other."
        OWNERS_TAKEN "owners-taken" "A host of version 1 has room for so many processes of all its virtual machines, and all of it is taken."
        ADDRESSES_SHARED "addresses-shared" "A copy names memory by address alone, so devices that share addresses cannot be used by one process."
        ADDRESSES_UNAVAILABLE "addresses-unavailable" "A process reserves the addresses of a device's memory before it uses the device."
        ECHO_SLOW "echo-slow" "Every token waits for answers of the host: it comes no faster than they do."
        NO_ECHO "no-echo" "The host took a message and did not answer in time."
    }
    Shims shims "shims" "Libraries" needs [Kernel] {
        HANDOVER_REFUSED "handover-refused" "The libraries must reach the process that loads the backend."
        MAP_REFUSED "map-refused" "The loader could not map the libraries for execution."
        FILE_SIZE_LIMIT "file-size-limit" "Memory files count against the limit on the size of files."
        SHIM_UNRESOLVED "shim-unresolved" "A library that lacks a symbol of this system's C library is not loaded."
    }
    Environment environment "environment" "Environment" needs [] {
        VISIBLE_DEVICES "visible-devices" "CUDA shows only the devices that CUDA_VISIBLE_DEVICES names."
        LIBRARY_OVERRIDE "library-override" "OLLAMA_LLM_LIBRARY limits Ollama to one backend folder."
        BACKEND_OVERRIDE "backend-override" "GGML_BACKEND_PATH makes llama-server load another backend."
        NUM_GPU_ZERO "num-gpu-zero" "A setting keeps all layers on the CPU."
        API_PREFIX "api-prefix" "Ollama asks llama-server at /health whether a model is loaded, and llama-server answers below the prefix alone: every load fails, after minutes."
        LOADER_DEBUG "loader-debug" "The dynamic loader then writes lines for every symbol that it looks up, and each process of Ollama starts many times as slowly."
        UNIFIED_MEMORY "unified-memory" "Managed memory is shared by one machine's processors and its GPU, and this GPU is another machine's."
    }
    Loader loader "loader" "Dynamic loader" needs [Shims] {
        NO_GLIBC "no-glibc" "Ollama's releases and NVIDIA's libraries, which ours stand in for, are glibc's."
        OTHER_LIBRARY_WINS "other-library-wins" "The backend would talk to another library of the same name instead of ours."
        GLOBAL_PRELOAD "global-preload" "A library in /etc/ld.so.preload enters every process and comes before ours."
        PRELOAD_STRIPPED "preload-stripped" "What starts the program removes LD_PRELOAD, so the libraries do not get in."
        DESCRIPTORS_CLOSED "descriptors-closed" "A process on the way closes descriptors, so the libraries cannot be reached by name."
        RESOURCE_LIMIT "resource-limit" "What starts the program limits it to less than it needs."
    }
    Ollama ollama "ollama" "Ollama" needs [] {
        OLLAMA_MISSING "ollama-missing" "There is no Ollama to give the GPU to."
        OLLAMA_STATIC "ollama-static" "A static program has no dynamic loader to hand libraries to."
        OLLAMA_SECURE "ollama-secure" "The loader ignores LD_PRELOAD for setuid programs and those with file capabilities."
        OLLAMA_FOREIGN "ollama-foreign" "The libraries are for x86-64 and glibc."
        OLLAMA_CONFINED "ollama-confined" "A snap or container has its own root and its own processes."
        LIBRARIES_MISSING "libraries-missing" "Ollama keeps its backends in lib/ollama beside it."
        NEEDED_MISSING "needed-missing" "A program whose libraries are not all there is not started by the loader."
        IMPORT_MISSING "import-missing" "A function that no library has ends llama-server when it is first called: with a model."
        MIXED_INSTALL "mixed-install" "Files of two releases do not work together."
        OLLAMA_DAMAGED "ollama-damaged" "A program that is not whole does not start."
        NOT_EXECUTABLE "not-executable" "The user that Ollama runs as must be able to execute its programs."
        LIBRARIES_UNREADABLE "libraries-unreadable" "The user that Ollama runs as must be able to read its libraries."
        HOME_REFUSED "home-refused" "The server keeps a key and its models in its home, and ends where it may not."
        NOT_OLLAMA "not-ollama" "What is called ollama is something else."
        PRIVATE_TABLES "private-tables" "Behind NVIDIA's private export tables is a check that the driver is genuine, which vgpu-run does not defeat."
    }
    Backend backend "backend" "CUDA backend" needs [Ollama] {
        BACKEND_MISSING "backend-missing" "Without libggml-cuda.so Ollama runs on the CPU and does not say why."
        BACKEND_UNREADABLE "backend-unreadable" "The backend's file is damaged."
        NEEDED_MISSING "needed-missing" "The loader refuses a backend that needs a library which cannot be found."
        IMPORT_MISSING "import-missing" "The backend asks for a function that no library provides."
        VERSION_NODE "version-node" "The backend asks for a function under a version that no library provides."
        NO_ARCHITECTURE "no-architecture" "The backend has no code for this device's compute capability."
        RUNTIME_TOO_NEW "runtime-too-new" "The backend's CUDA runtime needs a newer driver than the device has."
        PTX_TOO_NEW "ptx-too-new" "A driver compiles PTX of its own release and older ones, and every kernel of a newer backend fails."
        PRIVATE_TABLES "private-tables" "Behind NVIDIA's private export tables is a check that the driver is genuine, which vgpu-run does not defeat."
    }
    Init init "init" "Backend starts" needs [Host Shims Backend] {
        LOAD_FAILED "load-failed" "The dynamic loader refused the backend; Ollama keeps silent about that."
        CRASHED "crashed" "The backend crashed while it started."
        TIMED_OUT "timed-out" "The backend did not start in time; Ollama gives up after 3 to 30 seconds."
        NO_DEVICE "no-device" "The backend started and found no device."
        CUDA_ERROR "cuda-error" "A CUDA call failed while the backend started."
    }
    Agreement agreement "agreement" "CUDA, NVML and sysfs" needs [Init] {
        PCI_ID "pci-id" "Ollama joins what CUDA and NVML say by PCI id."
        UUID "uuid" "Ollama joins what CUDA and NVML say by UUID."
        MEMORY "memory" "Ollama plans by the memory that it is told of."
        CAPABILITY "capability" "Ollama chooses a backend by compute capability."
        DRIVER_FLOOR "driver-floor" "Ollama drops devices whose driver is older than 550, or 570 for compute capability below 7."
        ZERO_MEMORY "zero-memory" "Ollama takes a device without memory for none."
        LARGE_CONTEXT "large-context" "Ollama chooses its default context by the device's memory, and a long context takes much of it."
    }
    DataPath data_path "data-path" "Data path" needs [Init] {
        ALLOCATION "allocation" "The device's memory cannot be had."
        COPY_WRONG "copy-wrong" "What comes back is not what went out."
        LAUNCH_FAILED "launch-failed" "A kernel could not be run."
        RESULT_WRONG "result-wrong" "A kernel's result is wrong."
        GEMM_WRONG "gemm-wrong" "A matrix product is wrong."
        SESSION_LOST "session-lost" "The connection to the host broke while it was used."
        TIMED_OUT "timed-out" "The host took work and did not finish it in time."
    }
    Discovery discovery "discovery" "Ollama's discovery" needs [Init] {
        TIMED_OUT "timed-out" "Ollama gives up on a device that is not found in time."
        CRASHED "crashed" "One of Ollama's discovery processes crashed."
        FILTERED_ARCH "filtered-arch" "Ollama drops a device whose compute capability its backend was not built for."
        FILTERED_DRIVER "filtered-driver" "Ollama drops a device whose driver it takes for too old."
        FILTERED_MEMORY "filtered-memory" "Ollama drops a device that reports no memory."
        BACKEND_NOT_LOADED "backend-not-loaded" "Ollama's own process could not load the backend."
        ENVIRONMENT_STRIPPED "environment-stripped" "Ollama's processes do not get the environment that vgpu-run set."
        NO_DEVICE "no-device" "Ollama's own processes see no CUDA device."
        RESOURCE_LIMIT "resource-limit" "One of Ollama's processes is limited to less than it needs."
        KILLED_BY_FILTER "killed-by-filter" "A seccomp filter ends one of Ollama's processes at a system call that it must make."
        NO_CPU_BACKEND "no-cpu-backend" "Every model needs GGML's backend of the processor beside the GPU's, and fails to load without."
    }
    Service service "service" "Running service" needs [] {
        NOT_WRAPPED "not-wrapped" "The running service was not started by vgpu-run."
        STALE "stale" "The service was changed and not restarted."
        RUNNER_WITHOUT_SHIMS "runner-without-shims" "The process that holds the model has not loaded the libraries."
        FOUND_CPU "found-cpu" "The service looked for a GPU and found none."
        MODEL_ON_CPU "model-on-cpu" "The loaded model lies in the CPU's memory."
        NOT_ANSWERING "not-answering" "The service does not answer."
        ADDRESS_TAKEN "address-taken" "Clients reach what listens at the service's address, whoever that is."
        SESSION_DEAD "session-dead" "A session ends when the device is restarted; its process learns that when it next uses the device."
        MODEL_FAILED "model-failed" "The running server could not have the model say a word."
        KERNELS_REFUSED "kernels-refused" "A program learns an error's number when the host refuses a kernel, and ends or goes on without the device."
    }
    Truth truth "truth" "Ollama itself" needs [] {
        FOUND_CPU "found-cpu" "Ollama's server looks for GPUs once, when it starts, and computes on what it found."
        SERVER_DIED "server-died" "Without its server nothing of Ollama works, on the GPU or off it."
        SERVER_SILENT "server-silent" "Ollama's server answers nothing before it has looked for GPUs."
        LAUNCHER_REFUSED "launcher-refused" "What cannot get the GPU is not started, unless --allow-cpu is given."
    }
}

/// The link of a name.
pub fn link(id: &str) -> Option<&'static Link> {
    vgpu_findings::catalogue::link(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_has_no_flaws() {
        assert_eq!(vgpu_findings::catalogue::flaws::<LinkId>(), [""; 0]);
    }
}
