//! The scheduler in simulated time: a GPU that shares its time among contexts, devices that follow orders
//! after a delay, and VMs that behave well or badly.

mod properties;
mod simulation;
