//! Temporary driver.
use std::time::Duration;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let seed = a[1].parse().unwrap();
    let first: u64 = a[2].parse().unwrap();
    let n: u64 = a[3].parse().unwrap();
    let secs: u64 = a.get(4).map_or(1000000, |s| s.parse().unwrap());
    if n == 0 {
        print!("{}", vgpu_simt_testing::fuzz::draw(seed, first).text());
        return;
    }
    let trace = std::env::var_os("TRACE").is_some();
    let mut shown = 0;
    let plan = vgpu_simt_testing::fuzz::Plan {
        seed,
        first,
        step: 1,
        programs: Some(n),
        time: Some(Duration::from_secs(secs)),
    };
    let max: usize = std::env::var("MAX").map_or(1, |m| m.parse().unwrap());
    let start = std::time::Instant::now();
    let report = vgpu_simt_testing::fuzz::run(&plan, &mut |r| {
        if trace {
            eprintln!("{}", first + r.programs);
        }
        while shown < r.failures.len() {
            let f = &r.failures[shown];
            println!("=== {} {}\n{}", f.number, f.message, f.text);
            shown += 1;
        }
        r.failures.len() < max
    });
    println!(
        "programs {} faults {} references {} median {} failures {} in {:?}",
        report.programs,
        report.faults,
        report.references,
        report.lengths[report.lengths.len() / 2],
        report.failures.len(),
        start.elapsed()
    );
}
