//! What this machine's own threads need to hand a word on, and to see one that comes at a set time. Waits for
//! the device are compared with these, which no device is part of.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::percentiles::nanoseconds;

/// Word after which the threads end.
const END: u32 = u32::MAX;
/// Time by which the timer's thread wakes before it stores, as that of the null executor.
const TIMER_EARLY: Duration = Duration::from_micros(100);
/// Time by which the waiting thread wakes before the word comes.
const WAITER_EARLY: Duration = Duration::from_micros(200);

/// How a thread waits for a word of another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// It polls, and lets other threads run between two polls.
    Polling,
    /// It sleeps until the other thread wakes it.
    Asleep,
}

fn wait(waits: Waits, word: &AtomicU32, old: u32) -> u32 {
    loop {
        let new = word.load(Ordering::Acquire);
        if new != old {
            return new;
        }
        match waits {
            Waits::Polling => thread::yield_now(),
            Waits::Asleep => thread::park(),
        }
    }
}

/// Hands words on in a ring of `threads` threads for `time`, each of which waits for the one before it.
/// Returns the nanoseconds of each round.
pub fn ring(threads: usize, waits: Waits, time: Duration) -> Vec<u64> {
    let words: Vec<AtomicU32> = (0..threads.max(2)).map(|_| AtomicU32::new(0)).collect();
    let last = words.len() - 1;
    let hand_on = |place: usize, word: u32, next: &thread::Thread| {
        words[place].store(word, Ordering::Release);
        if waits == Waits::Asleep {
            next.unpark();
        }
    };
    thread::scope(|scope| {
        let mut next = thread::current();
        for place in (1..=last).rev() {
            let (words, hand_on, after) = (&words, &hand_on, next);
            let carry = move || {
                let mut word = 0;
                while word != END {
                    word = wait(waits, &words[place - 1], word);
                    hand_on(place, word, &after);
                }
            };
            next = scope.spawn(carry).thread().clone();
        }
        let (mut rounds, mut word, start) = (Vec::new(), 0, Instant::now());
        while start.elapsed() < time {
            let begun = Instant::now();
            hand_on(0, word + 1, &next);
            word = wait(waits, &words[last], word);
            rounds.push(nanoseconds(begun));
        }
        hand_on(0, END, &next);
        rounds
    })
}

/// Waits for words that another thread stores `after` an order, over and over for `time`. The thread sleeps
/// until shortly before, and spins. Returns the nanoseconds by which each word was seen late.
pub fn late(after: Duration, time: Duration) -> Vec<u64> {
    let (order, stored, epoch) = (AtomicU32::new(0), AtomicU64::new(0), Instant::now());
    let spin_until = |at: Instant| {
        while Instant::now() < at {
            std::hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        let timer = || {
            let mut number = 0;
            loop {
                number = wait(Waits::Asleep, &order, number);
                if number == END {
                    return;
                }
                let at = Instant::now() + after;
                thread::sleep(after.saturating_sub(TIMER_EARLY));
                spin_until(at);
                stored.store(nanoseconds(epoch), Ordering::Release);
            }
        };
        let timer = scope.spawn(timer).thread().clone();
        let mut times = Vec::new();
        let give = |number: u32| {
            order.store(number, Ordering::Release);
            timer.unpark();
        };
        for number in 1..END {
            if epoch.elapsed() >= time {
                break;
            }
            stored.store(0, Ordering::Relaxed);
            give(number);
            thread::sleep(after.saturating_sub(WAITER_EARLY));
            let at = loop {
                match stored.load(Ordering::Acquire) {
                    0 => std::hint::spin_loop(),
                    at => break at,
                }
            };
            times.push(nanoseconds(epoch).saturating_sub(at));
        }
        give(END);
        times
    })
}
