//! Reads a word of a mapped file, such as a register of a PCI function, again and again, and prints how long
//! the longest accesses took.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::percentiles::nanoseconds;
use crate::wait::until_stdin_closes;

/// Bytes that are mapped.
const PAGE: usize = 4096;
/// Pause between two accesses, in which others use the processor.
const PAUSE: Duration = Duration::from_micros(500);

/// Reads the word at `offset` of the first page of `file` until stdin closes. Prints the number of accesses,
/// the values that were read, and the times of the `longest` longest accesses in nanoseconds.
pub fn measure(file: &Path, offset: usize, longest: usize) -> Result<ExitCode> {
    static OVER: AtomicBool = AtomicBool::new(false);
    ensure!(offset.is_multiple_of(4) && offset < PAGE, "there is no word at {offset:#x}");
    let shown = file.display();
    let file = File::open(file).with_context(|| format!("open {shown}"))?;
    // SAFETY: a new mapping where the kernel chooses.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    ensure!(base != libc::MAP_FAILED, "map {shown}: {}", std::io::Error::last_os_error());
    thread::spawn(|| {
        until_stdin_closes();
        OVER.store(true, Ordering::Relaxed);
    });
    let (mut times, mut values, mut accesses) = (Vec::new(), BTreeSet::new(), 0_u64);
    while !OVER.load(Ordering::Relaxed) {
        let start = Instant::now();
        // SAFETY: the word is on the page, which stays mapped.
        let word = unsafe { base.byte_add(offset) }.cast::<u32>();
        // SAFETY: the word is mapped and aligned. What changes it is a device.
        values.insert(unsafe { word.read_volatile() });
        times.push(nanoseconds(start));
        accesses += 1;
        if times.len() > 2 * longest {
            times.sort_unstable_by(|one, other| other.cmp(one));
            times.truncate(longest);
        }
        thread::sleep(PAUSE);
    }
    times.sort_unstable_by(|one, other| other.cmp(one));
    times.truncate(longest);
    println!("{}", json!({ "accesses": accesses, "values": values, "longest_ns": times }));
    Ok(ExitCode::SUCCESS)
}
