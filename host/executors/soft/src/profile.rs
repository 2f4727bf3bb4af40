//! The profile of a session: its launches by kernel and size, and its other work by kind.
//!
//! A launch costs one uncontended lock and one look-up. The memory for rows is bounded and charged to the
//! session; launches without a row are counted in a common row without a name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use vgpu_device::{Charge, Charges, KernelProfile, Profile, Resource, TaskProfile};
use vgpu_simt::LaunchStats;

/// Largest number of rows of a session.
const ROWS: usize = 1024;
/// Largest number of bytes of a kernel's name. Longer names are cut.
const NAME_BYTES: usize = 1024;
/// Bytes charged for a row besides its name.
const ROW_BYTES: u64 = 256;

/// Number of kinds of work other than launches.
const KINDS: usize = WorkKind::Vector as usize + 1;

/// A kind of work other than launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    CopyIn,
    CopyOut,
    CopyDevice,
    CopyRows,
    Fill,
    Product,
    Solve,
    Matmul,
    Vector,
}

/// Names of the kinds of work in a profile, in the order of [`WorkKind`].
const WORK_NAMES: [&str; KINDS] =
    ["copy_in", "copy_out", "copy_device", "copy_rows", "fill", "product", "solve", "matmul", "vector"];

/// The size class of a launch: `blocks` is the exponent of the smallest power of two that is not less than
/// its number of blocks, and `threads` the number of threads of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Size {
    blocks: u32,
    threads: u32,
}

/// The sums over the launches of a row. `ns` is the time in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct ProfileRow {
    launches: u64,
    ns: u64,
    blocks: u64,
    warps: u64,
    interpreted: u64,
    handed: u64,
    handed_steps: u64,
}

impl ProfileRow {
    fn add(&mut self, tally: &LaunchStats, ns: u64) {
        self.launches += 1;
        self.ns += ns;
        self.blocks += tally.blocks;
        self.warps += tally.warps;
        self.interpreted += u64::from(!tally.translated);
        self.handed += u64::from(tally.handed > 0);
        self.handed_steps += tally.handed;
    }

    fn profile(&self, kernel: &str, size: Size) -> KernelProfile {
        KernelProfile {
            kernel: kernel.to_owned(),
            most_blocks: 1u64.checked_shl(size.blocks).unwrap_or(u64::MAX),
            threads: size.threads,
            launches: self.launches,
            ns: self.ns,
            blocks: self.blocks,
            warps: self.warps,
            interpreted: self.interpreted,
            handed: self.handed,
            handed_steps: self.handed_steps,
        }
    }
}

#[derive(Debug, Default)]
struct RecorderState {
    /// Rows by size first, so that a look-up does not need an owned name.
    rows: HashMap<Size, HashMap<Box<str>, ProfileRow>>,
    count: usize,
    /// Charge for the memory of the rows.
    bytes: Option<Charge>,
    /// The launches without a row of their own.
    others: ProfileRow,
    tasks: [TaskProfile; KINDS],
    messages_ns: u64,
}

impl RecorderState {
    /// Charges a new row. Returns false if there are too many rows or the session's limit is reached.
    fn pay(&mut self, bytes: u64, charges: &Arc<Charges>) -> bool {
        match &mut self.bytes {
            _ if self.count == ROWS => false,
            Some(paid) => paid.grow(bytes).is_ok(),
            None => {
                self.bytes = charges.charge(Resource::HostBytes, bytes).ok();
                self.bytes.is_some()
            }
        }
    }

    /// Returns the row of a kernel's launches of a size.
    fn row(&mut self, kernel: &str, size: Size, charges: &Arc<Charges>) -> &mut ProfileRow {
        let name = &kernel[..kernel.floor_char_boundary(NAME_BYTES)];
        let known = self.rows.get(&size).is_some_and(|rows| rows.contains_key(name));
        if !known && self.pay(ROW_BYTES + name.len() as u64, charges) {
            self.rows.entry(size).or_default().insert(name.into(), ProfileRow::default());
            self.count += 1;
        }
        self.rows.get_mut(&size).and_then(|rows| rows.get_mut(name)).unwrap_or(&mut self.others)
    }
}

/// Counts the work of one session.
#[derive(Debug)]
pub(crate) struct Recorder {
    charges: Arc<Charges>,
    state: Mutex<RecorderState>,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Recorder {
    fn state(&self) -> MutexGuard<'_, RecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a launch with blocks of `threads` threads that took `time`.
    pub(crate) fn launched(&self, kernel: &str, threads: u32, tally: &LaunchStats, time: Duration) {
        let blocks = u64::BITS - tally.blocks.saturating_sub(1).leading_zeros();
        self.state().row(kernel, Size { blocks, threads }, &self.charges).add(tally, nanoseconds(time));
    }

    /// Counts a task that is not a launch, and the time that it took.
    pub(crate) fn worked(&self, work: WorkKind, time: Duration) {
        let task = &mut self.state().tasks[work as usize];
        task.count += 1;
        task.ns += nanoseconds(time);
    }

    /// Counts the time that the ring's thread took for a message.
    pub(crate) fn handled(&self, time: Duration) {
        self.state().messages_ns += nanoseconds(time);
    }

    /// Returns the counts so far.
    fn read(&self) -> Profile {
        let state = self.state();
        let rows = state.rows.iter();
        let mut kernels: Vec<KernelProfile> = rows
            .flat_map(|(&size, rows)| rows.iter().map(move |(name, row)| row.profile(name, size)))
            .collect();
        if state.others.launches > 0 {
            kernels.push(state.others.profile("", Size { blocks: 0, threads: 0 }));
        }
        let tasks = WORK_NAMES.into_iter().zip(state.tasks).filter(|(_, task)| task.count > 0);
        Profile {
            kernels,
            tasks: tasks.map(|(name, task)| (name.to_owned(), task)).collect(),
            messages_ns: state.messages_ns,
        }
    }
}

/// The recorders of a device's sessions. A recorder lives as long as its session.
#[derive(Debug, Default)]
pub(crate) struct Recorders(Mutex<HashMap<u32, Weak<Recorder>>>);

impl Recorders {
    /// Makes the recorder of a new session.
    pub(crate) fn start(&self, charges: &Arc<Charges>) -> Arc<Recorder> {
        let recorder = Arc::new(Recorder { charges: Arc::clone(charges), state: Mutex::default() });
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, recorder| recorder.strong_count() > 0);
        known.insert(charges.session(), Arc::downgrade(&recorder));
        recorder
    }

    /// Returns the counts of a session, if it is open.
    pub(crate) fn read(&self, session: u32) -> Option<Profile> {
        let recorder = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&session)?.upgrade()?;
        Some(recorder.read())
    }
}

#[cfg(test)]
mod tests {
    use vgpu_device::{DeviceCharges, Limits};

    use super::*;

    fn recorder(limits: Limits) -> Arc<Recorder> {
        Recorders::default().start(&Charges::new(1, limits, Arc::default()))
    }

    const STATS: LaunchStats = LaunchStats { blocks: 5, warps: 10, translated: true, handed: 3 };

    #[test]
    fn launches_add_up_by_kernel_and_size() {
        let recorder = recorder(Limits::default());
        let launch = |kernel, blocks, threads| {
            recorder.launched(kernel, threads, &LaunchStats { blocks, ..STATS }, Duration::from_nanos(7));
        };
        for (kernel, blocks, threads) in
            [("a", 5, 64), ("a", 8, 64), ("a", 9, 64), ("a", 8, 32), ("b", 8, 64)]
        {
            launch(kernel, blocks, threads);
        }
        recorder.launched("c", 32, &LaunchStats { translated: false, handed: 0, ..STATS }, Duration::ZERO);
        recorder.worked(WorkKind::Fill, Duration::from_nanos(2));
        let profile = recorder.read();
        let find = |kernel: &str, most_blocks, threads| {
            let same = |row: &&KernelProfile| {
                (&row.kernel[..], row.most_blocks, row.threads) == (kernel, most_blocks, threads)
            };
            profile.kernels.iter().find(same).unwrap()
        };
        let both = find("a", 8, 64);
        assert_eq!((both.launches, both.ns, both.blocks, both.warps), (2, 14, 13, 20));
        assert_eq!((both.interpreted, both.handed, both.handed_steps), (0, 2, 6));
        assert_eq!((find("a", 16, 64).launches, find("a", 8, 32).launches), (1, 1));
        let interpreted = find("c", 8, 32);
        assert_eq!((interpreted.interpreted, interpreted.handed), (1, 0));
        assert_eq!(profile.kernels.len(), 5);
        assert_eq!(profile.tasks["fill"], TaskProfile { count: 1, ns: 2 });
        assert_eq!(profile.tasks.len(), 1);
    }

    #[test]
    fn rows_are_bounded_and_charged() {
        let device = Arc::<DeviceCharges>::default();
        let charges = Charges::new(1, Limits::default(), Arc::clone(&device));
        let recorder = Recorders::default().start(&charges);
        for index in 0..2 * ROWS {
            recorder.launched(&format!("{index}é{}", "x".repeat(5000)), 32, &STATS, Duration::ZERO);
        }
        let profile = recorder.read();
        assert_eq!(profile.kernels.len(), ROWS + 1);
        assert!(profile.kernels.iter().all(|row| row.kernel.len() <= NAME_BYTES));
        assert_eq!(profile.kernels[ROWS].launches, ROWS as u64);
        assert!(charges.used(Resource::HostBytes) <= ROWS as u64 * (ROW_BYTES + NAME_BYTES as u64));
        drop(recorder);
        assert_eq!(charges.used(Resource::HostBytes), 0);
        // Launches of a session without any memory limit left are counted too.
        let poor = self::recorder(Limits { host_bytes: 0, ..Limits::default() });
        poor.launched("x", 32, &STATS, Duration::ZERO);
        assert_eq!((poor.read().kernels[0].kernel.as_str(), poor.read().kernels[0].launches), ("", 1));
    }

    #[test]
    fn a_profile_goes_with_its_session() {
        let recorders = Recorders::default();
        let recorder = recorders.start(&Charges::new(7, Limits::default(), Arc::default()));
        assert!(recorders.read(7).is_some() && recorders.read(8).is_none());
        drop(recorder);
        assert!(recorders.read(7).is_none());
    }
}
