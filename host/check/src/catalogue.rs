//! Requirements of a host for passing its GPU to a VM, as data: the links in the order in which they are
//! examined, what each link needs, the causes that are known to break it, and the remedy of each.
//!
//! Ids are permanent, because scripts and bug reports name them.

use vgpu_findings::Remedy;

/// Result of the examination of one link of this chain.
pub type Finding = vgpu_findings::Finding<LinkId>;

// Remedies that several causes share.
const DEFAULT_MODE: Remedy =
    Remedy::new("Set the compute mode to default.").command("nvidia-smi -i {gpu} -c DEFAULT").as_root();
const OTHER_CUBLAS: Remedy =
    Remedy::new("Install cuBLAS of CUDA 12 or 13, or name the file with --libcublas.");
const OTHER_QEMU: Remedy = Remedy::new(
    "Install QEMU 10.1 or later, built with vfio-user (Debian 13's backports have such a one), or name it with --qemu.",
);
const FIXED_MEMORY: Remedy = Remedy::new(
    "Start the VM without it; libvirt: <memballoon model='none'/>, and no <memory model='virtio-mem'>.",
);

vgpu_findings::chain! {
    Driver driver "driver" "NVIDIA driver" needs [] {
        MODULE_MISSING "module-missing" "The libraries reach the GPU through NVIDIA's kernel module."
            => Remedy::new("Load it; where that fails, build it for the kernel that runs.")
                .command("modprobe nvidia").as_root();
        LIBRARY_MISSING "library-missing" "NVIDIA's driver brings libcuda.so.1, by which vgpu-device reaches the GPU."
            => Remedy::new("Install NVIDIA's driver with its libraries for CUDA and for management.");
        VERSION_MISMATCH "version-mismatch" "Library and kernel module refuse each other unless they are of one version."
            => Remedy::new("Restart the host: the driver was replaced while the module was in use.");
        INIT_FAILED "init-failed" "The driver refuses every program of this host until this is mended."
            => Remedy::new("Look at the kernel's log for what the GPU does.")
                .command("journalctl -k --grep NVRM").as_root();
        TOO_OLD "too-old" "The device's address range needs functions that CUDA 12 has."
            => Remedy::new("Install a newer driver.");
        DOES_NOT_ANSWER "does-not-answer" "Every guest waits for a driver that does not answer."
            => Remedy::new("Look at the kernel's log for what the GPU does, and restart the host.")
                .command("journalctl -k --grep NVRM").as_root();
        CRASHED "crashed" "The worker of every session would crash in the same way."
            => Remedy::new("Install the driver anew.").command("journalctl -k --grep NVRM").as_root();
    }
    Gpu gpu "gpu" "GPU" needs [Driver] {
        NO_GPU "no-gpu" "There is nothing to give to a VM."
            => Remedy::new("Look whether the kernel has given the GPU to another driver, such as vfio-pci.")
                .command("lspci -nnk -d 10de:");
        GPU_ABSENT "gpu-absent" "The GPU that the configuration names is not in this host."
            => Remedy::new("Name one of this host's with --gpu, or `gpu` in the configuration file.")
                .command("nvidia-smi -L");
        GPU_AMBIGUOUS "gpu-ambiguous" "With several GPUs the configuration has to say which one the VM gets."
            => Remedy::new("Name one with --gpu, or `gpu` in the configuration file.");
        MEMORY_SHORT "memory-short" "Guests plan by the memory that they are told of, and allocations would fail below it."
            => Remedy::new("Promise less: --memory, or `memory` in the configuration file.");
    }
    Room room "room" "Room for this VM" needs [Gpu] {
        PROMISED "promised" "A GPU's memory is promised once, so the start would be refused."
            => Remedy::new("Promise less (--memory, or `memory` in the configuration file), or stop another VM's device.")
                .command("vgpu-device status");
    }
    ComputeMode compute_mode "compute-mode" "Compute mode" needs [Gpu] {
        EXCLUSIVE_PROCESS "exclusive-process" "Each guest process gets a worker process with a GPU context of its own, and this mode allows one on the whole GPU."
            => DEFAULT_MODE;
        PROHIBITED "prohibited" "No process may create a context on the GPU."
            => DEFAULT_MODE;
    }
    Mps mps "mps" "MPS" needs [] {
        RUNNING "running" "Programs under MPS share one fault domain: a kernel that faults in one guest ends the work of all."
            => Remedy::new("End it. Where programs of the host need it, give VMs a GPU or MIG instance of their own.")
                .command("echo quit | nvidia-cuda-mps-control").as_root();
    }
    Mig mig "mig" "MIG instances" needs [Gpu] {
        WHOLE_GPU "whole-gpu" "While MIG is on, programs get its instances and never the whole GPU."
            => Remedy::new("Name one of the instances with --gpu, or `gpu` in the configuration file.")
                .command("nvidia-smi -L");
        NO_INSTANCE "no-instance" "While MIG is on, a GPU without instances runs nothing."
            => Remedy::new("Make one, and name it with --gpu; or turn MIG off.")
                .command("nvidia-smi mig -i {gpu} -cgi 0 -C").as_root();
    }
    Persistence persistence "persistence" "Persistence mode" needs [Gpu] {
        OFF "off" "The driver resets the GPU when its last user ends, and the next guest process waits for seconds."
            => Remedy::new("Turn it on; nvidia-persistenced keeps it on across restarts.")
                .command("nvidia-smi -i {gpu} -pm 1").as_root();
    }
    Cublas cublas "cublas" "cuBLAS" needs [] {
        LIBRARY_MISSING "library-missing" "Matrix products of guests are carried out by the host's cuBLAS."
            => OTHER_CUBLAS;
        UNLOADABLE "unloadable" "Matrix products of guests are carried out by the host's cuBLAS."
            => OTHER_CUBLAS;
    }
    Memlock memlock "memlock" "Locked memory" needs [] {
        LIMITED "limited" "Copies go straight to guest memory only where it can be registered, which locks it."
            => Remedy::new("Lift the limit; the unit vgpu-device@.service does so by LimitMEMLOCK=infinity.")
                .command("ulimit -l unlimited");
    }
    HugePages huge_pages "huge-pages" "Huge pages" needs [] {
        SMALL_PAGES "small-pages" "With 4 KiB pages the registration of guest memory takes long, and copies are slower."
            => Remedy::new("Let shared memory have large pages where a program asks for them, as QEMU does.")
                .command("echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled").as_root();
    }
    Numa numa "numa" "NUMA" needs [Gpu] {
        REMOTE "remote" "Each doorbell and each copy crosses between sockets."
            => Remedy::new("Run vgpu-device and the VM on the GPU's node: CPUAffinity= and NUMAPolicy= in the unit, or numactl.")
                .command("numactl --cpunodebind={node} --preferred={node} vgpu-device serve");
    }
    Socket socket "socket" "Socket's directory" needs [] {
        FOLDER_MISSING "folder-missing" "The socket is created in a directory, of which serve makes the last part at most."
            => Remedy::new("Make the directory; the unit vgpu-device@.service has one made in /run.")
                .command("install -d -m 0755 {folder}"),
            NO_FOLDER => Remedy::new("Name a socket in a directory: --bus vfio-user:SOCKET.");
        FOLDER_OPEN "folder-open" "Another user can put a socket of theirs in place of this one and gets the VM's memory."
            => Remedy::new("Use a directory that only root or this user can write to.")
                .command("chmod go-w {folder}");
        QEMU_EXCLUDED "qemu-excluded" "QEMU runs as a user of its own under libvirt, who gets `Permission denied`."
            => Remedy::new("Name a group of that user: --group {group}, or `group = \"{group}\"` in the configuration file.");
        FOLDER_CLOSED "folder-closed" "QEMU's user cannot reach the socket."
            => Remedy::new("Let the group enter the directory.")
                .command("chgrp {group} {folder} && chmod g+x {folder}");
    }
    Qemu qemu "qemu" "QEMU" needs [] {
        QEMU_MISSING "qemu-missing" "The VM's QEMU connects to the device."
            => OTHER_QEMU;
        TOO_OLD "too-old" "QEMU has the device vfio-user-pci from 10.1 on."
            => OTHER_QEMU;
        NO_VFIO_USER "no-vfio-user" "A QEMU that was built without vfio-user-pci has no way to the device."
            => OTHER_QEMU;
    }
    Vm vm "vm" "Running VM" needs [] {
        RAM_PRIVATE "ram-private" "The device reaches the guest's memory only where QEMU shares it."
            => Remedy::new("Start the VM with the memory backend that vgpu-device prints.")
                .command("vgpu-device serve --print qemu");
        BALLOON "balloon" "Memory that a balloon takes away is memory that the GPU may still write to."
            => FIXED_MEMORY;
        VIRTIO_MEM "virtio-mem" "Memory that virtio-mem takes away is memory that the GPU may still write to."
            => FIXED_MEMORY;
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
