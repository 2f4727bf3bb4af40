//! Tests of version 1 on the simulated bus: the sockets of BAR0 and BAR1, guest memory as a file, the cost of
//! accesses, the control socket.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use tempfile::TempDir;
use vgpu_device::{BusStatus, SimBus, connect_bar};
use vgpu_device_v1::{
    BusDeviceConfig, BusTestHooks, Mediator, MediatorPlace, MediatorRules, Properties, serve_on_bus,
};
use vgpu_host_testing::guest::{PATIENCE, until};
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::payload::LAUNCH_RAW;
use vgpu_wire::v1::registers as reg;
use zerocopy::IntoBytes;

use crate::driver::{pattern, soft, wide};

const ADDRESS: &str = "0000:00:05.0";

fn serve(dir: &TempDir, access_cost: Duration) -> SimBus {
    let config = BusDeviceConfig {
        address: ADDRESS.parse().unwrap(),
        properties: Properties::default(),
        mediator: MediatorPlace::Local(Mediator::new(soft(), MediatorRules::default()).unwrap()),
    };
    let hooks = BusTestHooks { access_cost, ..BusTestHooks::default() };
    serve_on_bus(dir.path(), 64 << 20, vec![config], &hooks).unwrap()
}

fn folder() -> TempDir {
    TempDir::with_prefix_in("vgpu-v1-bus-", "/dev/shm").unwrap()
}

/// Socket of a BAR.
struct Bar(OwnedFd);

impl Bar {
    fn open(bus: &Path, name: &str) -> Self {
        Self(connect_bar(&bus.join("bus/pci/devices").join(ADDRESS).join(name)).unwrap())
    }

    /// Sends a packet and returns the device's answer, which is empty if the device has closed the socket.
    fn packet(&self, packet: &[u8]) -> Vec<u8> {
        let mut answer = vec![0; 40 << 10];
        if send(&self.0, packet, SendFlags::NOSIGNAL).is_err() {
            return Vec::new();
        }
        let bytes = recv(&self.0, &mut answer[..], RecvFlags::empty()).map_or(0, |(bytes, _)| bytes);
        answer.truncate(bytes);
        answer
    }

    fn accesses(&self, requests: &[[u32; 3]]) -> Vec<u32> {
        let answer = self.packet(requests.as_bytes());
        assert_eq!(answer.len(), 8 * requests.len());
        answer.chunks(8).map(|one| u32::from_le_bytes(one[4..].try_into().unwrap())).collect()
    }

    fn read(&self, offset: u32) -> u32 {
        self.accesses(&[[1, offset, 0]])[0]
    }
}

fn block(operation: u32, offset: u32, bytes: u32, data: &[u8]) -> Vec<u8> {
    [[operation, offset, bytes].as_bytes(), data].concat()
}

fn status(bus: &Path) -> BusStatus {
    let stream = UnixStream::connect(bus.join("control")).unwrap();
    (&stream).write_all(b"{\"cmd\":\"status\"}\n").unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

/// Makes a call with all its register writes in one packet.
fn call(bar0: &Bar, token: u32, op: Op, args: &[u32], bytes: u32) {
    let mut requests = vec![
        [2, reg::SCRATCH, token],
        [2, reg::CUDA_OP, op as u32],
        [2, reg::CUDA_NUM_ARGS, args.len() as u32],
        [2, reg::CUDA_DATA_LEN, bytes],
    ];
    requests.extend(args.iter().enumerate().map(|(i, &arg)| [2, reg::CUDA_ARGS + 4 * i as u32, arg]));
    requests.push([2, reg::CUDA_DOORBELL, 1]);
    bar0.accesses(&requests);
    let start = Instant::now();
    while bar0.read(reg::STATUS) == reg::BUSY {
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(bar0.read(reg::STATUS), reg::DONE);
}

#[test]
fn a_guest_finds_it_and_copies_through_bar1() {
    let dir = folder();
    let bus = serve(&dir, Duration::ZERO);
    let function = dir.path().join("bus/pci/devices").join(ADDRESS);
    let text = |name: &str| std::fs::read_to_string(function.join(name)).unwrap();
    assert_eq!(
        (text("vendor").trim(), text("device").trim(), text("class").trim()),
        ("0x10de", "0x2331", "0x030200")
    );
    assert!(!function.join("resource2").exists() && !function.join("resource0_ro").exists());
    let (bar0, bar1) = (Bar::open(dir.path(), "resource0"), Bar::open(dir.path(), "resource1"));
    assert_eq!((bar0.read(0x020), bar0.read(0x024)), (0x0001_0000, 0x71));

    call(&bar0, 77, Op::MemAlloc, &wide(&[1 << 20, 0]), 0);
    let address = u64::from(bar0.read(reg::RESULTS)) | u64::from(bar0.read(reg::RESULTS + 4)) << 32;
    let data = pattern(3, 40_000);
    let (first, second) = data.split_at(32 << 10);
    assert_eq!(bar1.packet(&block(3, 0, 32 << 10, first)), [0_u32, 32 << 10].as_bytes());
    bar1.packet(&block(3, 32 << 10, second.len() as u32, second));
    call(&bar0, 77, Op::MemcpyHtoD, &wide(&[address, 40_000]), 40_000);
    call(&bar0, 77, Op::MemcpyDtoH, &wide(&[address + 1, 30_001]), 0);
    let answer = bar1.packet(&block(4, 0x80_0000, 30_001, &[]));
    assert_eq!(answer[8..], data[1..30_002]);
    assert_eq!(bar1.read(0xff_fffc), reg::DONE);

    let now = &status(dir.path()).devices[0];
    assert_eq!((now.allocated, now.sessions.len()), (1 << 20, 1));
    let owner = &now.sessions[0];
    assert_eq!((owner.process, owner.allocated, owner.allocations), (77, 1 << 20, 1));
    assert_eq!((owner.kinds["MemAlloc"], owner.kinds["MemcpyHtoD"], owner.bytes_in), (1, 1, 40_000));
    let accesses = now.accesses.unwrap();
    assert_eq!(accesses.doorbells, 3);
    assert_eq!(accesses.bar1.writes, 4096 + 7232 / 8);
    assert_eq!(accesses.bar1.reads, 30_001_u64.div_ceil(8) + 1);
    drop(bus);
    assert!(!dir.path().join("ram").exists());
}

#[test]
fn a_window_is_a_range_of_the_ram_file() {
    let dir = folder();
    let _bus = serve(&dir, Duration::ZERO);
    let bar0 = Bar::open(dir.path(), "resource0");
    let ram = std::fs::File::options().read(true).write(true).open(dir.path().join("ram")).unwrap();
    assert_eq!(ram.metadata().unwrap().len(), 64 << 20);
    let window = 0x20_0000_u32;
    bar0.accesses(&[[2, reg::SHMEM_GPA_LO, window], [2, reg::SHMEM_SIZE, 1 << 20], [2, reg::SHMEM_CTRL, 1]]);
    assert_eq!((bar0.read(reg::STATUS), bar0.read(reg::SHMEM_CTRL)), (reg::DONE, 1));
    call(&bar0, 1, Op::MemAlloc, &wide(&[1 << 20, 0]), 0);
    let address = u64::from(bar0.read(reg::RESULTS)) | u64::from(bar0.read(reg::RESULTS + 4)) << 32;
    let data = pattern(4, 300_000);
    std::os::unix::fs::FileExt::write_all_at(&ram, &data, window.into()).unwrap();
    call(&bar0, 1, Op::MemcpyHtoD, &wide(&[address, 300_000]), 300_000);
    call(&bar0, 1, Op::MemcpyDtoH, &wide(&[address, 300_000]), 0);
    assert_eq!(bar0.read(reg::RESULT_DATA_LEN), 300_000);
    let mut back = vec![0; 300_000];
    std::os::unix::fs::FileExt::read_exact_at(&ram, &mut back, u64::from(window) + (512 << 10)).unwrap();
    assert!(back == data);
}

#[test]
fn packets_that_are_none_end_the_connection() {
    let dir = folder();
    let _bus = serve(&dir, Duration::ZERO);
    let long = block(3, 0, (32 << 10) + 1, &vec![0; (32 << 10) + 1]);
    for bad in
        [&block(3, 0, 4, &[0; 3])[..], &block(5, 0, 0, &[]), &block(4, 0, (32 << 10) + 1, &[]), &long, &[1]]
    {
        let bar1 = Bar::open(dir.path(), "resource1");
        assert!(bar1.packet(bad).is_empty(), "{} bytes", bad.len());
        assert!(bar1.packet(&block(4, 0, 8, &[])).is_empty());
    }
    let bar0 = Bar::open(dir.path(), "resource0");
    assert!(bar0.packet(&block(4, 0, 8, &[])).is_empty(), "registers come by themselves");
    let bar1 = Bar::open(dir.path(), "resource1");
    assert_eq!(bar1.packet(&block(4, 0xff_fff8, 9, &[])), [1_u32, 9].as_bytes(), "beyond the end");
    assert_eq!(bar1.packet(&block(3, u32::MAX, 2, &[0; 2])), [1_u32, 2].as_bytes());
}

#[test]
fn accesses_take_as_long_as_they_cost() {
    let dir = folder();
    let cost = Duration::from_micros(500);
    let _bus = serve(&dir, cost);
    let (bar0, bar1) = (Bar::open(dir.path(), "resource0"), Bar::open(dir.path(), "resource1"));
    let before = status(dir.path()).devices[0].accesses.unwrap();
    let start = Instant::now();
    bar0.accesses(&[[1, reg::STATUS, 0]; 4]);
    bar1.packet(&block(4, 0, 41, &[]));
    // Only a lower bound is checked, because other load can make an access slower.
    assert!(start.elapsed() >= 10 * cost);
    let after = status(dir.path()).devices[0].accesses.unwrap();
    assert_eq!((after.bar0.reads - before.bar0.reads, after.bar1.reads - before.bar1.reads), (4, 6));
}

/// Submits a call with an inline payload, without waiting for its answer.
fn submit(bar0: &Bar, op: Op, data: &[u8]) {
    for (index, word) in data.chunks(4).enumerate() {
        let word = u32::from_le_bytes(word.try_into().unwrap());
        bar0.accesses(&[[2, reg::INLINE_REQUEST + 4 * index as u32, word]]);
    }
    bar0.accesses(&[
        [2, reg::SCRATCH, 1],
        [2, reg::CUDA_OP, op as u32],
        [2, reg::CUDA_DATA_LEN, data.len() as u32],
        [2, reg::CUDA_DOORBELL, 1],
    ]);
}

fn wait(bar0: &Bar) -> u64 {
    let start = Instant::now();
    while bar0.read(reg::STATUS) == reg::BUSY {
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(bar0.read(reg::STATUS), reg::DONE);
    u64::from(bar0.read(reg::RESULTS)) | u64::from(bar0.read(reg::RESULTS + 4)) << 32
}

#[test]
fn a_device_goes_though_a_kernel_runs() {
    let dir = folder();
    let bus = serve(&dir, Duration::ZERO);
    let bar0 = Bar::open(dir.path(), "resource0");
    let text = b".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry k() { again: bra again; }   ";
    submit(&bar0, Op::ModuleLoadData, &text[..text.len() / 4 * 4]);
    let module = wait(&bar0);
    bar0.accesses(&[
        [2, reg::CUDA_NUM_ARGS, 2],
        [2, reg::CUDA_ARGS, module as u32],
        [2, reg::CUDA_ARGS + 4, (module >> 32) as u32],
    ]);
    submit(&bar0, Op::ModuleGetFunction, b"k\0\0\0");
    let function = wait(&bar0);
    submit(&bar0, Op::LaunchKernel, &crate::code::launch(function, LAUNCH_RAW, 0, &[]));
    // While the call is executed, the device answers.
    assert_eq!(status(dir.path()).devices[0].accesses.unwrap().doorbells, 3);
    assert_eq!(bar0.read(reg::STATUS), reg::BUSY);
    // The time of the call grows, too.
    let time = || status(dir.path()).devices[0].sessions[0].busy_us;
    for _ in 0..3 {
        let before = time();
        until("the kernel's time grows", || time() >= before + 50_000);
    }
    assert_eq!(bar0.read(reg::STATUS), reg::BUSY);
    let start = Instant::now();
    drop(bus);
    assert!(start.elapsed() < PATIENCE, "the kernel's time is not waited for");
}

#[test]
fn calls_are_held_and_released() {
    let dir = folder();
    let bus = serve(&dir, Duration::ZERO);
    let bar0 = Bar::open(dir.path(), "resource0");
    bus.hold();
    submit(&bar0, Op::Init, &[]);
    assert_eq!(bar0.read(reg::STATUS), reg::BUSY);
    assert!(status(dir.path()).devices[0].sessions.is_empty(), "nothing was carried out");
    bus.release();
    assert_eq!(wait(&bar0), 1);
    bus.hold();
    submit(&bar0, Op::Init, &[]);
    // The device must end although it is held.
    drop(bus);
}
