//! Simulates the memory needs of a Go program such as Ollama at its start: a limit on address space (`ulimit
//! -v`) prevents the start.

/// Exit code of a Go program that its runtime ends.
pub const FATAL: u8 = 2;
/// Address space in bytes for the page allocator's summaries on x86-64, at its five levels, which Go reserves
/// first.
const SUMMARY_BYTES: usize = (512 << 20) + (64 << 20) + (8 << 20) + (1 << 20) + (128 << 10);
/// Number of goroutines whose stacks the runtime prints after its error message.
const GOROUTINES: usize = 12;

/// Reserves address space as Go's runtime does. If that fails, prints the runtime's error and returns false.
pub fn reserve() -> bool {
    let flags = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping at an address that the kernel chooses, which nobody uses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), SUMMARY_BYTES, libc::PROT_NONE, flags, -1, 0) };
    if at != libc::MAP_FAILED {
        return true;
    }
    eprintln!("fatal error: failed to reserve page summary memory\n\nruntime stack:");
    eprintln!("runtime.throw({{0x185f6b2?, 0x4000000?}})\n\t/usr/local/go/src/runtime/panic.go:1077 +0x5c");
    for number in 1..=GOROUTINES {
        eprintln!("\ngoroutine {number} gp=0xc000002380 m=0 [idle]:\nruntime.goexit({{}})");
    }
    false
}
