//! What a host needs so that a VM gets its GPU, as data: the links in the order in which they are examined,
//! what each link needs, and the causes that are known to break it.
//!
//! Ids are permanent: scripts and bug reports name them.

/// What is found at a link.
pub type Finding = vgpu_findings::Finding<LinkId>;

vgpu_findings::chain! {
    Driver driver "driver" "NVIDIA driver" needs [] {
        MODULE_MISSING "module-missing" "The libraries reach the GPU through NVIDIA's kernel module."
        LIBRARY_MISSING "library-missing" "NVIDIA's driver brings libcuda.so.1, by which vgpu-device reaches the GPU."
        VERSION_MISMATCH "version-mismatch" "Library and kernel module refuse each other unless they are of one version."
        INIT_FAILED "init-failed" "The driver refuses every program of this host until this is mended."
        TOO_OLD "too-old" "The device's address range needs functions that CUDA 12 has."
        DOES_NOT_ANSWER "does-not-answer" "Every guest waits for a driver that does not answer."
        CRASHED "crashed" "The worker of every session would crash in the same way."
    }
    Gpu gpu "gpu" "GPU" needs [Driver] {
        NO_GPU "no-gpu" "There is nothing to give to a VM."
        GPU_ABSENT "gpu-absent" "The GPU that the configuration names is not in this host."
        GPU_AMBIGUOUS "gpu-ambiguous" "With several GPUs the configuration has to say which one the VM gets."
        MEMORY_SHORT "memory-short" "Guests plan by the memory that they are told of, and allocations would fail below it."
    }
    ComputeMode compute_mode "compute-mode" "Compute mode" needs [Gpu] {
        EXCLUSIVE_PROCESS "exclusive-process" "Each guest process gets a worker process with a GPU context of its own, and this mode allows one on the whole GPU."
        PROHIBITED "prohibited" "No process may create a context on the GPU."
    }
    Mps mps "mps" "MPS" needs [] {
        RUNNING "running" "Programs under MPS share one fault domain: a kernel that faults in one guest ends the work of all."
    }
    Mig mig "mig" "MIG instances" needs [Gpu] {
        WHOLE_GPU "whole-gpu" "While MIG is on, programs get its instances and never the whole GPU."
        NO_INSTANCE "no-instance" "While MIG is on, a GPU without instances runs nothing."
    }
    Persistence persistence "persistence" "Persistence mode" needs [Gpu] {
        OFF "off" "The driver resets the GPU when its last user ends, and the next guest process waits for seconds."
    }
    Cublas cublas "cublas" "cuBLAS" needs [] {
        LIBRARY_MISSING "library-missing" "Matrix products of guests are carried out by the host's cuBLAS."
        UNLOADABLE "unloadable" "Matrix products of guests are carried out by the host's cuBLAS."
    }
    Memlock memlock "memlock" "Locked memory" needs [] {
        LIMITED "limited" "Copies go straight to guest memory only where it can be registered, which locks it."
    }
    HugePages huge_pages "huge-pages" "Huge pages" needs [] {
        SMALL_PAGES "small-pages" "With 4 KiB pages the registration of guest memory takes long, and copies are slower."
    }
    Numa numa "numa" "NUMA" needs [Gpu] {
        REMOTE "remote" "Each doorbell and each copy crosses between sockets."
    }
    Socket socket "socket" "Socket's directory" needs [] {
        FOLDER_MISSING "folder-missing" "The socket is created in a directory that has to exist."
        FOLDER_OPEN "folder-open" "Another user can put a socket of theirs in place of this one and gets the VM's memory."
        FOLDER_CLOSED "folder-closed" "QEMU's user cannot reach the socket."
    }
    Qemu qemu "qemu" "QEMU" needs [] {
        QEMU_MISSING "qemu-missing" "The VM's QEMU connects to the device."
        TOO_OLD "too-old" "QEMU has the device vfio-user-pci from 10.1 on."
        NO_VFIO_USER "no-vfio-user" "A QEMU that was built without vfio-user-pci has no way to the device."
    }
    Vm vm "vm" "Running VM" needs [] {
        RAM_PRIVATE "ram-private" "The device reaches the guest's memory only where QEMU shares it."
        BALLOON "balloon" "Memory that a balloon takes away is memory that the GPU may still write to."
        VIRTIO_MEM "virtio-mem" "Memory that virtio-mem takes away is memory that the GPU may still write to."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_has_no_flaws() {
        assert_eq!(vgpu_findings::catalogue::flaws::<LinkId>(), [""; 0]);
    }
}
