//! The assembly: see `trampoline.s`.

core::arch::global_asm!(include_str!("trampoline.s"), options(att_syntax));
