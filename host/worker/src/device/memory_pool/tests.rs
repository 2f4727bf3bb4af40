//! Reservations against reports that workers make, and do not make.

use vgpu_device::{Gauges, Window};

use super::*;
use crate::shared::status_page::STATUS_PAGE_BYTES;

fn page() -> Arc<StatusPage> {
    Arc::new(StatusPage::new(Window::anonymous(STATUS_PAGE_BYTES).unwrap()))
}

fn holds(page: &StatusPage, executed: u64, bytes: u64) {
    let gauges = Gauges::default();
    gauges.allocated.store(bytes, Ordering::Relaxed);
    page.store_gauges(&gauges, bytes);
    page.set_executed(executed);
}

#[test]
fn memory_is_charged_from_before_it_is_asked_for_until_it_is_free() {
    let pool = MemoryPool::new(100, 1, 0);
    let (one, two) = (page(), page());
    let (first, second) = (pool.open(&one), pool.open(&two));
    assert!(pool.reserve(&first, 3, 60, Patience::Session));
    assert!(
        !pool.reserve(&second, 9, 41, Patience::Session) && pool.reserve(&second, 9, 40, Patience::Session)
    );
    assert_eq!(pool.info(None), (0, 100));
    // The first message is carried out and took a little more; the second failed.
    holds(&one, 3, 64);
    holds(&two, 9, 0);
    assert_eq!(pool.info(None), (36, 100));
    assert!(pool.reserve(&second, 12, 36, Patience::Session));
    holds(&one, 5, 0);
    assert_eq!(pool.used(), 36);
    pool.close(&second);
    pool.close(&second);
    assert_eq!((pool.used(), pool.workers()), (0, WorkerCount { started: 2, running: 1 }));
}

#[test]
fn what_a_message_allocates_is_refused_to_nobody_while_it_counts_twice() {
    let pool = MemoryPool::new(100, 1, 0);
    let (one, two) = (page(), page());
    let (first, second) = (pool.open(&one), pool.open(&two));
    assert!(pool.reserve(&first, 3, 60, Patience::Session));
    holds(&one, 2, 60);
    assert_eq!(pool.used(), 120);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| pool.reserve(&second, 1, 40, Patience::Session));
        // Whether it asks before that or after.
        holds(&one, 3, 60);
        assert!(asking.join().unwrap());
    });
    assert_eq!(pool.used(), 100);
}

#[test]
fn what_a_guest_has_freed_is_waited_for() {
    let pool = MemoryPool::new(100, 1, 0);
    let one = page();
    let first = pool.open(&one);
    let freed = |bytes, freeing| {
        let gauges = Gauges::default();
        gauges.allocated.store(bytes, Ordering::Relaxed);
        gauges.freeing.store(freeing, Ordering::Relaxed);
        one.store_gauges(&gauges, bytes);
        pool.take_report();
    };
    freed(90, 80);
    assert_eq!(pool.used(), 90, "it counts until it is unmapped");
    assert!(
        !pool.reserve(&first, 1, 91, Patience::Session),
        "not even that would be enough, so it does not wait"
    );
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| pool.reserve(&first, 2, 85, Patience::Session));
        // Whether it asks before that or after.
        freed(10, 0);
        assert!(asking.join().unwrap());
    });
    assert_eq!(pool.used(), 95);
    freed(10, u64::MAX);
    assert_eq!(pool.used(), 95, "a worker cannot have freed more than it has");
}

#[test]
fn what_a_worker_asks_for_is_counted_until_its_report_includes_it() {
    let pool = MemoryPool::new(100, 10, 0);
    let (one, two) = (page(), page());
    let (first, second) = (pool.open(&one), pool.open(&two));
    assert!(pool.reserve_for_worker(&first, 31) && pool.reserve_for_worker(&second, 60));
    assert!(!pool.reserve_for_worker(&second, 1) && !pool.reserve(&first, 1, 1, Patience::Session));
    assert!(!pool.reserve_for_worker(&second, u64::MAX));
    holds(&one, 0, 38);
    assert_eq!(pool.used(), 40 + 38 + 60, "its report does not say yet for what");
    one.set_reserved(1);
    assert_eq!(pool.used(), 38 + 60);
    assert!(!pool.reserve_for_worker(&first, 10));
    // A worker that asks anew before it has reported holds both.
    two.set_reserved(1);
    assert!(pool.reserve_for_worker(&first, 10) && pool.reserve_for_worker(&first, 20));
    one.set_reserved(2);
    assert_eq!(pool.used(), 38 + 30);
    pool.close(&first);
    assert_eq!(pool.used(), 0);
}

#[test]
fn memory_that_a_report_counts_twice_for_a_moment_is_refused_to_nobody() {
    let pool = MemoryPool::new(100, 1, 0);
    let (one, two) = (page(), page());
    let (first, second) = (pool.open(&one), pool.open(&two));
    assert!(pool.reserve_for_worker(&first, 60));
    holds(&one, 0, 60);
    let start = Instant::now();
    assert!(
        !pool.reserve(&second, 1, 41, Patience::Session) && !pool.reserve(&second, 1, 40, Patience::Session)
    );
    assert!(start.elapsed() >= SESSION_MOST, "it has waited for a report");
    assert!(!pool.reserve(&second, 1, 40, Patience::None));
    std::thread::scope(|scope| {
        let reservation = scope.spawn(|| (0..1000).any(|_| pool.reserve(&second, 1, 40, Patience::Session)));
        one.set_reserved(1);
        pool.take_report();
        assert!(reservation.join().unwrap());
    });
    assert_eq!(pool.used(), 100);
}

#[test]
fn a_worker_that_lies_takes_no_more_than_there_is() {
    let pool = MemoryPool::new(100, 1, 0);
    let (one, two) = (page(), page());
    let (_first, second) = (pool.open(&one), pool.open(&two));
    holds(&one, u64::MAX, u64::MAX);
    assert_eq!((pool.used(), pool.info(None).0, pool.charged()), (u64::MAX, 0, u64::MAX));
    assert!(
        !pool.reserve(&second, 1, u64::MAX, Patience::Session)
            && !pool.reserve(&second, 1, 1, Patience::Session)
    );
}

#[test]
fn a_context_is_charged_once_and_comes_back_with_its_worker() {
    let pool = MemoryPool::new(100, 1, 30);
    let (one, two) = (page(), page());
    let (first, second) = (pool.open(&one), pool.open(&two));
    assert_eq!((pool.used(), pool.info(None), pool.info(Some(&first))), (0, (70, 100), (70, 100)));
    assert!(
        pool.reserve_context(&first, Patience::Session) && pool.reserve_context(&first, Patience::Session)
    );
    assert_eq!((pool.info(Some(&first)), pool.info(Some(&second))), ((70, 100), (40, 100)));
    assert!(
        pool.reserve(&first, 1, 45, Patience::Session) && !pool.reserve(&first, 2, 26, Patience::Session)
    );
    assert!(!pool.reserve_context(&second, Patience::Session), "25 are free");
    holds(&one, 1, 40);
    assert!(pool.reserve_context(&second, Patience::Session), "30 are free");
    assert_eq!((pool.used(), pool.info(Some(&second))), (100, (0, 100)));
    pool.close(&first);
    assert_eq!(pool.used(), 30);
}
