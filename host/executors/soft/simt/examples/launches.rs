//! What a launch costs: kernels that do nothing, by the shape of their grid, and GGML's `quantize_q8_1` of
//! 576 values where a PTX file has it. The median of many launches of each, by turns.
//!
//! ```text
//! cargo run --release -p vgpu-simt --example launches [THREADS] [FILE.ptx]
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::{Duration, Instant};

use vgpu_arena::Arena;
use vgpu_ptx::Module;
use vgpu_simt::{Control, GridLaunch, Output, Pool, Program, launch_grid};

/// Launches of each kind.
const RUNS: usize = 2001;
/// Where device memory begins.
const BASE: u64 = 0x7000_0000_0000;
/// A kernel that ends at once, and one whose threads all write a word.
const PTX: &str = ".version 8.0\n.target sm_61\n.address_size 64\n\
    .entry nothing()\n{\nret;\n}\n\
    .entry word(.param .u64 to)\n{\n.reg .b32 %r<5>;\n.reg .b64 %rd<4>;\nld.param.u64 %rd1, [to];\n\
    mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\nmad.lo.u32 %r4, %r1, %r2, %r3;\n\
    mul.wide.u32 %rd2, %r4, 4;\nadd.u64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r4;\nret;\n}\n";

struct Silent;

impl Output for Silent {
    fn printf(&self, _: &str) {}
}

struct Case {
    name: String,
    program: Program,
    params: Vec<u8>,
    grid: u32,
    block: u32,
    times: Vec<Duration>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let arena = Arena::new(BASE, 1 << 24)?;
    arena.map(BASE, 1 << 22)?;
    let mut cases = Vec::new();
    let own = Module::parse(PTX)?;
    for (name, params) in [("nothing", vec![]), ("word", BASE.to_le_bytes().to_vec())] {
        let program = Program::new(&own.kernel(name)?, &[])?;
        for (grid, block) in [(1, 32), (1, 256), (4, 256), (1, 1024)] {
            let (program, params) = (program.clone(), params.clone());
            cases.push(Case { name: name.into(), program, params, grid, block, times: Vec::new() });
        }
    }
    if let Some(path) = arguments.next() {
        let module = Module::parse(std::fs::read(path)?)?;
        let wanted = |name: &&str| name.starts_with("_Z13quantize_q8_1");
        let name = module.kernel_names().find(wanted).ok_or("no quantize_q8_1")?;
        let program = Program::new(&module.kernel(name)?, &vec![0; module.globals().len()])?;
        let words = [BASE, BASE + (1 << 20), 576, 576, 576, 576, 1024, 1, 1 << 32, 1];
        let params: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        cases.push(Case {
            name: "quantize_q8_1".into(),
            program,
            params,
            grid: 4,
            block: 256,
            times: Vec::new(),
        });
    }
    let (pool, control) = (Pool::new(threads), Control::new());
    for _ in 0..RUNS {
        for case in &mut cases {
            let launch = GridLaunch {
                grid: [case.grid, 1, 1],
                block: [case.block, 1, 1],
                dynamic_shared: 0,
                stack: 0,
                heap: None,
                params: &case.params,
                cooperative: false,
                workspace: 0,
            };
            let begin = Instant::now();
            launch_grid(&case.program, &launch, &arena.view(), &pool, &control, &Silent)?;
            case.times.push(begin.elapsed());
        }
    }
    for Case { name, grid, block, times, .. } in &mut cases {
        times.sort_unstable();
        let micros = |at: usize| times[at].as_secs_f64() * 1e6;
        println!(
            "{name}, {grid} x {block} threads: {:.2} us, the fastest {:.2}",
            micros(RUNS / 2),
            micros(0)
        );
    }
    Ok(())
}
