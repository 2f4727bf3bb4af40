//! The chain by which Ollama finds a GPU, as data: its links in the order in which a call travels them, what each needs, and what
//! is known to break it. Ids are permanent: scripts and bug reports name them.

/// One step of the chain.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// Its permanent name.
    pub id: LinkId,
    /// A few words for the start of a line.
    pub title: &'static str,
    /// Links without which this one cannot be looked at, all earlier in the chain.
    pub needs: &'static [LinkId],
    /// The causes that are told apart, each with the sentence that says why it matters. A breakage that is none of them is `unknown`.
    pub causes: &'static [Cause],
}

/// A cause that is told apart from others.
#[derive(Debug, PartialEq, Eq)]
pub struct Cause {
    /// Its permanent name, unique within the link.
    pub id: &'static str,
    /// Why it matters to an operator: one sentence.
    pub why: &'static str,
}

/// What the cause of a breakage is called that nobody foresaw: said with its evidence, and never guessed at.
pub const UNKNOWN: &str = "unknown";

macro_rules! links {
    ($($name:ident $id:literal $title:literal needs [$($need:ident)*] { $($cause:literal $why:literal)* })*) => {
        /// The permanent names of the links, in the order of the chain.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the catalogue below says what each is")]
        pub enum LinkId { $($name),* }

        impl LinkId {
            /// As it is written.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $id),* }
            }
        }

        /// All links.
        pub static LINKS: &[Link] = &[$(Link {
            id: LinkId::$name,
            title: $title,
            needs: &[$(LinkId::$need),*],
            causes: &[$(Cause { id: $cause, why: $why }),*],
        }),*];
    };
}

links! {
    Kernel "kernel" "Kernel and sandbox" needs [] {
        "no-executable-mapping" "The libraries can be handed over only where memory files or a private folder may be mapped for execution."
        "no-proc" "The libraries are named through /proc, which is not mounted here."
    }
    Pci "pci" "PCI function" needs [] {
        "sysfs-missing" "The device is found through sysfs."
        "device-absent" "Without the VGPU-STUB function the guest has no way to the host's GPU."
        "real-gpu" "A real GPU has the same PCI id as VGPU-STUB; vgpu-run leaves it alone."
        "bars-missing" "The registers or the shared window have no address, so nothing can be said to the host."
        "memory-decoding-off" "The function does not answer to its addresses until memory decoding is on."
        "driver-bound" "A kernel driver owns the function and may write to its registers."
    }
    Permission "permission" "Permission" needs [Pci] {
        "device-permission" "The user that Ollama runs as must be able to open the device's files."
        "lockdown" "Kernel lockdown refuses device memory even to root."
        "turn-file" "Processes of a machine take turns at a device of version 1, by a file that each of them must be able to open."
        "sysfs-read-only" "The device's files must be opened for writing, and sysfs is read-only here."
    }
    Device "device" "Device" needs [Permission] {
        "host-gone" "Nobody serves the device on the host's side."
        "device-mute" "Every process of Ollama asks the device when it starts, and waits for as long as it is silent."
        "not-a-stub" "What answers is no VGPU-STUB device."
        "version-1" "The registers say version 1 of the protocol, the BARs version 2: neither can be trusted."
        "device-slow" "Every start of a process waits for the device's registers, and Ollama gives up after 3 seconds."
        "speech-mismatch" "Guest and host are of different builds and would misunderstand each other."
    }
    Window "window" "Shared window" needs [Device] {
        "window-unmappable" "All data travels through the shared window."
        "window-slow" "Copies can be no faster than the window."
        "no-channel" "Each process needs a channel of the window, and all are taken."
    }
    Host "host" "Host" needs [Device] {
        "executor-not-ready" "The host has nothing to run the calls on."
        "bad-facts" "Ollama drops a device whose own description makes no sense."
        "no-memory" "A device without free memory is not used."
        "session-refused" "The host lets no process in."
        "context-lost" "A kernel's fault ended the GPU context that all processes share on a host of version 1, and such a host makes no other."
        "owners-taken" "A host of version 1 has room for so many processes of all its virtual machines, and all of it is taken."
        "echo-slow" "Every token waits for answers of the host: it comes no faster than they do."
        "no-echo" "The host took a message and did not answer in time."
    }
    Shims "shims" "Libraries" needs [Kernel] {
        "handover-refused" "The libraries must reach the process that loads the backend."
        "map-refused" "The loader could not map the libraries for execution."
        "shim-unresolved" "A library that lacks a symbol of this system's C library is not loaded."
    }
    Environment "environment" "Environment" needs [] {
        "visible-devices" "CUDA shows only the devices that CUDA_VISIBLE_DEVICES names."
        "library-override" "OLLAMA_LLM_LIBRARY limits Ollama to one backend folder."
        "backend-override" "GGML_BACKEND_PATH makes llama-server load another backend."
        "num-gpu-zero" "A setting keeps all layers on the CPU."
    }
    Loader "loader" "Dynamic loader" needs [Shims] {
        "no-glibc" "Ollama's releases and NVIDIA's libraries, which ours stand in for, are glibc's."
        "other-library-wins" "The backend would talk to another library of the same name instead of ours."
        "global-preload" "A library in /etc/ld.so.preload enters every process and comes before ours."
        "preload-stripped" "What starts the program removes LD_PRELOAD, so the libraries do not get in."
        "descriptors-closed" "A process on the way closes descriptors, so the libraries cannot be reached by name."
    }
    Ollama "ollama" "Ollama" needs [] {
        "ollama-missing" "There is no Ollama to give the GPU to."
        "ollama-static" "A static program has no dynamic loader to hand libraries to."
        "ollama-secure" "The loader ignores LD_PRELOAD for setuid programs and those with file capabilities."
        "ollama-foreign" "The libraries are for x86-64 and glibc."
        "ollama-confined" "A snap or container has its own root and its own processes."
        "libraries-missing" "Ollama keeps its backends in lib/ollama beside it."
        "mixed-install" "Files of two releases do not work together."
        "not-ollama" "What is called ollama is something else."
        "private-tables" "Behind NVIDIA's private export tables is a check that the driver is genuine, which vgpu-run does not defeat."
    }
    Backend "backend" "CUDA backend" needs [Ollama] {
        "backend-missing" "Without libggml-cuda.so Ollama runs on the CPU and does not say why."
        "backend-unreadable" "The backend's file is damaged."
        "needed-missing" "The loader refuses a backend that needs a library which is nowhere."
        "import-missing" "The backend asks for a function that no library provides."
        "version-node" "The backend asks for a function under a version that no library provides."
        "no-architecture" "The backend has no code for this device's compute capability."
        "runtime-too-new" "The backend's CUDA runtime needs a newer driver than the device has."
        "private-tables" "Behind NVIDIA's private export tables is a check that the driver is genuine, which vgpu-run does not defeat."
    }
    Init "init" "Backend starts" needs [Host Shims Backend] {
        "load-failed" "The dynamic loader refused the backend; Ollama keeps silent about that."
        "crashed" "The backend crashed while it started."
        "timed-out" "The backend did not start in time; Ollama gives up after 3 to 30 seconds."
        "no-device" "The backend started and found no device."
        "cuda-error" "A CUDA call failed while the backend started."
    }
    Agreement "agreement" "CUDA, NVML and sysfs" needs [Init] {
        "pci-id" "Ollama joins what CUDA and NVML say by PCI id."
        "uuid" "Ollama joins what CUDA and NVML say by UUID."
        "memory" "Ollama plans by the memory that it is told of."
        "capability" "Ollama chooses a backend by compute capability."
        "driver-floor" "Ollama drops devices whose driver is older than 550, or 570 for compute capability below 7."
        "zero-memory" "Ollama takes a device without memory for none."
        "large-context" "Ollama chooses its default context by the device's memory, and a long context takes much of it."
    }
    DataPath "data-path" "Data path" needs [Init] {
        "allocation" "The device's memory cannot be had."
        "copy-wrong" "What comes back is not what went out."
        "launch-failed" "A kernel could not be run."
        "result-wrong" "A kernel's result is wrong."
        "gemm-wrong" "A matrix product is wrong."
        "session-lost" "The connection to the host broke while it was used."
        "timed-out" "The host took work and did not finish it in time."
    }
    Discovery "discovery" "Ollama's discovery" needs [Init] {
        "timed-out" "Ollama gives up on a device that is not found in time."
        "crashed" "One of Ollama's discovery processes crashed."
        "filtered-arch" "Ollama drops a device whose compute capability its backend was not built for."
        "filtered-driver" "Ollama drops a device whose driver it takes for too old."
        "filtered-memory" "Ollama drops a device that reports no memory."
        "backend-not-loaded" "Ollama's own process could not load the backend."
        "environment-stripped" "Ollama's processes do not get the environment that vgpu-run set."
        "no-device" "Ollama's own processes see no CUDA device."
    }
    Service "service" "Running service" needs [] {
        "not-wrapped" "The running service was not started by vgpu-run."
        "stale" "The service was changed and not restarted."
        "runner-without-shims" "The process that holds the model has not loaded the libraries."
        "found-cpu" "The service looked for a GPU and found none."
        "model-on-cpu" "The loaded model lies in the CPU's memory."
        "not-answering" "The service does not answer."
        "kernels-refused" "A program learns an error's number when the host refuses a kernel, and ends or goes on without the device."
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

/// A link's cause of that name.
pub fn cause(link: LinkId, id: &str) -> Option<&'static Cause> {
    of(link).causes.iter().find(|cause| cause.id == id)
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
                cause.why.ends_with('.')
                    && cause
                        .why
                        .starts_with(|first: char| first.is_uppercase() || first.is_ascii_uppercase()),
                "{}",
                cause.why
            );
        }
    }

    #[test]
    fn links_are_found_by_name() {
        assert_eq!(link("data-path").map(|link| link.id), Some(LinkId::DataPath));
        assert_eq!(link("data_path"), None);
        assert!(LINKS.iter().all(|link| of(link.id) == link));
        assert!(
            cause(LinkId::Pci, "device-absent").is_some() && cause(LinkId::Host, "device-absent").is_none()
        );
    }
}
