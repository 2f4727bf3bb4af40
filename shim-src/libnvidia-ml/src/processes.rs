//! The processes that use a device.
//!
//! A process of this guest that has a session on a device holds, for as long as it lives, a record lock on
//! one of the first bytes of the function's `resource2` file (`vgpu_wire`, "Sessions and channels"), and the
//! guest's kernel lists the holders of locks in `/proc/locks`. So the list has the sessions of this guest,
//! but not those of other guests, nor of processes outside this process's namespace. A process that only
//! queries a device, as a monitoring tool does, has no session. The file itself is not opened here, because
//! closing it would drop this process's own lock. Only the host knows how much memory each process uses. If
//! `/proc/locks` cannot be read, the call returns not-supported.
//!
//! All sessions are compute sessions, so the lists of graphics and MPS processes are empty.

use std::ffi::c_uint;
use std::io;

use vgpu_abi::nvml::{NO_INSTANCE, NOT_AVAILABLE, NvmlReturn, ProcessInfoV1, ProcessInfoV2};
use vgpu_abi::{export, log};
use vgpu_transport::{PciAddress, holders, sysfs_root};

use crate::Result;
use crate::arg::Out;
use crate::driver::Gpu;
use crate::find::Handle;

fn sessions(gpu: Gpu) -> io::Result<Vec<u32>> {
    let [domain, bus, device, function] = gpu.device.pci;
    let address = PciAddress { domain, bus: bus as u8, device: device as u8, function: function as u8 };
    let holders = holders(&sysfs_root().join("bus/pci/devices").join(address.to_string()))?;
    let mut processes: Vec<u32> = holders.iter().map(|holder| holder.process).collect();
    processes.sort_unstable();
    processes.dedup();
    Ok(processes)
}

/// Returns the processes that hold the device.
fn processes(gpu: Gpu) -> Result<Vec<u32>> {
    sessions(gpu).map_err(|error| {
        log::info(format_args!("NVML: cannot tell who holds the device: {error}"));
        NvmlReturn::NOT_SUPPORTED
    })
}

/// Returns a list as NVML does. If the array is too small, only the number of processes is stored, which
/// callers use to ask for the number.
fn answer<T: Copy>(processes: &[u32], count: Out<c_uint>, infos: Out<T>, info: impl Fn(u32) -> T) -> Result {
    let room = count.get()? as usize;
    count.set(processes.len() as c_uint)?;
    if processes.is_empty() {
        return Ok(());
    }
    if room < processes.len() {
        return Err(NvmlReturn::INSUFFICIENT_SIZE);
    }
    infos.set_all(processes.iter().map(|&pid| info(pid)))
}

fn first(pid: u32) -> ProcessInfoV1 {
    ProcessInfoV1 { pid, used_memory: NOT_AVAILABLE }
}

fn second(pid: u32) -> ProcessInfoV2 {
    ProcessInfoV2 {
        pid,
        used_memory: NOT_AVAILABLE,
        gpu_instance: NO_INSTANCE,
        compute_instance: NO_INSTANCE,
    }
}

fn none<T: Copy>(device: Handle, count: Out<c_uint>, infos: Out<T>, info: impl Fn(u32) -> T) -> Result {
    device.gpu()?;
    answer(&[], count, infos, info)
}

export! {
    /// Stores the processes of this guest that have a session on the device.
    pub fn nvmlDeviceGetComputeRunningProcesses(
        device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV1>
    ) -> NvmlReturn {
        let gpu = device.gpu()?;
        let count = count.check()?;
        answer(&processes(gpu)?, count, infos, first)
    }

    /// Stores the processes of this guest that have a session on the device.
    pub fn nvmlDeviceGetComputeRunningProcesses_v2(
        device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV2>
    ) -> NvmlReturn {
        let gpu = device.gpu()?;
        let count = count.check()?;
        answer(&processes(gpu)?, count, infos, second)
    }

    /// Stores the processes of this guest that have a session on the device.
    pub fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV2>
    ) -> NvmlReturn {
        let gpu = device.gpu()?;
        let count = count.check()?;
        answer(&processes(gpu)?, count, infos, second)
    }

    /// Stores an empty list, because there are no graphics processes.
    pub fn nvmlDeviceGetGraphicsRunningProcesses(
        device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV1>
    ) -> NvmlReturn {
        none(device, count, infos, first)
    }

    /// Stores an empty list, because there are no graphics processes.
    pub fn nvmlDeviceGetGraphicsRunningProcesses_v2(
        device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV2>
    ) -> NvmlReturn {
        none(device, count, infos, second)
    }

    /// Stores an empty list, because there are no graphics processes.
    pub fn nvmlDeviceGetGraphicsRunningProcesses_v3(
        device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV2>
    ) -> NvmlReturn {
        none(device, count, infos, second)
    }

    /// Stores an empty list, because there are no MPS compute processes.
    pub fn nvmlDeviceGetMPSComputeRunningProcesses(
        device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV1>
    ) -> NvmlReturn {
        none(device, count, infos, first)
    }

    /// Stores an empty list, because there are no MPS compute processes.
    pub fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
        device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV2>
    ) -> NvmlReturn {
        none(device, count, infos, second)
    }

    /// Stores an empty list, because there are no MPS compute processes.
    pub fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
        device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV2>
    ) -> NvmlReturn {
        none(device, count, infos, second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_needs_room() {
        let ask = |room: c_uint, processes: &[u32]| {
            let (mut count, mut infos) = ([room], [0; 3]);
            let status =
                answer(processes, Out::from_slice(&mut count), Out::from_slice(&mut infos), |pid| pid);
            (status, count[0], infos)
        };
        assert_eq!(ask(0, &[7, 9]), (Err(NvmlReturn::INSUFFICIENT_SIZE), 2, [0; 3]));
        assert_eq!(ask(1, &[7, 9]), (Err(NvmlReturn::INSUFFICIENT_SIZE), 2, [0; 3]));
        assert_eq!(ask(2, &[7, 9]), (Ok(()), 2, [7, 9, 0]));
        assert_eq!(ask(3, &[7, 9]), (Ok(()), 2, [7, 9, 0]));
        assert_eq!(ask(3, &[]), (Ok(()), 0, [0; 3]));
    }
}
