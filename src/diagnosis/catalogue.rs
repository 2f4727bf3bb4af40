//! The chain by which Ollama finds a GPU, as data: its links in the order in which a call passes them, the
//! links that each link needs, the known causes of failure, and the remedies.
//!
//! Ids never change, because scripts and bug reports refer to them.

use vgpu_findings::Remedy;
pub use vgpu_findings::catalogue::{entry, find_cause};

/// A link of the chain by which Ollama finds a GPU.
pub type Link = vgpu_findings::Link<LinkId>;

/// Known reason why a link of this chain can be broken.
pub type Cause = vgpu_findings::Cause<LinkId>;

// Remedies of several causes.
const REPORT: Remedy = Remedy::new("Please report it, with what check found.")
    .command("vgpu-run check --bundle vgpu-run-check.tar.gz");
const WRONG: Remedy =
    Remedy::new("Do not use the device: results would be wrong. Please report it, with what check found.")
        .command("vgpu-run check --bundle vgpu-run-check.tar.gz");
const UPDATE_HOST: Remedy =
    Remedy::new("Update the device process on the VM's host, or correct its description of the GPU.");
const NEW_CODE: Remedy = Remedy::new(
    "Put the libraries into a directory (or, with --via memory, into memory): a security module or a seccomp filter may forbid programs to map code from where they are now.",
)
.command("vgpu-run --via folder ollama serve");
const UNSET: Remedy = Remedy::new("Unset {variable}.").command("unset {variable}");
const LIBRARIES_AGAIN: Remedy =
    Remedy::new("Install Ollama again; its archive brings the libraries.").command("{install}").as_root();
const BACKEND_AGAIN: Remedy =
    Remedy::new("Install Ollama again; its archive brings the backend.").command("{install}").as_root();
const UPDATE: Remedy = Remedy::new("Update vgpu-run: this backend uses functions that are newer than it.");
const NEWER_SYSTEM: Remedy =
    Remedy::new("Use a newer distribution, or a release of Ollama that was built for this one.");
const OTHER_RELEASE: Remedy = Remedy::new("Use a release of Ollama that was built for this GPU.");
const NEWER_DRIVER: Remedy = Remedy::new("Update the driver on the host.");
const HOST_FAULT: Remedy = Remedy::new(
    "Read the device process's log on the VM's host, and report the fault with what check found.",
)
.command("vgpu-run check --bundle vgpu-run-check.tar.gz");
const FASTER: Remedy =
    Remedy::new("Give the VM more processors, or put Ollama's libraries on a faster disk.");
const RESTART: Remedy = Remedy::new("Restart it.").command("{restart}").as_root();
const DYNAMIC_RUNTIME: Remedy =
    Remedy::new("Use a build with the CUDA runtime linked dynamically (nvcc -cudart shared).");
const WITHOUT_LIBRARY: Remedy = Remedy::new("Use a build without this library.");

vgpu_findings::chain! {
    Kernel kernel "kernel" "Kernel and sandbox" needs [] {
        NO_EXECUTABLE_MAPPING "no-executable-mapping" "The loader maps vgpu-run's libraries for execution, from memory files or from a private directory."
            => Remedy::new("Mount /dev/shm without noexec, or set XDG_RUNTIME_DIR to a directory of yours on a file system without it.")
                .command("mount -o remount,exec /dev/shm").as_root(),
            IN_UNIT => Remedy::new("Let {unit} call memfd_create: remove what refuses it from SystemCallFilter=, or else add /dev/shm to ExecPaths=.").command("systemctl edit {unit}").as_root(),
            OTHER_MODE => Remedy::new("Put the libraries into a directory instead of memory.").command("vgpu-run --via folder ollama serve");
        RESOURCE_LIMIT "resource-limit" "No process of Ollama's starts with so little, and check itself has no room to look further.";
        NO_NULL_DEVICE "no-null-device" "Every program that Ollama starts gets /dev/null for its input."
            => Remedy::new("Create the device file again.")
                .command("mknod -m 666 /dev/null.new c 1 3 && mv -f /dev/null.new /dev/null").as_root(),
            NULL_REFUSED => Remedy::new("Let every program open it: with mode 666, and allowed by DevicePolicy= and DeviceAllow= of the unit or by the container's device rules.").command("ls -l /dev/null"),
            FILE_LIMIT => Remedy::new("Raise the limit on open files: ulimit -n, LimitNOFILE= in a unit, or fs.file-max of the system.");
        NO_PROCESS "no-process" "Ollama's server starts processes to look for GPUs and to run models."
            => Remedy::new("Raise the limit on processes: ulimit -u, pids.max of the control group, or LimitNPROC= and TasksMax= in a unit.")
                .command("cat /sys/fs/cgroup/$(cut -d: -f3 /proc/self/cgroup)/pids.max"),
            NO_MEMORY => Remedy::new("Free memory, or raise the limit on it: ulimit -v, memory.max of the control group, or LimitAS= and MemoryMax= in a unit.").command("free -h"),
            CALL_REFUSED => Remedy::new("Allow the system calls clone and clone3: in SystemCallFilter= of the unit, or in the container's seccomp profile.");
        EVENTS_REFUSED "events-refused" "Ollama's server waits for its connections by these calls, and ends without them."
            => Remedy::new("Allow the system calls epoll_create1 and eventfd2: in SystemCallFilter= of the unit, or in the container's seccomp profile.");
        CALLS_REFUSED "calls-refused" "Ollama's programs, or vgpu-run's libraries in them, make these calls to start or to load a model, and fail without them."
            => Remedy::new("Allow {calls} in the filter of system calls, which what starts this process sets: a container's runtime by its seccomp profile, a unit by SystemCallFilter=."),
            CALLS_IN_UNIT => Remedy::new("Add the line SystemCallFilter={calls} to the section [Service] of {unit}, and restart it.").command("systemctl edit {unit}").as_root();
        NO_LOOPBACK "no-loopback" "Ollama's server talks to its runners over the loopback interface."
            => Remedy::new("Bring the loopback interface up.").command("ip link set lo up").as_root();
        NO_PROC "no-proc" "The libraries are named by paths in /proc, which is not mounted here."
            => Remedy::new("Mount proc.").command("mount -t proc proc /proc").as_root();
    }
    Pci pci "pci" "PCI function" needs [] {
        SYSFS_MISSING "sysfs-missing" "The device is found through sysfs."
            => Remedy::new("Mount sysfs.").command("mount -t sysfs sysfs /sys").as_root(),
            OTHER_FOLDER => Remedy::new("Unset VGPU_SYSFS, which makes vgpu-run look in that directory instead of /sys, or start the device there.").command("unset VGPU_SYSFS"),
            UNREADABLE => Remedy::new("Mount sysfs, and let this user read it."),
            FILE_UNREADABLE => Remedy::new("Let this user read that file, as every user of sysfs may.").command("chmod a+r {path}").as_root(),
            CLOSED => Remedy::new("Let this user search the directory {path}, as every user of sysfs may.").command("chmod a+x {path}").as_root(),
            FILE_FAILS => Remedy::new("Read what the kernel says about that function.").command("dmesg").as_root();
        DEVICE_ABSENT "device-absent" "This VM reaches the host's GPU through that PCI device alone."
            => Remedy::new("Have the host's administrator add the device to this VM; lspci then lists it.")
                .command("lspci -d 10de:2331");
        REAL_GPU "real-gpu" "A real GPU has the same PCI id as VGPU-STUB; vgpu-run leaves it alone."
            => Remedy::new("A real GPU needs NVIDIA's driver and no vgpu-run: start the program without it.");
        BARS_MISSING "bars-missing" "Without an address for its registers and its shared window the device cannot be used."
            => Remedy::new("Give the VM a firmware or a machine type that has room for the device's memory (with QEMU: OVMF, q35), or have the host give it a smaller window.");
        MEMORY_DECODING_OFF "memory-decoding-off" "The function does not answer to its addresses until memory decoding is on."
            => Remedy::new("Have vgpu-run turn it on at each boot (add --device-only where no service runs Ollama), or write 1 to {folder}/enable.")
                .command("vgpu-run service install").as_root(),
            STAYS_OFF => Remedy::new("Restart this VM. If it stays off, have the host replace the device, which does not keep what is written to {folder}/enable.");
        DRIVER_BOUND "driver-bound" "A kernel driver owns the function and may write to its registers."
            => Remedy::new("Unbind the driver from the device.")
                .command("echo {device} > {folder}/driver/unbind").as_root();
    }
    Permission permission "permission" "Permission" needs [Pci] {
        DEVICE_PERMISSION "device-permission" "The user that Ollama runs as must be able to open the device's files."
            => Remedy::new("Start vgpu-run as root with --user NAME, which gives that user the device, or have a udev rule give {folder}/resource* to a group of that user.")
                .command("sudo vgpu-run --user \"$USER\" ollama serve").as_root(),
            WRITABLE => Remedy::new("Make sysfs writable: in a service, set ProtectKernelTunables=no and take /sys out of ReadOnlyPaths=."),
            FOREIGN_FOLDER => Remedy::new("VGPU_SYSFS must name a directory to which nobody else may write, because root gives the files in it to the user."),
            UNKNOWN_USER => Remedy::new("Name a user that exists: in User= of the service's unit, or after --user."),
            CHANGED_SERVICE => Remedy::new("Something has changed since vgpu-run set the service up: this names it.").command("{command}").as_root(),
            PLAIN_SERVICE => Remedy::new("Have vgpu-run set the service up: a udev rule then gives it the device.").command("{command}").as_root(),
            OWN_SERVICE => Remedy::new("Have the service start vgpu-run as root, which gives the device to the user and drops to it.").command("{command}").as_root(),
            UNKNOWN_SERVICE => Remedy::new("Name a service that exists: --service NAME.");
        LOCKDOWN "lockdown" "Kernel lockdown refuses device memory even to root."
            => Remedy::new("Turn Secure Boot off in this VM, or remove lockdown= from its kernel's command line.");
        TURN_FILE "turn-file" "Processes take turns at a device of version 1 with a lock file, which each of them must be able to open."
            => Remedy::new("Let every user of the device read and write the file.")
                .command("chmod 666 {path}").as_root();
        SYSFS_READ_ONLY "sysfs-read-only" "The device's files must be opened for writing, and sysfs is read-only here."
            => Remedy::new("Mount sysfs writable; in a service, set ProtectKernelTunables=no.").command("mount -o remount,rw /sys").as_root(),
            SANDBOX => Remedy::new("Set {setting} in a drop-in of the unit, and restart it.").command("{command}").as_root();
    }
    Device device "device" "Device" needs [Permission] {
        HOST_GONE "host-gone" "No process on the VM's host serves the device."
            => Remedy::new("On the VM's host, start the device process again and run vgpu-device replug, or restart this VM."),
            DEVICE_PROCESS => Remedy::new("Start the device process again: it is not running.");
        DEVICE_MUTE "device-mute" "Every process of Ollama asks the device when it starts, and waits for as long as it is silent."
            => Remedy::new("Restart the device process on the VM's host: it is stopped, hung or overloaded."),
            MEDIATOR => Remedy::new("Restart the mediator on the device's host: it is stopped or hung."),
            TURN => Remedy::new("End that process, which is stopped or waits for the host.").command("kill -KILL {process}").as_root();
        NOT_A_STUB "not-a-stub" "The function that answers is no VGPU-STUB device."
            => Remedy::new("Compare what the bus says of the function with what the host says of its device.")
                .command("lspci -vv -d 10de:2331");
        VERSION_1 "version-1" "The registers say version 1 of the protocol, the BARs version 2: neither can be trusted."
            => Remedy::new("Update the device process on the VM's host.");
        DEVICE_SLOW "device-slow" "Every start of a process waits for the device's registers, and Ollama gives up after 3 seconds."
            => Remedy::new("Give the device process on the VM's host a processor of its own: the host may be overloaded.");
        SPEECH_MISMATCH "speech-mismatch" "Guest and host are of different builds and would misunderstand each other."
            => Remedy::new("Install the vgpu-run of the host's release.");
    }
    Window window "window" "Shared window" needs [Device] {
        WINDOW_UNMAPPABLE "window-unmappable" "All data travels through the shared window."
            => REPORT,
            NO_WINDOW => Remedy::new("Have the host give the device a window: the function has none."),
            SHORT_WINDOW => Remedy::new("Have the host give the device a window of the size that it announces.");
        WINDOW_SLOW "window-slow" "Copies can be no faster than the window."
            => Remedy::new("Have the host back the window by shared memory that the hypervisor maps into the VM, and make BAR2 prefetchable.");
        NO_CHANNEL "no-channel" "Each process needs a channel of the window, and all are taken."
            => Remedy::new("End programs that use the device, or have the host give it more channels.");
    }
    Host host "host" "Host" needs [Device] {
        EXECUTOR_NOT_READY "executor-not-ready" "The host has no GPU or driver ready to run CUDA calls on."
            => Remedy::new("Read the device process's log on the VM's host: it says which GPU or driver is missing."),
            MEDIATOR => Remedy::new("Start the mediator on the device's host.");
        BAD_FACTS "bad-facts" "Ollama drops a device whose own description makes no sense."
            => UPDATE_HOST,
            NO_FACTS => Remedy::new("Read the device process's log on the VM's host: the GPU, or its description, is missing.");
        NO_MEMORY "no-memory" "A device without free memory is not used."
            => Remedy::new("End other programs that hold the device's memory, in this VM or on the host.");
        MEMORY_TOO_SMALL "memory-too-small" "Ollama leaves a part of a device's memory free, and puts no layer onto a device that has no more than that."
            => Remedy::new("Have the host give the device more memory, or let less stay free: set LLAMA_ARG_FIT_TARGET lower where llama-server loads models."),
            KEPT_FREE => Remedy::new("Unset {variable}, which keeps that much free.").command("unset {variable}");
        SESSION_REFUSED "session-refused" "The host starts no session for any process of this VM."
            => Remedy::new("Read the device process's log on the VM's host, which says why it refuses sessions."),
            QUARANTINE => Remedy::new("Ask the host's administrator why this virtual machine is in quarantine.");
        CONTEXT_LOST "context-lost" "A kernel's fault ended the GPU context that all processes share on a host of version 1, and such a host makes no other."
            => Remedy::new("Restart the mediator on the device's host: until then it refuses every process of every virtual machine.");
        OWNERS_TAKEN "owners-taken" "A host of version 1 serves a fixed number of processes for all its virtual machines together, and that number is reached."
            => Remedy::new("End GPU programs in this or another virtual machine of the host. If few run, restart the host's mediator, which still counts processes that have died.");
        ADDRESSES_SHARED "addresses-shared" "A copy names memory by address alone, so devices that share addresses cannot be used by one process."
            => Remedy::new("On the VM's host, start the device process of each with an --address-range of its own (they choose different ones by themselves where they share a directory of locks).");
        ADDRESSES_UNAVAILABLE "addresses-unavailable" "A process reserves the addresses of a device's memory before it uses the device."
            => Remedy::new("Lift the limit on address space, which is LimitAS= in a service. If there is none, the program's own memory lies there: have the host give the device another --address-range.")
                .command("ulimit -v unlimited"),
            UNIT_LIMIT => Remedy::new("Set LimitAS=infinity in {unit}, and restart it.").command("systemctl edit {unit}").as_root(),
            ADDRESS_SPACE => Remedy::new("Lift the limit on address space, which is LimitAS= in a service.").command("ulimit -v unlimited");
        ECHO_SLOW "echo-slow" "Every token waits for answers of the host, and comes no faster than they do."
            => Remedy::new("Give the VM and its host processors of their own: one of them may be overloaded.");
        NO_ECHO "no-echo" "Every call of Ollama's that needs an answer of the host waits as long."
            => Remedy::new("Restart the device process on the VM's host: it hangs or is overloaded.");
    }
    Shims shims "shims" "Libraries" needs [Kernel] {
        HANDOVER_REFUSED "handover-refused" "The libraries must reach the process that loads the backend."
            => NEW_CODE;
        MAP_REFUSED "map-refused" "The loader could not map the libraries for execution."
            => NEW_CODE;
        FILE_SIZE_LIMIT "file-size-limit" "Memory files count against the limit on the size of files."
            => Remedy::new("Lift the limit on the size of files; in a unit, set LimitFSIZE=infinity.").command("ulimit -f unlimited");
        SHIM_UNRESOLVED "shim-unresolved" "A library that lacks a symbol of this system's C library is not loaded."
            => Remedy::new("Use a release build of vgpu-run, whose libraries work with glibc 2.17 and newer, or a newer system.");
    }
    Environment environment "environment" "Environment" needs [] {
        VISIBLE_DEVICES "visible-devices" "CUDA shows only the devices that CUDA_VISIBLE_DEVICES names."
            => UNSET,
            IN_UNIT => Remedy::new("Remove {variable} from the service's environment, and restart it.").command("systemctl edit {unit}").as_root(),
            AS_ROOT => Remedy::new("Run the check as root.");
        LIBRARY_OVERRIDE "library-override" "OLLAMA_LLM_LIBRARY limits Ollama to one backend directory."
            => UNSET;
        BACKEND_OVERRIDE "backend-override" "GGML_BACKEND_PATH makes llama-server load another backend."
            => UNSET;
        NUM_GPU_ZERO "num-gpu-zero" "A setting keeps all layers on the CPU."
            => UNSET;
        API_PREFIX "api-prefix" "Ollama asks llama-server at /health whether a model is loaded, and llama-server answers below the prefix alone: every load fails, after minutes."
            => UNSET;
        API_KEY "api-key" "Ollama sends llama-server no key, so that every prompt fails."
            => UNSET;
        TLS "tls" "Ollama asks llama-server by HTTP whether a model is loaded, so that every load fails after minutes."
            => UNSET;
        MODEL_FILE "model-file" "Every load fails where llama-server does not get this file."
            => UNSET;
        CONTEXT_TOO_SMALL "context-too-small" "A prompt and its answer have room for no more tokens than that."
            => UNSET;
        SPLIT_MODE "split-mode" "Every load fails where the backend does not have such buffers."
            => UNSET;
        LOADER_DEBUG "loader-debug" "The dynamic loader then writes lines for every symbol that it looks up, and each process of Ollama starts many times as slowly."
            => UNSET;
        UNIFIED_MEMORY "unified-memory" "Managed memory needs a GPU in the same machine as the program, and this GPU is the host's."
            => UNSET;
    }
    Loader loader "loader" "Dynamic loader" needs [Shims] {
        NO_GLIBC "no-glibc" "Ollama's releases and vgpu-run's libraries need glibc, and this system has another C library, such as musl."
            => Remedy::new("Run Ollama and vgpu-run in a VM or a container of a distribution with glibc 2.17 or newer (Debian, Ubuntu, Fedora, RHEL, openSUSE, Arch), and give it the device.");
        OTHER_LIBRARY_WINS "other-library-wins" "Ollama's backend would call that library, which does not know the device."
            => Remedy::new("Start Ollama through vgpu-run, without a program between them that changes LD_PRELOAD or LD_LIBRARY_PATH."),
            OTHER_DRIVER => Remedy::new("Move {path} away: an Ollama before 0.12.4 searches its own directory first, then those of LD_LIBRARY_PATH.").command("mv {path} /root/").as_root(),
            PATH_DRIVER => Remedy::new("Remove {folder} from LD_LIBRARY_PATH: an Ollama before 0.12.4 opens the first libcuda.so* in its directories."),
            PRELOADED => Remedy::new("Remove that file from LD_PRELOAD.").command("unset LD_PRELOAD"),
            SCRIPT_CHANGES => Remedy::new("Have vgpu-run start the program itself, or remove what changes LD_PRELOAD from the script.").command("vgpu-run {program} serve");
        GLOBAL_PRELOAD "global-preload" "A library in /etc/ld.so.preload enters every process and comes before ours."
            => Remedy::new("Remove the libraries that you do not need from that file.")
                .command("editor /etc/ld.so.preload").as_root();
        PRELOAD_STRIPPED "preload-stripped" "What starts the program removes LD_PRELOAD, so the libraries do not get in."
            => Remedy::new("Have vgpu-run start the program itself, or remove what sets or clears LD_PRELOAD from the script.")
                .command("vgpu-run {program} serve");
        DESCRIPTORS_CLOSED "descriptors-closed" "A process on the way closes descriptors, so the libraries cannot be reached by name."
            => Remedy::new("Put the libraries into a directory.").command("vgpu-run --via folder ollama serve"),
            SCRIPT_CLOSES => Remedy::new("Put the libraries into a directory, or remove what closes descriptors from the script.").command("vgpu-run --via folder {script} serve");
        RESOURCE_LIMIT "resource-limit" "The program that the script starts is limited to less than it needs.";
    }
    Ollama ollama "ollama" "Ollama" needs [] {
        OLLAMA_MISSING "ollama-missing" "There is no Ollama to give the GPU to."
            => Remedy::new("Install Ollama.").command("{install}").as_root(),
            OPTION => Remedy::new("Name the file of Ollama's program after --ollama."),
            PROGRAM => Remedy::new("Name the program's file."),
            PATH => Remedy::new("Name it by its path.").command("vgpu-run check --ollama {path}");
        OLLAMA_STATIC "ollama-static" "A static program has no dynamic loader to hand libraries to.";
        OLLAMA_SECURE "ollama-secure" "The loader ignores LD_PRELOAD for setuid programs and those with file capabilities.";
        OLLAMA_FOREIGN "ollama-foreign" "The libraries are for x86-64 and glibc.";
        OLLAMA_CONFINED "ollama-confined" "A snap or container has its own root and its own processes."
            => Remedy::new("Start Ollama outside the container, or install vgpu-run in the container and give it the device."),
            SNAP => Remedy::new("Remove the snap and install Ollama's own release.").command("snap remove ollama && { {install}; }").as_root();
        LIBRARIES_MISSING "libraries-missing" "Ollama keeps its backends in lib/ollama beside it."
            => LIBRARIES_AGAIN;
        NEEDED_MISSING "needed-missing" "The loader does not start a program if one of its libraries is missing."
            => Remedy::new("Install Ollama again if the library is one of its own; otherwise install it from the distribution.")
                .command("{install}").as_root();
        IMPORT_MISSING "import-missing" "A function that no library has ends llama-server at its first call: when it loads a model."
            => Remedy::new("Install Ollama again: its directory has files of two releases, or one of another program.")
                .command("{install}").as_root(),
            OLD_SYSTEM => NEWER_SYSTEM;
        MIXED_INSTALL "mixed-install" "Files of two releases do not work together."
            => LIBRARIES_AGAIN,
            CLEAN => Remedy::new("Remove {folder}, and install Ollama again.").command("{install}").as_root(),
            ONE_OF_TWO => Remedy::new("Remove the one that you do not use, or name the right one by its path."),
            OTHER_THAN_THE_SERVICES => Remedy::new("Remove it if nobody uses it: {unit} starts the other, whatever PATH has.");
        OLLAMA_DAMAGED "ollama-damaged" "A damaged file keeps Ollama from starting, or from loading models."
            => Remedy::new("Install Ollama again: that file was copied or unpacked in part.")
                .command("{install}").as_root();
        NOT_EXECUTABLE "not-executable" "The user that Ollama runs as must be able to execute its programs."
            => Remedy::new("Let everybody execute it.").command("chmod a+rx {path}").as_root(),
            SEARCHABLE => Remedy::new("Let everybody search the directory {path}, which is on the way to it.").command("chmod a+x {path}").as_root();
        LIBRARIES_UNREADABLE "libraries-unreadable" "The user that Ollama runs as must be able to read its libraries."
            => Remedy::new("Let Ollama's user read its libraries.")
                .command("chmod -R a+rX {path}").as_root();
        HOME_REFUSED "home-refused" "The server keeps a key and its models in its home, and ends where it may create neither."
            => Remedy::new("Give the directory to the user that Ollama runs as, or set HOME or OLLAMA_MODELS to one that this user may write.")
                .command("ls -ld {path}"),
            READ_ONLY => Remedy::new("Have the file system of {path} mounted writable, or set HOME and OLLAMA_MODELS to directories on another one.").command("findmnt -T {path}");
        NOT_OLLAMA "not-ollama" "The program that is called ollama is another one."
            => Remedy::new("Name Ollama's own program by its path.")
                .command("vgpu-run check --ollama /usr/local/bin/ollama"),
            SCRIPT => Remedy::new("Correct the script, or name Ollama's own program by its path.").command("vgpu-run check --ollama /usr/local/bin/ollama"),
            AGAIN => Remedy::new("Install Ollama again, or name its own program by its path (--ollama).").command("{install}").as_root(),
            PROGRAM_ITSELF => Remedy::new("Name the program itself.");
        PRIVATE_TABLES "private-tables" "Behind NVIDIA's private export tables is a check that the driver is genuine, which vgpu-run does not defeat.",
            LINKED_IN => DYNAMIC_RUNTIME,
            LIBRARY_ASKS => WITHOUT_LIBRARY;
    }
    Backend backend "backend" "CUDA backend" needs [Ollama] {
        BACKEND_MISSING "backend-missing" "Without libggml-cuda.so Ollama runs on the CPU and does not say why."
            => BACKEND_AGAIN,
            UNSET => Remedy::new("Unset OLLAMA_LLM_LIBRARY.").command("unset OLLAMA_LLM_LIBRARY"),
            WITH_CUDA => Remedy::new("Install Ollama's own release, or your distribution's package with the CUDA backend (such as ollama-cuda).").command("{install}").as_root();
        SORTS_FIRST "sorts-first" "Of the libraries in a backend's directory, llama-server loads the first by name."
            => Remedy::new("Move that file away.").command("mv {path} /root/").as_root();
        BACKEND_UNREADABLE "backend-unreadable" "Ollama passes over a backend whose file it cannot read."
            => BACKEND_AGAIN,
            READABLE => Remedy::new("Let the user that Ollama runs as read that file.").command("chmod a+r {path}").as_root(),
            SEARCHABLE => Remedy::new("Let the user that Ollama runs as search the directories on the way to that file.").command("chmod a+x {path}").as_root();
        NEEDED_MISSING "needed-missing" "The loader refuses a backend that needs a library which cannot be found."
            => Remedy::new("Install Ollama again if the library is one of its own; otherwise install it from the distribution."),
            AGAIN => Remedy::new("Replace the damaged file: install Ollama again if it is one of its own, or else its package.");
        IMPORT_MISSING "import-missing" "The backend asks for a function that no library provides."
            => UPDATE,
            TWO_RELEASES => Remedy::new("Install Ollama again: its directory has files of two releases.");
        VERSION_NODE "version-node" "The backend asks for a function under a version that no library provides."
            => UPDATE,
            OLD_SYSTEM => NEWER_SYSTEM;
        NO_ARCHITECTURE "no-architecture" "Ollama drops a device that its backend has no code for, or fails with it."
            => OTHER_RELEASE;
        RUNTIME_TOO_NEW "runtime-too-new" "The backend's CUDA runtime needs a newer driver than the device has."
            => Remedy::new("Update the host's driver, or use the backend for the older CUDA.");
        PTX_TOO_NEW "ptx-too-new" "A driver compiles PTX of its own release and older ones, and every kernel of a newer backend fails."
            => Remedy::new("Update the host's driver, or use a release of Ollama that was built with an older CUDA.");
        PRIVATE_TABLES "private-tables" "Behind NVIDIA's private export tables is a check that the driver is genuine, which vgpu-run does not defeat.",
            LINKED_IN => DYNAMIC_RUNTIME,
            LIBRARY_ASKS => WITHOUT_LIBRARY;
    }
    Init init "init" "Backend start" needs [Host Shims Backend] {
        LOAD_FAILED "load-failed" "The dynamic loader refused the backend; Ollama keeps silent about that."
            => Remedy::new("Install the library that the loader names, or Ollama again if it is one of Ollama's own."),
            NO_FUNCTION => Remedy::new("Install Ollama again, whose files may be of two releases; if the function is one of CUDA's (cu...), update vgpu-run."),
            READABLE => Remedy::new("Let the user that Ollama runs as read that file.");
        CRASHED "crashed" "The backend crashed while it started."
            => REPORT;
        TIMED_OUT "timed-out" "The backend did not start in time; Ollama gives up after 3 to 30 seconds."
            => Remedy::new("Read the device process's log on the VM's host: a call that waits for it gets no answer.")
                .command("vgpu-run check --only host"),
            SLOW => FASTER;
        NO_DEVICE "no-device" "Ollama computes on the CPU if its backend finds no device."
            => REPORT;
        CUDA_ERROR "cuda-error" "A CUDA call failed while the backend started."
            => Remedy::new("Read the device process's log on the VM's host.").command("vgpu-run check --only host");
    }
    Agreement agreement "agreement" "CUDA, NVML and sysfs" needs [Init] {
        PCI_ID "pci-id" "Ollama matches the devices of CUDA and NVML by their PCI ids."
            => UPDATE_HOST,
            SAME_RELEASE => Remedy::new("Install the same release of vgpu-run in this VM and of the device process on its host.");
        UUID "uuid" "Ollama matches the devices of CUDA and NVML by their UUIDs."
            => UPDATE_HOST;
        MEMORY "memory" "Ollama chooses how much of a model goes onto a device by the memory that it reports."
            => UPDATE_HOST;
        CAPABILITY "capability" "Ollama chooses a backend by compute capability."
            => UPDATE_HOST;
        DRIVER_FLOOR "driver-floor" "Ollama drops devices whose driver is older than 550, or 570 for compute capability below 7."
            => NEWER_DRIVER;
        ZERO_MEMORY "zero-memory" "Ollama ignores a device that reports no memory."
            => Remedy::new("Examine the GPU on the VM's host: it is full, or does not answer.")
                .command("vgpu-run check --only host");
        LARGE_CONTEXT "large-context" "Ollama chooses its default context by the device's memory, and a long context takes much of it."
            => Remedy::new("Set a smaller one if models load slowly or do not fit.")
                .command("export OLLAMA_CONTEXT_LENGTH=4096");
    }
    DataPath data_path "data-path" "Data path" needs [Init] {
        ALLOCATION "allocation" "Every model needs memory of the device."
            => Remedy::new("End other programs that hold the device's memory, in this VM and on the host.");
        COPY_WRONG "copy-wrong" "Models would compute wrong results, without any error."
            => WRONG;
        LAUNCH_FAILED "launch-failed" "A model runs thousands of kernels for each token."
            => HOST_FAULT, UNKNOWN_FAULT => HOST_FAULT;
        RESULT_WRONG "result-wrong" "A kernel's result is wrong."
            => WRONG;
        GEMM_WRONG "gemm-wrong" "A matrix product is wrong."
            => WRONG;
        SESSION_LOST "session-lost" "The connection to the host broke while it was used."
            => Remedy::new("Read the device process's log on the VM's host: it was restarted, or the process that served this session ended.");
        TIMED_OUT "timed-out" "The host accepted work and did not finish it in time."
            => Remedy::new("Restart the device process on the VM's host: it hangs or is overloaded.");
    }
    Discovery discovery "discovery" "Ollama's discovery" needs [Init] {
        TIMED_OUT "timed-out" "Ollama gives up on a device that is not found in time."
            => Remedy::new("Install Ollama again: {program} itself hangs, not the device, and may not be Ollama's own file.")
                .command("{install}").as_root(),
            SLOW => FASTER;
        CRASHED "crashed" "One of Ollama's discovery processes crashed."
            => REPORT,
            MIXED => Remedy::new("Install Ollama again: its program and its libggml-cuda.so may be of two releases.");
        FILTERED_ARCH "filtered-arch" "Ollama drops a device whose compute capability its backend was not built for."
            => OTHER_RELEASE;
        FILTERED_DRIVER "filtered-driver" "Ollama drops a device whose driver it takes for too old."
            => NEWER_DRIVER;
        FILTERED_MEMORY "filtered-memory" "Ollama drops a device that reports no memory."
            => Remedy::new("Examine the GPU on the VM's host: it is full, or does not answer.");
        BACKEND_NOT_LOADED "backend-not-loaded" "Ollama's own process could not load the backend."
            => Remedy::new("Install Ollama again; its files do not fit together."),
            UPDATE => Remedy::new("Update vgpu-run: its libcuda.so.1 does not suit this Ollama."),
            READABLE => Remedy::new("Let the user that Ollama runs as read that file.");
        ENVIRONMENT_STRIPPED "environment-stripped" "Ollama's processes do not get the environment that vgpu-run set."
            => Remedy::new("Put Ollama's own llama-server back at {server}: a script in its place clears the environment.").command("file {server}");
        NO_DEVICE "no-device" "The backend finds the device when check loads it, and does not in Ollama's own process."
            => REPORT,
            OTHER_PATH => Remedy::new("Let vgpu-run put the libraries into a directory.").command("vgpu-run --via folder ollama serve"),
            BUG => REPORT;
        RESOURCE_LIMIT "resource-limit" "One of Ollama's processes is limited to less than it needs.";
        SETTING_REFUSED "setting-refused" "A value that llama-server does not accept ends it, when Ollama looks for GPUs or when it loads a model."
            => Remedy::new("Unset {variable}, or give it a value that this release accepts.").command("unset {variable}"),
            SETTING_IN_UNIT => Remedy::new("Remove {variable} from the service's environment, and restart it.").command("systemctl edit {unit}").as_root();
        KILLED_BY_FILTER "killed-by-filter" "A seccomp filter ends one of Ollama's processes at a system call that it must make."
            => Remedy::new("Allow the call: in SystemCallFilter= of the unit, the container's seccomp profile, or what else confines it. The kernel's log has the call's number.")
                .command("journalctl -k | grep type=1326").as_root();
        TEMPORARY_UNUSABLE "temporary-unusable" "An Ollama from 0.12.4 to 0.24 creates a temporary file before it looks for GPUs."
            => Remedy::new("Set TMPDIR to a directory in which Ollama's user may create files.").command("export TMPDIR=/tmp");
        NO_CPU_BACKEND "no-cpu-backend" "Every model needs GGML's CPU backend beside the GPU's, and fails to load without it."
            => Remedy::new("Install Ollama again; its archive brings libggml-cpu-*.so.").command("{install}").as_root();
    }
    Service service "service" "Running service" needs [] {
        NOT_WRAPPED "not-wrapped" "Only an Ollama that vgpu-run starts gets the GPU."
            => Remedy::new("End it, and start it through vgpu-run; or check it as a service with --service."),
            WRAP => Remedy::new("Have vgpu-run start it.").command("{command}").as_root();
        STALE "stale" "The service was changed and not restarted."
            => Remedy::new("Have systemd reload it, and restart it.").command("{restart}").as_root();
        RUNNER_WITHOUT_SHIMS "runner-without-shims" "The process that holds the model has not loaded the libraries."
            => RESTART;
        FOUND_CPU "found-cpu" "Ollama looks for GPUs once, when it starts, and then computes on the CPU."
            => Remedy::new("Restart it: it may have started before the device was ready.").command("{restart}").as_root();
        MODEL_ON_CPU "model-on-cpu" "The loaded model lies in the CPU's memory."
            => Remedy::new("Read the server's log from the load of the model on: it may be larger than the device's memory."),
            UNLOAD => Remedy::new("Unload it, and read the log when it is loaded again: it may be larger than the device's memory.").command("{stop}");
        NOT_ANSWERING "not-answering" "The service does not answer."
            => Remedy::new("Read its log, and check the value of OLLAMA_HOST."),
            READ_LOG => Remedy::new("Read its log, and check OLLAMA_HOST in its unit.").command("journalctl -u {unit} -n 50").as_root(),
            START => Remedy::new("Start it, and read its log.").command("systemctl start {unit}; journalctl -u {unit} -n 50").as_root(),
            UNKNOWN_SERVICE => Remedy::new("Name the service after --service, or install it.").command("systemctl list-units --type=service --all '*ollama*'"),
            OTHER_PROGRAM => Remedy::new("End the program that listens there, or set OLLAMA_HOST to Ollama's address.").command("ss -ltnp").as_root(),
            OTHER_COMMAND => Remedy::new("Have the unit's ExecStart= start `ollama serve`: a program of another name is not recognised.");
        ADDRESS_TAKEN "address-taken" "Clients reach what listens at the service's address, whoever that is."
            => Remedy::new("Give the service another address: set OLLAMA_HOST in its unit, and for its clients."),
            END_OTHER => Remedy::new("End the other one, if it is not meant to run, and restart the service.").command("kill {process}; systemctl restart {unit}").as_root();
        SESSION_DEAD "session-dead" "A session ends when the device is restarted; its process learns that when it next uses the device."
            => RESTART,
            UNLOAD_DEAD => Remedy::new("Unload it; the next prompt loads it anew.").command("{stop}");
        MODEL_FAILED "model-failed" "Every prompt to this model fails in the same way."
            => Remedy::new("Read the server's log from the load of the model on."),
            FETCH => Remedy::new("Fetch the model, or name one that is there.").command("ollama pull {model}"),
            ENDED => Remedy::new("Read the server's log: it ended the connection."),
            IDLE => Remedy::new("Restart the server, which has stopped working on the request, and read its log."),
            PREFIX => Remedy::new("Remove {variable} from the server's environment, and restart it.");
        KERNELS_REFUSED "kernels-refused" "When the host refuses a kernel, Ollama ends or goes on without the device."
            => Remedy::new("Update the device process on the VM's host. If that does not help, please report it, with what check found.")
                .command("vgpu-run check --service --bundle vgpu-run-check.tar.gz").as_root();
    }
    Truth truth "truth" "Ollama itself" needs [] {
        FOUND_CPU "found-cpu" "Ollama's server looks for GPUs once, when it starts, and computes on what it found."
            => Remedy::new("Please report it, with what check found.")
                .command("vgpu-run check --bundle vgpu-run-check.tar.gz"),
            PREDICTED => Remedy::new("Mend the link {link}, which is broken and comes first; then check again.").command("vgpu-run check"),
            DAEMON => Remedy::new("Let the script end in `exec ollama serve`, or wait for the server: one that outlives what vgpu-run started loses the libraries.").command("vgpu-run ollama serve"),
            WITHOUT_SHIMS => Remedy::new("Have vgpu-run start the program itself, without a script that changes its environment.").command("vgpu-run ollama serve");
        SOME_DEVICES "some-devices" "Models get the memory of the devices that Ollama uses, and of no other."
            => Remedy::new("Use a release of Ollama that was built for all of the devices, or leave the others to another program.");
        SERVER_DIED "server-died" "Without its server nothing of Ollama works, on the GPU or off it."
            => Remedy::new("Start the server by hand, without vgpu-run. If it ends in the same way, the fault is Ollama's or its settings'; if not, please report it.").command("OLLAMA_DEBUG=1 ollama serve"),
            SCARCE => Remedy::new("Raise the limits under which it starts: ulimit -a shows those of a shell; those of a service are LimitAS=, LimitNPROC=, TasksMax= and MemoryMax=.");
        SERVER_SILENT "server-silent" "Ollama's server answers nothing before it has looked for GPUs."
            => Remedy::new("Read the end of its log, which names what it started last: that program or its file system hangs.")
                .command("OLLAMA_DEBUG=2 vgpu-run ollama serve"),
            LOCKED => Remedy::new("End that process, or wait for it.").command("ps -fp {process}");
        ADDRESS_TAKEN "address-taken" "Ollama's server ends where something else listens at its address."
            => Remedy::new("End what listens there, or give Ollama another address.").command("export OLLAMA_HOST=127.0.0.1:11435"),
            SET_UP => Remedy::new("Have vgpu-run start it.").command("{command}").as_root(),
            END_STOCK => Remedy::new("End it, and start it through vgpu-run.").command("kill {process} && vgpu-run ollama serve"),
            AS_ROOT => Remedy::new("Run the check as root, which sees whose process it is.").command("sudo vgpu-run check").as_root();
        ADDRESS_UNUSABLE "address-unusable" "Ollama's server ends where it cannot listen at the address in OLLAMA_HOST."
            => Remedy::new("Set OLLAMA_HOST to an address of this machine.").command("export OLLAMA_HOST=127.0.0.1:11434"),
            ADDRESS_IN_UNIT => Remedy::new("Set OLLAMA_HOST in the service's unit to an address of this machine, and restart it.").command("systemctl edit {unit}").as_root(),
            POLICY => Remedy::new("Allow it where it is refused: by SELinux, by SocketBindDeny= of a unit, or by a filter of system calls."),
            PRIVILEGED => Remedy::new("Set OLLAMA_HOST to a port of 1024 or higher, or let every user listen at port {port} and higher.").command("sysctl net.ipv4.ip_unprivileged_port_start={port}").as_root();
        HOME_UNUSABLE "home-unusable" "Ollama's server keeps its key in HOME, and ends where it can neither find nor create it."
            => Remedy::new("Set HOME to a directory in which Ollama's user may create .ollama.").command("ls -ld {path}"),
            HOME_UNSET => Remedy::new("Set HOME to the user's home directory.").command("export HOME=$(getent passwd $(id -u) | cut -d: -f6)"),
            HOME_READ_ONLY => Remedy::new("Have the file system of {path} mounted writable, or set HOME to a directory on another one.").command("findmnt -T {path}"),
            HOME_READ_ONLY_IN_UNIT => Remedy::new("Name {path} in ReadWritePaths= of {unit}, or have StateDirectory= make a directory for its HOME, and restart it.").command("systemctl edit {unit}").as_root(),
            NO_FILE => Remedy::new("Move {path} away: the server reads a regular file there.").command("mv {path} {path}.away"),
            HOME_IN_UNIT => Remedy::new("Set User= in the service's unit, which sets HOME, or Environment=HOME=, and restart it.").command("systemctl edit {unit}").as_root();
        MODELS_UNUSABLE "models-unusable" "Ollama's server creates and reads the directory of its models when it starts, and ends where it may not."
            => Remedy::new("Give the directory to the user that Ollama runs as, or set OLLAMA_MODELS to another one.").command("ls -ld {path}");
        MODELS_READ_ONLY "models-read-only" "The models that are there can be loaded, but ollama pull and ollama create fail."
            => Remedy::new("Let Ollama's user write there if models are to be added.").command("ls -ld {path}");
        TEMPORARY_UNUSABLE "temporary-unusable" "An Ollama from 0.12.4 to 0.24 creates a temporary file before it looks for GPUs."
            => Remedy::new("Set TMPDIR to a directory in which Ollama's user may create files.").command("export TMPDIR=/tmp");
        NO_ROOM "no-room" "Ollama's server ends where it cannot write its key or create its directories."
            => Remedy::new("Free space in that file system.").command("df -h {path}; df -i {path}");
        CONNECTIONS_REFUSED "connections-refused" "Ollama's server ends where it cannot take connections, after it has found its GPUs."
            => Remedy::new("Allow the system call accept4: in SystemCallFilter= of the unit, or in the container's seccomp profile.");
        LAUNCHER_REFUSED "launcher-refused" "A program that cannot get the GPU is not started, unless --allow-cpu is given."
            => Remedy::new("Follow the advice that vgpu-run printed.").command("vgpu-run ollama serve");
    }
}

/// Returns the link with this id.
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
