//! Includes the assembly in `trampoline.s`.

core::arch::global_asm!(include_str!("trampoline.s"), options(att_syntax));
