//! A guest that only makes accesses: staging registers, payload, doorbell, polls.

use std::sync::Arc;

use tempfile::TempDir;
use vgpu_device::{Executor, GpuConfig, GuestMemory, Ram};
use vgpu_device_v1::{Bar, Device, Local, Mediator, MediatorRules, Properties};
use vgpu_executor_null::Null;
use vgpu_executor_soft::Soft;
use vgpu_host_testing::guest::until;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::registers as reg;
use vgpu_wire::v1::{INLINE_BYTES, split};

/// Size of a test's guest memory in bytes.
pub const RAM: u64 = 64 << 20;

/// Result of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub status: u32,
    pub error: u32,
    /// The call's `CUresult`.
    pub code: u32,
    pub results: Vec<u64>,
    /// Length of the data as the device states it, in bytes.
    pub data_len: u32,
}

impl Done {
    /// Returns the results of a call that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> Vec<u64> {
        assert_eq!((self.status, self.error, self.code), (reg::DONE, 0, 0), "{self:?}");
        self.results
    }

    /// Returns the first result of a call that must have succeeded.
    #[track_caller]
    pub fn one(self) -> u64 {
        let results = self.ok();
        assert!(!results.is_empty(), "a result");
        results[0]
    }

    /// Checks that the call succeeded without results or data.
    #[track_caller]
    pub fn nothing(self) {
        assert_eq!(self.data_len, 0);
        assert!(self.ok().is_empty());
    }

    /// Returns the `CUresult` of a call that must have failed on the host.
    #[track_caller]
    pub fn failed(self) -> u32 {
        assert_eq!((self.status, self.error), (reg::ERROR, 5), "{self:?}");
        assert_ne!(self.code, 0);
        self.code
    }
}

/// A guest process that uses a device.
pub struct Guest {
    pub device: Arc<Device>,
    pub ram: Arc<Ram>,
    pub token: u32,
    seq: u32,
    /// Directory that holds the memory's file.
    folder: Arc<TempDir>,
}

pub fn soft() -> Arc<dyn Executor> {
    Arc::new(Soft::new(&gpu()).unwrap())
}

pub fn null() -> Arc<dyn Executor> {
    Arc::new(Null::new(&gpu()).unwrap())
}

pub fn gpu() -> GpuConfig {
    GpuConfig { memory_bytes: 256 << 20, ..GpuConfig::new("VGPU-STUB test").unwrap() }
}

/// Makes a device without a link, and its guest's memory.
pub fn bare(properties: Properties) -> Guest {
    let folder = Arc::new(TempDir::with_prefix_in("vgpu-v1-", "/dev/shm").unwrap());
    let ram = Arc::new(Ram::create(&folder.path().join("ram"), RAM).unwrap());
    let memory: Arc<dyn GuestMemory> = Arc::clone(&ram) as _;
    Guest { device: Device::new(properties, memory), ram, token: 1234, seq: 0, folder }
}

/// Makes a device with a mediator of its own.
pub fn guest(executor: Arc<dyn Executor>) -> Guest {
    with(
        &Mediator::new(executor, MediatorRules::default()).unwrap(),
        Properties { vm_id: 10, ..Properties::default() },
    )
}

/// Makes a device that uses this mediator.
pub fn with(mediator: &Arc<Mediator>, properties: Properties) -> Guest {
    let guest = bare(properties);
    guest.device.attach(Box::new(Local::connect(mediator, guest.device.inlet()).unwrap()));
    guest
}

impl Guest {
    /// Returns another process of the same machine.
    pub fn process(&self, token: u32) -> Self {
        Self {
            device: Arc::clone(&self.device),
            ram: Arc::clone(&self.ram),
            token,
            seq: 0,
            folder: Arc::clone(&self.folder),
        }
    }

    pub fn read(&self, offset: u32) -> u32 {
        self.device.read(Bar::Bar0, offset, 4) as u32
    }

    pub fn write(&self, offset: u32, value: u32) {
        self.device.write(Bar::Bar0, offset, 4, value.into());
    }

    pub fn put_inline(&self, data: &[u8]) {
        for (index, word) in data.chunks(4).enumerate() {
            let mut bytes = [0; 4];
            bytes[..word.len()].copy_from_slice(word);
            self.write(reg::INLINE_REQUEST + 4 * index as u32, u32::from_le_bytes(bytes));
        }
    }

    pub fn put_bar1(&self, offset: u32, data: &[u8]) {
        self.device.write_block(offset, data);
    }

    /// Fills the staging registers for a call.
    pub fn stage(&mut self, op: u32, args: &[u32], bytes: usize) {
        self.seq += 1;
        self.write(reg::SCRATCH, self.token);
        self.write(reg::CUDA_OP, op);
        self.write(reg::CUDA_SEQ, self.seq);
        self.write(reg::CUDA_NUM_ARGS, args.len() as u32);
        self.write(reg::CUDA_DATA_LEN, bytes as u32);
        for (index, &arg) in args.iter().enumerate() {
            self.write(reg::CUDA_ARGS + 4 * index as u32, arg);
        }
    }

    pub fn ring(&self) {
        self.write(reg::CUDA_DOORBELL, reg::RING);
    }

    /// Fills the staging registers and rings the doorbell.
    pub fn submit(&mut self, op: u32, args: &[u32], bytes: usize) {
        self.stage(op, args, bytes);
        self.ring();
    }

    pub fn wait(&self) -> Done {
        until("the call is answered", || self.read(reg::STATUS) != reg::BUSY);
        self.collect()
    }

    pub fn collect(&self) -> Done {
        let count = self.read(reg::RESULT_NUM);
        let result = |index: u32| {
            let at = reg::RESULTS + 8 * index;
            u64::from(self.read(at)) | u64::from(self.read(at + 4)) << 32
        };
        Done {
            status: self.read(reg::STATUS),
            error: self.read(reg::ERROR_CODE),
            code: self.read(reg::RESULT_STATUS),
            results: (0..count.min(8)).map(result).collect(),
            data_len: self.read(reg::RESULT_DATA_LEN),
        }
    }

    /// Makes a call whose payload is inline, or in BAR1 if it is longer.
    pub fn raw(&mut self, op: u32, args: &[u32], data: &[u8]) -> Done {
        if data.len() <= INLINE_BYTES as usize {
            self.put_inline(data);
        } else {
            self.put_bar1(reg::BAR1_TO_HOST, data);
        }
        self.submit(op, args, data.len());
        self.wait()
    }

    pub fn call(&mut self, op: Op, args: &[u32], data: &[u8]) -> Done {
        self.raw(op as u32, args, data)
    }

    pub fn inline(&self, bytes: u32) -> Vec<u8> {
        (0..bytes.div_ceil(4))
            .flat_map(|word| self.read(reg::INLINE_RESPONSE + 4 * word).to_le_bytes())
            .take(bytes as usize)
            .collect()
    }

    pub fn bar1(&self, offset: u32, bytes: u32) -> Vec<u8> {
        self.device.read_block(offset, bytes as usize)
    }

    pub fn alloc(&mut self, bytes: u64) -> u64 {
        let [low, high] = split(bytes);
        self.call(Op::MemAlloc, &[low, high, 0, 0], &[]).one()
    }

    pub fn free(&mut self, address: u64) {
        self.call(Op::MemFree, &split(address), &[]).nothing();
    }

    pub fn put(&mut self, address: u64, data: &[u8]) -> Done {
        let args = wide(&[address, data.len() as u64]);
        self.call(Op::MemcpyHtoD, &args, data)
    }

    /// Copies from the device without a window.
    pub fn get(&mut self, address: u64, bytes: u32) -> Vec<u8> {
        let done = self.call(Op::MemcpyDtoH, &wide(&[address, bytes.into()]), &[]);
        assert_eq!(done.data_len, bytes);
        done.ok();
        if bytes <= INLINE_BYTES { self.inline(bytes) } else { self.bar1(reg::BAR1_TO_GUEST, bytes) }
    }

    pub fn register(&self, address: u64, bytes: u32) -> u32 {
        let [low, high] = split(address);
        self.write(reg::SHMEM_GPA_LO, low);
        self.write(reg::SHMEM_GPA_HI, high);
        self.write(reg::SHMEM_SIZE, bytes);
        self.write(reg::SHMEM_CTRL, reg::SHMEM_REGISTER);
        self.read(reg::STATUS)
    }

    pub fn put_ram(&self, address: u64, data: &[u8]) {
        assert!(self.ram.write(address, data));
    }

    pub fn get_ram(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        assert!(self.ram.read(address, &mut data));
        data
    }
}

/// Splits 64-bit arguments into the words of a call, low half first.
pub fn wide(values: &[u64]) -> Vec<u32> {
    values.iter().flat_map(|&value| split(value)).collect()
}

/// Returns bytes that are never zero, and that differ for each seed.
pub fn pattern(seed: u32, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 | 1
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
