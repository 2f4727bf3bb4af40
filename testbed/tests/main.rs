//! All tests of the test bed except those of the fault catalogue, as one program. It is linked once, and
//! tests that wait run beside tests that compute.

mod architecture;
mod bench;
mod booted;
mod c_programs;
mod crash;
mod cuda_loop;
mod dependencies;
mod device_faults;
mod discovery;
mod features;
mod fuzz_engine;
mod generate;
mod gpu_pack;
mod kill;
mod mute;
mod ops;
mod parked;
mod pictures;
mod reload;
mod reservations;
mod restart;
mod share;
mod siege;
mod soak;
mod status;
mod support;
mod trace;
mod truth;
