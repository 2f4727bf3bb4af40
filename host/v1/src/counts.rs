//! Counts a guest's accesses to the BARs. Each of them is an exit of its virtual machine.

use std::sync::atomic::{AtomicU64, Ordering};

use super::access::Bar;
use vgpu_device::{Accesses, BarAccesses};

#[derive(Debug, Default)]
struct Bars {
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Bars {
    fn get(&self) -> BarAccesses {
        BarAccesses { reads: self.reads.load(Ordering::Relaxed), writes: self.writes.load(Ordering::Relaxed) }
    }
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    bar0: Bars,
    bar1: Bars,
    doorbells: AtomicU64,
}

impl Counts {
    const fn bar(&self, bar: Bar) -> &Bars {
        match bar {
            Bar::Bar0 => &self.bar0,
            Bar::Bar1 => &self.bar1,
        }
    }

    pub(super) fn read(&self, bar: Bar, accesses: u64) {
        self.bar(bar).reads.fetch_add(accesses, Ordering::Relaxed);
    }

    pub(super) fn write(&self, bar: Bar, accesses: u64) {
        self.bar(bar).writes.fetch_add(accesses, Ordering::Relaxed);
    }

    pub(super) fn doorbell(&self) {
        self.doorbells.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Accesses {
        Accesses {
            bar0: self.bar0.get(),
            bar1: self.bar1.get(),
            doorbells: self.doorbells.load(Ordering::Relaxed),
        }
    }
}
