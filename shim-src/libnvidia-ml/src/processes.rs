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
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use vgpu_abi::nvml::{NO_INSTANCE, NOT_AVAILABLE, NvmlReturn, ProcessInfoV1, ProcessInfoV2};
use vgpu_abi::{export, log};
use vgpu_transport::{PciAddress, sysfs_root};
use vgpu_wire::registers::MAX_CHANNELS;

use crate::Result;
use crate::arg::Out;
use crate::driver::Gpu;
use crate::find::Handle;

/// A file as `/proc/locks` identifies it: major and minor device number, and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct File {
    major: u32,
    minor: u32,
    inode: u64,
}

/// The process that a line of `/proc/locks` says to hold a channel of `file`:
/// `1: POSIX ADVISORY WRITE 1234 08:01:5678 3 3`. The device numbers are hexadecimal. A line with an arrow
/// describes a process that waits for a lock.
fn holder(line: &str, file: File) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (kind, _, mode) = (words.next()?, words.next()?, words.next()?);
    let process: u32 = words.next()?.parse().ok()?;
    let mut place = words.next()?.split(':');
    let named = File {
        major: u32::from_str_radix(place.next()?, 16).ok()?,
        minor: u32::from_str_radix(place.next()?, 16).ok()?,
        inode: place.next()?.parse().ok()?,
    };
    let first: u64 = words.next()?.parse().ok()?;
    let found = kind == "POSIX" && mode == "WRITE" && named == file && first < u64::from(MAX_CHANNELS);
    // 0 stands for a process that this one cannot see.
    (found && process != 0).then_some(process)
}

/// The processes that hold a channel of `file`, in order.
fn holders(locks: &str, file: File) -> Vec<u32> {
    let mut processes: Vec<u32> = locks.lines().filter_map(|line| holder(line, file)).collect();
    processes.sort_unstable();
    processes.dedup();
    processes
}

fn sessions(gpu: Gpu) -> io::Result<Vec<u32>> {
    let [domain, bus, device, function] = gpu.device.pci;
    let address = PciAddress { domain, bus: bus as u8, device: device as u8, function: function as u8 };
    let path = sysfs_root().join("bus/pci/devices").join(address.to_string()).join("resource2");
    let metadata = fs::metadata(path)?;
    let file = File {
        major: libc::major(metadata.dev()),
        minor: libc::minor(metadata.dev()),
        inode: metadata.ino(),
    };
    Ok(holders(&fs::read_to_string("/proc/locks")?, file))
}

/// The processes that hold the device.
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
    /// The processes of this guest that have a session on the device.
    pub fn nvmlDeviceGetComputeRunningProcesses(device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV1>) -> NvmlReturn {
        let gpu = device.gpu()?;
        let count = count.check()?;
        answer(&processes(gpu)?, count, infos, first)
    }

    /// The processes of this guest that have a session on the device.
    pub fn nvmlDeviceGetComputeRunningProcesses_v2(device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV2>) -> NvmlReturn {
        let gpu = device.gpu()?;
        let count = count.check()?;
        answer(&processes(gpu)?, count, infos, second)
    }

    /// The processes of this guest that have a session on the device.
    pub fn nvmlDeviceGetComputeRunningProcesses_v3(device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV2>) -> NvmlReturn {
        let gpu = device.gpu()?;
        let count = count.check()?;
        answer(&processes(gpu)?, count, infos, second)
    }

    /// The graphics processes, of which there are none.
    pub fn nvmlDeviceGetGraphicsRunningProcesses(device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV1>) -> NvmlReturn {
        none(device, count, infos, first)
    }

    /// The graphics processes, of which there are none.
    pub fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV2>) -> NvmlReturn {
        none(device, count, infos, second)
    }

    /// The graphics processes, of which there are none.
    pub fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV2>) -> NvmlReturn {
        none(device, count, infos, second)
    }

    /// The MPS compute processes, of which there are none.
    pub fn nvmlDeviceGetMPSComputeRunningProcesses(device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV1>) -> NvmlReturn {
        none(device, count, infos, first)
    }

    /// The MPS compute processes, of which there are none.
    pub fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV2>) -> NvmlReturn {
        none(device, count, infos, second)
    }

    /// The MPS compute processes, of which there are none.
    pub fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: Handle, count: Out<c_uint>, infos: Out<ProcessInfoV2>) -> NvmlReturn {
        none(device, count, infos, second)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: File = File { major: 0, minor: 0x1b, inode: 7957 };

    #[test]
    fn holders_of_channels_only() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 29845 00:1b:7957 0 0
1: -> POSIX  ADVISORY  WRITE 4 00:1b:7957 0 0
2: FLOCK  ADVISORY  WRITE 25105 fe:00:5865476 0 EOF
3: POSIX  ADVISORY  WRITE 30009 00:1b:7957 5 5
4: POSIX  ADVISORY  WRITE 30009 00:1b:7957 7 7
5: POSIX  ADVISORY  READ 30010 00:1b:7957 7 7
6: POSIX  ADVISORY  WRITE 30011 00:1b:7958 1 1
7: POSIX  ADVISORY  WRITE 30012 01:1b:7957 1 1
8: POSIX  ADVISORY  WRITE 0 00:1b:7957 2 2
9: OFDLCK ADVISORY  WRITE -1 00:1b:7957 3 3
10: POSIX  ADVISORY  WRITE 30013 00:1b:7957 4096 4096
11: POSIX  ADVISORY  WRITE 17 00:1b:7957 63 63
12: LEASE  ACTIVE    READ 30014 00:1b:7957 0 EOF
";
        assert_eq!(holders(locks, FILE), [17, 29845, 30009]);
        assert_eq!(holders("", FILE), [0; 0]);
    }

    #[test]
    fn a_list_needs_room() {
        let ask = |room: c_uint, processes: &[u32]| {
            let (mut count, mut infos) = ([room], [0; 3]);
            let status = answer(processes, Out::of(&mut count), Out::of(&mut infos), |pid| pid);
            (status, count[0], infos)
        };
        assert_eq!(ask(0, &[7, 9]), (Err(NvmlReturn::INSUFFICIENT_SIZE), 2, [0; 3]));
        assert_eq!(ask(1, &[7, 9]), (Err(NvmlReturn::INSUFFICIENT_SIZE), 2, [0; 3]));
        assert_eq!(ask(2, &[7, 9]), (Ok(()), 2, [7, 9, 0]));
        assert_eq!(ask(3, &[7, 9]), (Ok(()), 2, [7, 9, 0]));
        assert_eq!(ask(3, &[]), (Ok(()), 0, [0; 3]));
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(locks in "([ -~]{0,60}\n?){0,6}") {
            holders(&locks, FILE);
        }

        #[test]
        fn a_holder_is_found_among_others(
            process in 1u32..=i32::MAX as u32,
            channel in 0..u64::from(MAX_CHANNELS),
            (major, minor, inode) in (0u32..256, 0u32..65536, 0u64..),
            other in "[ -~]{0,40}",
        ) {
            let file = File { major, minor, inode };
            let locks = format!(
                "9: POSIX  ADVISORY  WRITE {process} {major:02x}:{minor:02x}:{inode} {channel} {channel}\n{other}\n"
            );
            prop_assert!(holders(&locks, file).contains(&process));
        }
    }
}
