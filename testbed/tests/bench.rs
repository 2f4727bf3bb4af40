//! `vgpu-testbed bench kernels` reports where a token's time goes, and what the interpreter ran. `bench wait`
//! reports how long a program waits.

use serde_json::Value;

use crate::support::{good_report_of, testbed};

/// Runs `vgpu-testbed bench kernels --json` over two tokens of smollm2.
fn kernels(arguments: &[&str]) -> Value {
    good_report_of(testbed(&["bench", "kernels", "--tokens", "2", "--json"]).args(arguments))
}

fn number(of: &Value, key: &str) -> f64 {
    of[key].as_f64().unwrap_or_else(|| panic!("no {key}: {of:#}"))
}

/// The times of a token's parts add up to no more than the whole, and all launches of the interpreter count
/// as fallbacks. The kernels of a language model are among the parts, and the chart names them.
#[test]
fn a_tokens_time_is_shown_kernel_by_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("chart.svg");
    let figures = kernels(&["--engine", "interpreter", "--chart", chart.to_str().unwrap()]);
    let fallbacks = &figures["fallbacks"];
    assert!(number(fallbacks, "launches") > 100.0, "{fallbacks}");
    assert_eq!(fallbacks["launches"], fallbacks["interpreted"]);
    assert_eq!(fallbacks["handed_steps"], 0.0);
    let rows = figures["kernels"].as_array().unwrap();
    let sum: f64 = rows.iter().map(|row| number(row, "launches")).sum();
    assert!((sum - number(fallbacks, "launches")).abs() < 2.0, "{sum} in rows: {fallbacks}");
    assert!(number(&figures, "kernels_ms") <= number(&figures, "token_ms"), "{figures:#}");
    assert!(number(&figures["outside"]["tasks"]["copy_out"], "count") >= 1.0, "{figures:#}");
    let svg = std::fs::read_to_string(&chart).unwrap();
    for kernel in ["mul_mat_vec_q", "rms_norm_f32", "quantize_q8_1"] {
        assert!(rows.iter().any(|row| row["name"].as_str().unwrap().starts_with(kernel)), "{rows:#?}");
        assert!(svg.contains(kernel), "the chart lacks {kernel}");
    }
}

/// On a processor with AVX2, machine code exists for all kernels of a token.
#[test]
fn no_kernel_of_a_token_falls_back() {
    if !["avx2", "fma", "f16c"].iter().all(|feature| cpu_has(feature)) {
        eprintln!("left out: the processor has no AVX2");
        return;
    }
    let figures = kernels(&["--engine", "jit"]);
    assert_eq!(figures["fallbacks"]["interpreted"], 0.0, "{:#}", figures["fallbacks"]);
}

/// Returns whether the flags of the host's processors include one.
fn cpu_has(feature: &str) -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    text.lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split(' ').any(|flag| flag == feature))
}

/// A launch takes as long as its work, and the figures of all processes are there. How late a program sees
/// the end depends on who else uses the processors.
#[test]
fn a_wait_for_work_takes_as_long_as_the_work() {
    let wait = ["bench", "wait", "--complete-after", "4ms", "--seconds", "4", "--worker", "--json"];
    let figures = good_report_of(&mut testbed(&wait));
    assert!(number(&figures, "trips") >= 5.0, "{figures:#}");
    assert!(number(&figures["trip_us"], "p50") >= 3900.0, "{figures:#}");
    assert!(number(&figures["late_us"], "p50") > 0.0, "{figures:#}");
    for own in ["polling_ring_us", "sleeping_ring_us", "late_us"] {
        assert!(number(&figures["machine"][own], "p50") > 0.0, "{figures:#}");
    }
    assert!(number(&figures["ratios"]["late_to_timer"], "p99") > 0.0, "{figures:#}");
    let times = &figures["processor_us"];
    for process in ["client", "device", "worker", "simulated_gpu"] {
        assert!(number(times, process) > 0.0, "{figures:#}");
    }
}
