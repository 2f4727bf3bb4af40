//! What an access through the socket takes. It is measured by
//! `cargo test --release -p vgpu-vfio-user --test main -- --ignored --nocapture rate`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vgpu_vfio_user::{Answering, Recorder};

use crate::served::{Remembers, Served};
use crate::vmm::{Vmm, access, command};

/// Accesses of a measurement.
const ACCESSES: u32 = 100_000;
/// Measurements, of which the best and the median are printed.
const ROUNDS: usize = 7;

#[test]
#[ignore = "a measurement, for a quiet machine"]
fn rate_of_accesses() {
    let served = Served::with(Remembers::new(false));
    let mut vmm = Vmm::start(&served.path);
    let read = access(0, 0, 4);
    let write = [access(0, 0x40, 4), vec![0; 4]].concat();
    for (what, number, payload) in [("reads", command::READ, &read), ("writes", command::WRITE, &write)] {
        let mut rates: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let begun = Instant::now();
                for _ in 0..ACCESSES {
                    assert_eq!(vmm.ask(number, payload).error, 0);
                }
                f64::from(ACCESSES) / begun.elapsed().as_secs_f64()
            })
            .collect();
        rates.sort_by(f64::total_cmp);
        println!("{what}: {:.0} a second, at best {:.0}", rates[ROUNDS / 2], rates[ROUNDS - 1]);
    }
}

/// Measures the times of doubt.
struct Doubt(Mutex<(Instant, Vec<Duration>)>);

impl Recorder for Doubt {
    fn answering(&self, answering: Answering) {
        let mut times = self.0.lock().unwrap();
        if answering == Answering::Nothing {
            let time = times.0.elapsed();
            times.1.push(time);
        } else {
            times.0 = Instant::now();
        }
    }
}

/// The time in which a death leaves a request that may have been answered: from before its reply is sent until
/// it is taken from the socket.
#[test]
#[ignore = "a measurement, for a quiet machine"]
fn rate_of_doubt() {
    let served = Served::start();
    let mut vmm = Vmm::start(&served.path);
    let times = Arc::new(Doubt(Mutex::new((Instant::now(), Vec::new()))));
    let _served = served.stop().restore_recorded(Arc::clone(&times) as _).unwrap();
    for _ in 0..ACCESSES {
        assert_eq!(vmm.ask(command::READ, &access(0, 0, 4)).error, 0);
    }
    let mut times = std::mem::take(&mut times.0.lock().unwrap().1);
    times.sort();
    let part = |of: usize| times[(times.len() - 1) * of / 1000];
    println!(
        "in doubt: p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}",
        part(500),
        part(990),
        part(999),
        part(1000)
    );
}
