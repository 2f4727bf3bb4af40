//! Parses each kernel of PTX files and says what it cannot parse, and how long it took.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::Instant;

fn main() {
    let (mut kernels, mut instructions, mut bytes) = (0, 0, 0);
    let (mut registers, mut largest, mut blocks) = (0, 0, 0);
    let (mut index, mut parse) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
    let mut refused: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for path in std::env::args().skip(1) {
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{path}: {error}");
                continue;
            }
        };
        bytes += text.len();
        let start = Instant::now();
        let module = match vgpu_ptx::Module::parse(text) {
            Ok(module) => module,
            Err(error) => {
                eprintln!("{path}: {error}");
                continue;
            }
        };
        index += start.elapsed();
        for name in module.kernel_names() {
            let start = Instant::now();
            let kernel = module.kernel(name);
            parse += start.elapsed();
            match kernel {
                Ok(kernel) => {
                    kernels += 1;
                    instructions += kernel.code.len() + kernel.blocks.len();
                    registers += kernel.registers.len();
                    largest = largest.max(kernel.registers.len());
                    blocks = blocks.max(kernel.blocks.len());
                }
                Err(error) => {
                    let key = match &error {
                        vgpu_ptx::PtxError::Unsupported { spelling, .. } => spelling.clone(),
                        other => other.to_string(),
                    };
                    refused.entry(key).or_insert_with(|| (0, error.to_string())).0 += 1;
                }
            }
        }
    }
    for (key, (count, example)) in &refused {
        println!("{count:6} {key}\n       {example}");
    }
    println!(
        "{kernels} kernels, {instructions} instructions and terminators, {registers} registers (at most {largest}), at most {blocks} blocks"
    );
    println!("{bytes} bytes indexed in {index:.1?}, kernels parsed in {parse:.1?}");
}
