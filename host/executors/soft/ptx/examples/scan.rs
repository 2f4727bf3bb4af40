//! Parses and analyses each kernel of PTX files; says what was refused, and how long it took.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use vgpu_ptx::analysis::{self, Assume};
use vgpu_ptx::ir::Kernel;
use vgpu_ptx::{Effort, Interrupt, Module, PtxError};

/// Sums and extremes over all kernels.
#[derive(Default)]
struct Totals {
    kernels: usize,
    bytes: usize,
    instructions: usize,
    blocks: usize,
    registers: usize,
    most_registers: usize,
    most_blocks: usize,
    most_slots: u32,
    uniform: usize,
    blended: usize,
    indexed: Duration,
    parsed: Duration,
    analysed: Duration,
    slowest: Duration,
    /// By spelling: how many kernels, and one error in full.
    refused: BTreeMap<String, (usize, String)>,
}

fn main() {
    let mut totals = Totals::default();
    for path in std::env::args().skip(1) {
        let module = match std::fs::read(&path) {
            Ok(text) => {
                totals.bytes += text.len();
                let start = Instant::now();
                let module = Module::parse(text);
                totals.indexed += start.elapsed();
                module
            }
            Err(error) => {
                eprintln!("{path}: {error}");
                continue;
            }
        };
        match module {
            Ok(module) => totals.module(&module),
            Err(error) => eprintln!("{path}: {error}"),
        }
    }
    totals.print();
}

impl Totals {
    fn module(&mut self, module: &Module) {
        for name in module.kernel_names() {
            let start = Instant::now();
            let kernel = module.kernel(name);
            self.parsed += start.elapsed();
            match kernel {
                Ok(kernel) => self.kernel(&kernel),
                Err(error) => {
                    let key = match &error {
                        PtxError::Unsupported { spelling, .. } => spelling.clone(),
                        other => other.to_string(),
                    };
                    self.refused.entry(key).or_insert_with(|| (0, error.to_string())).0 += 1;
                }
            }
        }
    }

    fn kernel(&mut self, kernel: &Kernel) {
        let start = Instant::now();
        let analysis = analysis::analyse(
            kernel,
            Assume { tid_yz_uniform: true },
            &Effort::of_kernel(Interrupt::default()),
        )
        .expect("little effort");
        let slots = analysis::slots(kernel, &analysis);
        let elapsed = start.elapsed();
        self.analysed += elapsed;
        self.slowest = self.slowest.max(elapsed);
        self.kernels += 1;
        self.instructions += kernel.code.len();
        self.blocks += kernel.blocks.len();
        self.registers += kernel.registers.len();
        self.uniform += analysis.uniform.len();
        self.blended += analysis.blend.len();
        self.most_registers = self.most_registers.max(kernel.registers.len());
        self.most_blocks = self.most_blocks.max(kernel.blocks.len());
        self.most_slots = self.most_slots.max(slots.counts.iter().sum());
    }

    fn print(&self) {
        for (key, (count, example)) in &self.refused {
            println!("{count:6} {key}\n       {example}");
        }
        println!("kernels       {}", self.kernels);
        println!(
            "instructions  {} in {} blocks (at most {})",
            self.instructions, self.blocks, self.most_blocks
        );
        println!(
            "registers     {} (at most {}, in {} slots), {} uniform, {} blended",
            self.registers, self.most_registers, self.most_slots, self.uniform, self.blended
        );
        println!("bytes         {}", self.bytes);
        println!(
            "time          modules {:.1?}, kernels {:.1?}, analyses {:.1?} (at most {:.1?})",
            self.indexed, self.parsed, self.analysed, self.slowest
        );
    }
}
