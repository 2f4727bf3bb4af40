//! Tests of the socket from the VMM's end.

mod crash;
mod frames;
mod handover;
mod rate;
mod served;
mod socket;
mod vmm;
