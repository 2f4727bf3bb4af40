//! Behaviour of a driver towards the operating system: the system calls of `cuInit`, CUDA's cache of compiled
//! code, and the refusal to pin files that are on a disk.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::memory::AddressRange;

/// Control socket of MPS.
const MPS: &str = "/tmp/nvidia-mps/control";
/// Types of file systems whose pages are memory.
const IN_MEMORY: [&str; 3] = ["tmpfs", "devtmpfs", "hugetlbfs"];

/// Makes the system calls that `cuInit` of driver 580 makes, in its order: a connection to MPS, which need
/// not be there, the name of a thread, a memory file, and a socket with an abstract name that stays open.
pub fn start() -> io::Result<()> {
    let unix = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    match connect(&unix()?, &SocketAddrUnix::new(MPS)?) {
        Ok(()) | Err(Errno::NOENT | Errno::CONNREFUSED) => {}
        Err(error) => return Err(error.into()),
    }
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let name = format!("/proc/self/task/{thread}/comm");
    fs::write(&name, fs::read(&name)?)?;
    memfd_create("cuda-recording", MemfdFlags::CLOEXEC)?;
    let namespace = fs::metadata("/proc/self/ns/pid")?.st_ino();
    let name = format!("cuda-uvmfd-{namespace}-{}", std::process::id());
    let socket = unix()?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen(&socket, 16)?;
    // Open until the process ends.
    std::mem::forget(socket);
    Ok(())
}

/// Returns whether CUDA's cache has the code that an image compiles to, and adds it. Returns false and adds
/// nothing if `CUDA_CACHE_DISABLE` is 1 or `CUDA_CACHE_PATH` is not set.
pub fn is_cached(image: &[u8]) -> bool {
    let off = std::env::var_os("CUDA_CACHE_DISABLE").is_some_and(|value| value == "1");
    let Some(folder) = std::env::var_os("CUDA_CACHE_PATH").filter(|_| !off) else { return false };
    let mut hasher = DefaultHasher::new();
    image.hash(&mut hasher);
    let file = PathBuf::from(folder).join(format!("{:x}", hasher.finish()));
    fs::File::create_new(file).is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
}

/// Returns whether a part of a range is a mapping of a file whose pages are not memory.
pub fn maps_disk(range: AddressRange) -> bool {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return false };
    let devices = maps.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (first, last) = words.next()?.split_once('-')?;
        let [first, last] = [first, last].map(|word| u64::from_str_radix(word, 16));
        let (device, inode, path) = (words.nth(2)?, words.next()?, words.next().unwrap_or(""));
        let (first, last) = (first.ok()?, last.ok()?);
        let file = inode != "0" && !path.starts_with("/memfd:") && path != "/dev/zero";
        (file && AddressRange::new(first, last - first).overlaps(range)).then(|| device.to_owned())
    });
    devices.into_iter().any(|device| !is_memory(&device))
}

/// Returns whether the file system of a device, as `/proc/self/maps` names it, lies in memory.
fn is_memory(device: &str) -> bool {
    let Some((major, minor)) = device.split_once(':') else { return false };
    let [Ok(major), Ok(minor)] = [major, minor].map(|word| u32::from_str_radix(word, 16)) else {
        return false;
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| {
        let kind = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next());
        line.split(' ').nth(2) == Some(&format!("{major}:{minor}"))
            && kind.is_some_and(|kind| IN_MEMORY.contains(&kind))
    })
}
