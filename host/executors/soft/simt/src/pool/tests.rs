//! Tests of the pool: the jobs that its workers join, and the number of threads.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::machine::Context;

use super::*;

/// Endless work, which counts the pieces that workers execute. It stops when `over` is set.
struct Endless {
    by_worker: AtomicUsize,
    over: Arc<AtomicUsize>,
}

impl ParallelWork for Endless {
    fn run_pieces(&self, stay: &dyn Fn() -> bool) {
        while self.is_open() && stay() {
            self.by_worker.fetch_add(usize::from(on_worker()), Ordering::Relaxed);
            std::thread::yield_now();
        }
    }

    fn is_open(&self) -> bool {
        self.over.load(Ordering::Relaxed) == 0
    }
}

/// The only worker of a pool helps each of several endless launches, so that every session gets its share.
#[test]
fn a_worker_goes_on_to_work_that_waits() {
    let pool = Pool::new(2);
    let over = Arc::new(AtomicUsize::new(0));
    let all: Vec<Arc<Endless>> = (0..3)
        .map(|_| Arc::new(Endless { by_worker: AtomicUsize::new(0), over: Arc::clone(&over) }))
        .collect();
    std::thread::scope(|scope| {
        for work in &all {
            let (pool, work) = (pool.clone(), Arc::clone(work));
            scope.spawn(move || pool.execute(work));
        }
        let helped = |work: &Arc<Endless>| work.by_worker.load(Ordering::Relaxed);
        let all_helped = |times: usize| all.iter().all(|work| helped(work) >= times);
        let deadline = Instant::now() + Duration::from_mins(1);
        while !all_helped(1) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        // Each launch gets the worker again.
        let before: Vec<usize> = all.iter().map(helped).collect();
        while !all.iter().zip(&before).all(|(work, before)| helped(work) > *before)
            && Instant::now() < deadline
        {
            std::thread::yield_now();
        }
        let after: Vec<usize> = all.iter().map(helped).collect();
        over.store(1, Ordering::Relaxed);
        assert!(before.iter().all(|count| *count > 0), "not all are helped: {before:?}");
        assert!(
            after.iter().zip(&before).all(|(after, before)| after > before),
            "{before:?}, then {after:?}"
        );
    });
}

/// Work whose pieces do not end until `over` is set.
#[derive(Default)]
struct Stuck {
    over: Arc<AtomicUsize>,
    /// Number of workers that are in the work; the next field is the largest number so far.
    assignments: AtomicUsize,
    most: AtomicUsize,
}

impl ParallelWork for Stuck {
    fn run_pieces(&self, stay: &dyn Fn() -> bool) {
        if !self.is_open() || !stay() {
            return;
        }
        if on_worker() {
            let assignments = self.assignments.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(assignments, Ordering::SeqCst);
        }
        while self.is_open() {
            std::thread::yield_now();
        }
        if on_worker() {
            self.assignments.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn is_open(&self) -> bool {
        self.over.load(Ordering::SeqCst) == 0
    }
}

/// Work that ends once `wanted` workers have been in it at the same time, or after a minute.
struct Helped {
    wanted: usize,
    assignments: AtomicUsize,
    most: AtomicUsize,
    deadline: Instant,
}

impl Helped {
    fn new(wanted: usize) -> Arc<Self> {
        let deadline = Instant::now() + Duration::from_mins(1);
        Arc::new(Self { wanted, assignments: AtomicUsize::new(0), most: AtomicUsize::new(0), deadline })
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    /// Executes work of this kind on a pool and returns the number of workers that have been in it at the
    /// same time.
    fn execute_on(pool: &Pool, wanted: usize) -> usize {
        let work = Self::new(wanted);
        pool.execute(Arc::clone(&work) as Arc<dyn ParallelWork>);
        work.most()
    }
}

impl ParallelWork for Helped {
    fn run_pieces(&self, stay: &dyn Fn() -> bool) {
        let worker = usize::from(on_worker());
        let assignments = self.assignments.fetch_add(worker, Ordering::SeqCst) + worker;
        self.most.fetch_max(assignments, Ordering::SeqCst);
        while self.is_open() && stay() {
            std::thread::yield_now();
        }
        self.assignments.fetch_sub(worker, Ordering::SeqCst);
    }

    fn is_open(&self) -> bool {
        self.most() < self.wanted && Instant::now() < self.deadline
    }
}

/// A worker computes as its kernels ask for, whatever the mode of the thread that has started it.
#[test]
fn a_worker_keeps_subnormal_numbers_where_its_creator_does_not() {
    /// Adds subnormal numbers on a worker.
    struct Sum {
        helped: Arc<Helped>,
        kept: AtomicUsize,
    }

    impl ParallelWork for Sum {
        fn run_pieces(&self, stay: &dyn Fn() -> bool) {
            if on_worker() {
                let least = std::hint::black_box(f32::from_bits(1));
                self.kept.store(usize::from(least + least != 0.0), Ordering::SeqCst);
            }
            self.helped.run_pieces(stay);
        }

        fn is_open(&self) -> bool {
            self.helped.is_open()
        }
    }

    let mut context = Context::new();
    context.mode.flush_subnormals();
    let pool = Pool::new(2);
    context.mode.restore();
    let work = Arc::new(Sum { helped: Helped::new(1), kept: AtomicUsize::new(0) });
    pool.execute(Arc::clone(&work) as Arc<dyn ParallelWork>);
    assert_eq!((work.helped.most(), work.kept.load(Ordering::SeqCst)), (1, 1));
}

fn on_worker() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("simt-"))
}

/// Waits up to a minute until `holds` returns true.
fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        std::thread::yield_now();
    }
}

fn running(pool: &Pool) -> usize {
    lock(&pool.inner.shared.state).threads.iter().filter(|thread| !thread.is_finished()).count()
}

/// Runs `act` while `count` jobs occupy all workers with endless pieces, and ends these jobs afterwards.
fn beside_stuck(pool: &Pool, count: usize, act: impl FnOnce(&[Arc<Stuck>])) {
    let over = Arc::new(AtomicUsize::new(0));
    let all: Vec<Arc<Stuck>> =
        (0..count).map(|_| Arc::new(Stuck { over: Arc::clone(&over), ..Stuck::default() })).collect();
    std::thread::scope(|scope| {
        for work in &all {
            let (pool, work) = (pool.clone(), Arc::clone(work));
            scope.spawn(move || pool.execute(work));
        }
        // The jobs must end although a check fails, or the scope would wait for them forever.
        let done = catch_unwind(AssertUnwindSafe(|| {
            let stuck = || all.iter().map(|work| work.assignments.load(Ordering::SeqCst)).sum::<usize>();
            until("all workers are stuck", || stuck() >= pool.threads() - 1);
            act(&all);
        }));
        over.store(1, Ordering::SeqCst);
        if let Err(panic) = done {
            resume_unwind(panic);
        }
    });
}

/// Endless pieces that occupy all workers do not keep other jobs from getting as many workers, because new
/// threads replace the occupied ones.
#[test]
fn endless_pieces_do_not_keep_workers_from_other_work() {
    let pool = Pool::new(3);
    beside_stuck(&pool, 3, |_| {
        for round in 0..3 {
            assert_eq!(Helped::execute_on(&pool, 2), 2, "round {round}: so many helped at once");
        }
    });
}

/// Launches that are shorter than the overstay limit get workers too, because posting a job also checks for
/// workers that overstay.
#[test]
fn endless_pieces_do_not_keep_workers_from_short_launches() {
    /// Work of a hundred empty pieces.
    #[derive(Default)]
    struct Short {
        next: AtomicUsize,
        helped: AtomicUsize,
    }
    impl ParallelWork for Short {
        fn run_pieces(&self, stay: &dyn Fn() -> bool) {
            while stay() && self.next.fetch_add(1, Ordering::Relaxed) < 100 {
                self.helped.fetch_add(usize::from(on_worker()), Ordering::Relaxed);
                std::thread::yield_now();
            }
        }

        fn is_open(&self) -> bool {
            self.next.load(Ordering::Relaxed) < 100
        }
    }
    let pool = Pool::new(2);
    beside_stuck(&pool, 2, |_| {
        until("a short launch is helped", || {
            let short = Arc::new(Short::default());
            pool.execute(Arc::clone(&short) as Arc<dyn ParallelWork>);
            short.helped.load(Ordering::Relaxed) > 0
        });
    });
}

/// The number of threads is limited, however many pieces never end: a job has no more workers than the pool
/// was created for, no more than that are idle, and the occupied ones exit with their jobs.
#[test]
fn threads_that_stand_in_are_bounded_and_end() {
    let pool = Pool::new(3);
    for _ in 0..3 {
        beside_stuck(&pool, 3, |all| {
            Helped::execute_on(&pool, 2);
            // One that was away in the good job may be just about to end.
            until("there are 2 workers besides those that are away, in 3 jobs", || {
                let away = || {
                    let state = lock(&pool.inner.shared.state);
                    state.assignments.iter().filter(|assignments| assignments.worker.is_away()).count()
                };
                let (before, threads, after) = (away(), running(&pool), away());
                before == after && (2..=6).contains(&after) && threads == 2 + after
            });
            assert!(all.iter().all(|work| work.most.load(Ordering::SeqCst) <= 2), "more than 2 in one job");
        });
        until("those that were away have ended", || running(&pool) == 2);
    }
    // No worker was lost: two help in a job.
    assert_eq!((Helped::execute_on(&pool, 2), pool.threads()), (2, 3));
}

#[test]
fn all_threads_end_with_the_pool() {
    let pool = Pool::new(3);
    let shared = Arc::downgrade(&pool.inner.shared);
    beside_stuck(&pool, 2, |_| {
        Helped::execute_on(&pool, 2);
        assert!(running(&pool) > 2);
    });
    drop(pool);
    // Each thread has a part of it.
    assert_eq!(shared.strong_count(), 0);
}

#[test]
fn a_worker_that_panics_is_told_of_and_not_lost() {
    /// Work that panics on workers. The caller's thread waits until a worker has panicked.
    #[derive(Default)]
    struct Bad(AtomicUsize);
    impl ParallelWork for Bad {
        fn run_pieces(&self, _: &dyn Fn() -> bool) {
            if on_worker() {
                self.0.store(1, Ordering::SeqCst);
                panic!("as it is meant to");
            }
            until("a worker came", || !self.is_open());
        }

        fn is_open(&self) -> bool {
            self.0.load(Ordering::SeqCst) == 0
        }
    }
    let pool = Pool::new(2);
    for _ in 0..2 {
        let done = catch_unwind(AssertUnwindSafe(|| pool.execute(Arc::new(Bad::default()))));
        assert!(done.is_err(), "work of which a part is missing counts as done");
    }
    assert_eq!(Helped::execute_on(&pool, 1), 1);
}
