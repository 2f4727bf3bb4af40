//! Nanoseconds that one access of a warp takes, by how its addresses lie:
//! `cargo run --release -p vgpu-arena --example access`.

use std::hint::black_box;
use std::time::Instant;

use vgpu_arena::{Arena, LANES, View, Window};

const BASE: u64 = 0x7000_0000_0000;
/// Small enough for the first-level cache: what is measured is the access, not memory.
const BYTES: u64 = 16 << 10;
const ROUNDS: u32 = 20_000;
/// The best of so many counts: others use the machine too.
const BATCHES: u32 = 100;

/// One access after the other, compiled with the instructions of the engine.
macro_rules! timed {
    ($name:expr, |$window:ident, $addresses:ident, $view:ident| $access:expr, $lanes:expr) => {{
        #[target_feature(enable = "avx2")]
        fn run($view: &View, $addresses: &mut [u64; LANES]) -> f64 {
            let mut $window = Window::default();
            let mut best = f64::INFINITY;
            for _ in 0..BATCHES {
                let start = Instant::now();
                for _ in 0..ROUNDS {
                    black_box(&mut *$addresses);
                    $access
                }
                best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS));
            }
            best
        }
        let arena = Arena::new(BASE, 1 << 30).expect("an arena");
        arena.map(BASE, BYTES).expect("memory");
        let view = arena.view();
        let mut addresses: [u64; LANES] = std::array::from_fn($lanes);
        // SAFETY: `main` has found that the processor has AVX2.
        let ns = unsafe { run(&view, &mut addresses) };
        println!("{:32} {ns:6.2} ns", $name);
    }};
}

fn scattered(lane: usize) -> u64 {
    BASE + (lane as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (BYTES / 8) * 8
}

fn main() {
    if !std::is_x86_feature_detected!("avx2") {
        println!("needs AVX2");
        return;
    }
    let unit = |lane: usize| BASE + 4 * lane as u64;
    let strided = |lane: usize| BASE + 144 * lane as u64;
    let mut out = [0u32; LANES];
    black_box(&mut out);
    macro_rules! load {
        ($name:expr, $mask:expr, $lanes:expr) => {
            timed!(
                $name,
                |window, addresses, view| {
                    let mut out = [0u32; LANES];
                    let done = view.load(&mut window, addresses, black_box($mask), &mut out);
                    black_box((done.is_ok(), &out));
                },
                $lanes
            )
        };
    }
    load!("load u32, unit stride", u32::MAX, unit);
    load!("load u32, unit, not by 8", u32::MAX, |lane| BASE + 4 + 4 * lane as u64);
    load!("load u32, stride 144", u32::MAX, strided);
    load!("load u32, scattered", u32::MAX, scattered);
    load!("load u32, 16 lanes of unit", 0xffff, unit);
    load!("load u32, 1 lane", 1, unit);
    timed!(
        "load u16 into u32, stride 144",
        |window, addresses, view| {
            let mut out = [0u32; LANES];
            let done = view.load_with::<u16>(&mut window, addresses, u32::MAX, |lane, value| {
                out[lane] = u32::from(value);
            });
            black_box((done.is_ok(), &out));
        },
        strided
    );
    timed!(
        "load v4.u32, unit",
        |window, addresses, view| {
            let mut out = [[0u32; LANES]; 4];
            let done = view.load_vec(&mut window, addresses, u32::MAX, out.each_mut());
            black_box((done.is_ok(), &out));
        },
        |lane| BASE + 16 * lane as u64
    );
    timed!(
        "load u32, uniform",
        |window, addresses, view| {
            black_box(view.load_uniform::<u32>(&mut window, addresses[0])).ok();
        },
        unit
    );
    macro_rules! store {
        ($name:expr, $lanes:expr) => {
            timed!(
                $name,
                |window, addresses, view| {
                    let values = black_box([1u32; LANES]);
                    black_box(view.store(&mut window, addresses, u32::MAX, &values)).ok();
                },
                $lanes
            )
        };
    }
    store!("store u32, unit stride", unit);
    store!("store u32, scattered", scattered);
    timed!(
        "atomic add u32, scattered",
        |window, addresses, view| {
            let mut old = [0u32; LANES];
            black_box(view.rmw(&mut window, addresses, u32::MAX, |_, old| old + 1, &mut old)).ok();
        },
        scattered
    );
}
