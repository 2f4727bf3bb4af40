//! The chain by which Ollama finds a GPU, as data: its links in the order in which a call travels them, what
//! each link needs, and the causes that are known to break it.
//!
//! Ids are permanent: scripts and bug reports name them. A [`Cause`] can only be taken from [`cause`], or be
//! [`Cause::unknown`], so a finding with a cause that the catalogue does not list does not compile.

use serde::{Deserialize, Serialize};

/// One step of the chain.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// Its permanent name.
    pub id: LinkId,
    /// A few words for the start of a line.
    pub title: &'static str,
    /// The links without which this one cannot be examined. All of them are earlier in the chain.
    pub needs: &'static [LinkId],
    /// The causes that are told apart. A breakage with any other cause is `unknown`.
    pub causes: &'static [Cause],
}

/// Why a link is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    link: LinkId,
    id: &'static str,
    why: Option<&'static str>,
}

/// The id of a cause that nobody foresaw. It is reported with its evidence and never guessed at.
pub const UNKNOWN: &str = "unknown";

impl Cause {
    /// A breakage of `link` that nobody foresaw.
    pub const fn unknown(link: LinkId) -> Self {
        Self { link, id: UNKNOWN, why: None }
    }

    /// The link that it breaks.
    pub const fn link(self) -> LinkId {
        self.link
    }

    /// Its permanent name, unique within the link.
    pub const fn id(self) -> &'static str {
        self.id
    }

    /// Why it matters to an operator, in one sentence. None for an unknown cause.
    pub const fn why(self) -> Option<&'static str> {
        self.why
    }
}

macro_rules! links {
    ($($name:ident $module:ident $id:literal $title:literal needs [$($need:ident)*] {
        $($cause:ident $cause_id:literal $why:literal)*
    })*) => {
        /// The permanent names of the links, in the order of the chain.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
        #[allow(missing_docs, reason = "the catalogue below describes each")]
        pub enum LinkId { $(#[serde(rename = $id)] $name),* }

        impl LinkId {
            /// The name as it is written.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $id),* }
            }
        }

        /// All causes, in a module for each link.
        #[allow(missing_docs, reason = "the catalogue below gives the reason of each")]
        pub mod cause {
            $(pub mod $module {
                use $crate::diagnosis::catalogue::{Cause, LinkId};

                $(pub const $cause: Cause = Cause { link: LinkId::$name, id: $cause_id, why: Some($why) };)*
            })*
        }

        /// All links, in the order in which they are checked.
        pub static LINKS: &[Link] = &[$(Link {
            id: LinkId::$name,
            title: $title,
            needs: &[$(LinkId::$need),*],
            causes: &[$(cause::$module::$cause),*],
        }),*];
    };
}

links! {
    Kernel kernel "kernel" "Kernel and sandbox" needs [] {
        NO_EXECUTABLE_MAPPING "no-executable-mapping" "The libraries can be handed over only where memory files or a private folder may be mapped for execution."
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
        SHIM_UNRESOLVED "shim-unresolved" "A library that lacks a symbol of this system's C library is not loaded."
    }
    Environment environment "environment" "Environment" needs [] {
        VISIBLE_DEVICES "visible-devices" "CUDA shows only the devices that CUDA_VISIBLE_DEVICES names."
        LIBRARY_OVERRIDE "library-override" "OLLAMA_LLM_LIBRARY limits Ollama to one backend folder."
        BACKEND_OVERRIDE "backend-override" "GGML_BACKEND_PATH makes llama-server load another backend."
        NUM_GPU_ZERO "num-gpu-zero" "A setting keeps all layers on the CPU."
    }
    Loader loader "loader" "Dynamic loader" needs [Shims] {
        NO_GLIBC "no-glibc" "Ollama's releases and NVIDIA's libraries, which ours stand in for, are glibc's."
        OTHER_LIBRARY_WINS "other-library-wins" "The backend would talk to another library of the same name instead of ours."
        GLOBAL_PRELOAD "global-preload" "A library in /etc/ld.so.preload enters every process and comes before ours."
        PRELOAD_STRIPPED "preload-stripped" "What starts the program removes LD_PRELOAD, so the libraries do not get in."
        DESCRIPTORS_CLOSED "descriptors-closed" "A process on the way closes descriptors, so the libraries cannot be reached by name."
    }
    Ollama ollama "ollama" "Ollama" needs [] {
        OLLAMA_MISSING "ollama-missing" "There is no Ollama to give the GPU to."
        OLLAMA_STATIC "ollama-static" "A static program has no dynamic loader to hand libraries to."
        OLLAMA_SECURE "ollama-secure" "The loader ignores LD_PRELOAD for setuid programs and those with file capabilities."
        OLLAMA_FOREIGN "ollama-foreign" "The libraries are for x86-64 and glibc."
        OLLAMA_CONFINED "ollama-confined" "A snap or container has its own root and its own processes."
        LIBRARIES_MISSING "libraries-missing" "Ollama keeps its backends in lib/ollama beside it."
        MIXED_INSTALL "mixed-install" "Files of two releases do not work together."
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
    }
    Service service "service" "Running service" needs [] {
        NOT_WRAPPED "not-wrapped" "The running service was not started by vgpu-run."
        STALE "stale" "The service was changed and not restarted."
        RUNNER_WITHOUT_SHIMS "runner-without-shims" "The process that holds the model has not loaded the libraries."
        FOUND_CPU "found-cpu" "The service looked for a GPU and found none."
        MODEL_ON_CPU "model-on-cpu" "The loaded model lies in the CPU's memory."
        NOT_ANSWERING "not-answering" "The service does not answer."
        KERNELS_REFUSED "kernels-refused" "A program learns an error's number when the host refuses a kernel, and ends or goes on without the device."
    }
}

/// The link of a name.
pub fn link(id: &str) -> Option<&'static Link> {
    LINKS.iter().find(|link| link.id.as_str() == id)
}

/// The link of an id.
pub fn of(id: LinkId) -> &'static Link {
    // In the order of the enumeration: the macro makes both.
    &LINKS[id as usize]
}

/// The cause of `link` with that id; `unknown` if it has no such cause.
pub fn cause_of(link: LinkId, id: &str) -> Cause {
    of(link).causes.iter().copied().find(|cause| cause.id == id).unwrap_or(Cause::unknown(link))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn kebab(id: &str) -> bool {
        !id.is_empty()
            && id.split('-').all(|word| {
                !word.is_empty()
                    && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            })
    }

    #[test]
    fn ids_are_kebab_case_and_unique() {
        let ids: BTreeSet<_> = LINKS.iter().map(|link| link.id.as_str()).collect();
        assert_eq!(ids.len(), LINKS.len());
        assert!(ids.iter().all(|id| kebab(id)));
        for link in LINKS {
            assert!(link.causes.iter().all(|cause| cause.link == link.id));
            assert_eq!(serde_json::to_value(link.id).unwrap(), link.id.as_str());
            let causes: BTreeSet<_> = link.causes.iter().map(|cause| cause.id).collect();
            assert_eq!(causes.len(), link.causes.len(), "{}", link.id.as_str());
            assert!(causes.iter().all(|id| kebab(id) && *id != UNKNOWN));
        }
    }

    #[test]
    fn a_link_needs_earlier_ones_only() {
        for link in LINKS {
            assert!(link.needs.iter().all(|need| *need < link.id), "{}", link.id.as_str());
        }
    }

    #[test]
    fn sentences_are_sentences() {
        for cause in LINKS.iter().flat_map(|link| link.causes) {
            assert!(
                cause.why.is_some_and(|why| why.ends_with('.')
                    && why.starts_with(|first: char| first.is_uppercase() || first.is_ascii_uppercase())),
                "{cause:?}"
            );
        }
    }

    #[test]
    fn links_are_found_by_name() {
        assert_eq!(link("data-path").map(|link| link.id), Some(LinkId::DataPath));
        assert_eq!(link("data_path"), None);
        assert!(LINKS.iter().all(|link| of(link.id) == link));
        assert!(
            cause_of(LinkId::Pci, "device-absent") == cause::pci::DEVICE_ABSENT
                && cause_of(LinkId::Host, "device-absent") == Cause::unknown(LinkId::Host)
        );
    }
}
