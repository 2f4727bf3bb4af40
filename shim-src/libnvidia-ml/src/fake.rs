//! A stand-in libcuda for tests, with two devices. Tests can make its functions fail.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use vgpu_abi::driver::CUuuid;
use vgpu_abi::link::Calls;
use vgpu_abi::table::{Device, Table};
use vgpu_abi::{CUresult, fake};
use vgpu_wire::facts::DeviceFacts;

static DEVICES_STATE: AtomicU32 = AtomicU32::new(0);
static LIFE: AtomicU32 = AtomicU32::new(0);
static MEMORY: AtomicU32 = AtomicU32::new(0);

static DEVICES: LazyLock<[Device; 2]> = LazyLock::new(|| [device(5, 1), device(0x1f, 2)]);

fn device(slot: u32, number: u8) -> Device {
    let mut facts = DeviceFacts {
        name: [0; 256],
        driver_text: [0; 80],
        uuid: [number; 16],
        total_bytes: 8 << 30,
        driver_version: 13000,
        cc_major: 6,
        cc_minor: 1,
        granularity: 2 << 20,
        abilities: 0,
        reserved: [0; 13],
        attributes: [0; 192],
    };
    facts.name[..8].copy_from_slice(b"Test GPU");
    facts.driver_text[..9].copy_from_slice(b"580.65.06");
    facts.attributes[13] = 1_500_999;
    facts.attributes[16] = 20;
    facts.attributes[37] = 256;
    Device { facts, pci: [0x10, 0xab, slot, 0], subsystem: 0x16c1_10de, reserved: 0 }
}

fn state(of: &AtomicU32) -> CUresult {
    CUresult(of.load(Ordering::Relaxed))
}

unsafe extern "C" fn life() -> CUresult {
    state(&LIFE)
}

unsafe extern "C" fn device_count(count: *mut c_int) -> CUresult {
    // SAFETY: a place for the answer, as the table says.
    unsafe { count.write(2) };
    state(&DEVICES_STATE)
}

unsafe extern "C" fn get(index: c_int, place: *mut *const Device) -> CUresult {
    let Some(device) = DEVICES.get(index as usize) else { return CUresult::INVALID_DEVICE };
    // SAFETY: a place for the answer, as the table says.
    unsafe { place.write(device) };
    state(&DEVICES_STATE)
}

unsafe extern "C" fn memory_info(index: c_int, free: *mut u64, total: *mut u64) -> CUresult {
    // SAFETY: a place for the answer, as the table says.
    unsafe { free.write((7 << 30) + index as u64) };
    // SAFETY: as above.
    unsafe { total.write(8 << 30) };
    state(&MEMORY)
}

static TABLE: Table = Table { life, device_count, device: get, memory_info, ..fake::TABLE };

unsafe extern "C" fn get_export_table(place: *mut *const c_void, uuid: *const CUuuid) -> CUresult {
    // SAFETY: the caller does as for the real one.
    unsafe { fake::hand_out(&TABLE, place, uuid) }
}

/// Functions of the stand-in driver, as its private table names them.
// SAFETY: the table is a constant of this program.
pub const CALLS: Calls = unsafe { fake::CALLS.with_table(get_export_table) };

/// Exclusive use of the stand-in by one test, which is reset on drop.
pub struct Scene {
    devices: &'static AtomicU32,
    life: &'static AtomicU32,
    memory: &'static AtomicU32,
    _one: MutexGuard<'static, ()>,
}

impl Scene {
    pub fn new() -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self { devices: &DEVICES_STATE, life: &LIFE, memory: &MEMORY, _one: one }
    }

    /// Sets the status of finding devices.
    pub fn devices(&self, status: CUresult) {
        self.devices.store(status.0, Ordering::Relaxed);
    }

    /// Sets the status of the query for the process's state.
    pub fn life(&self, status: CUresult) {
        self.life.store(status.0, Ordering::Relaxed);
    }

    /// Sets the status of the query for memory.
    pub fn memory(&self, status: CUresult) {
        self.memory.store(status.0, Ordering::Relaxed);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.devices(CUresult::SUCCESS);
        self.life(CUresult::SUCCESS);
        self.memory(CUresult::SUCCESS);
    }
}
