//! GGML's operations on the soft device agree with the CPU backend, and a device that disagrees is detected.

use serde_json::Value;
use vgpu_serve::Engine;
use vgpu_testbed::backends::Backend;

use crate::support::{report_of, testbed};

/// Runs `vgpu-testbed ops --json` and returns the report and whether it succeeded.
fn ops(arguments: &[&str]) -> (Value, bool) {
    report_of(testbed(&["ops", "--json"]).args(arguments))
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|report| report["case"].as_str().unwrap()).collect()
}

/// Every operation and type is tested with a few shapes, and all kernels are compiled from their PTX.
#[test]
fn every_operation_agrees_with_the_cpu() {
    every_operation_agrees(&["--executor", "soft"]);
}

/// The kernels of the CUDA 13 build are tested, whose products use tensor cores.
#[test]
fn every_operation_of_the_cuda_13_build_agrees_with_the_cpu() {
    every_operation_agrees(&["--executor", "soft", "--cc", "9.0", "--build", "cuda13"]);
}

/// The executor for real GPUs is tested on our own libcuda and a soft device, whose engine differs from that
/// of the other tests if the processor has AVX-512.
#[test]
fn every_operation_agrees_through_the_cuda_executor_and_with_avx2() {
    let avx2 = Engine::available().contains(&Engine::JitAvx2);
    let engine = if avx2 { Engine::JitAvx2 } else { Engine::Interpreter };
    every_operation_agrees(&["--executor", "cuda-loop", "--engine", engine.name()]);
}

fn every_operation_agrees(device: &[&str]) {
    let (report, well) = ops(&[&["--short", "--jobs", "2"], device].concat());
    assert!(names(&report["failed"]).is_empty(), "{:#}", report["failed"]);
    assert!(well);
    let count = |key: &str| report[key].as_u64().unwrap() as usize;
    let unsupported = names(&report["unsupported"]);
    assert_eq!(count("passed") + unsupported.len(), count("cases"));
    assert!(count("passed") > 400, "{} passed", count("passed"));
    // What a language model cannot do without is supported.
    for op in ["MUL_MAT q", "FLASH_ATTN_EXT f16", "ROPE f32", "RMS_NORM ", "SOFT_MAX", "LAYER"] {
        assert!(!unsupported.iter().any(|name| name.starts_with(op)), "{unsupported:#?}");
    }
}

/// All engines of the soft executor that the processor supports pass the same cases with the same largest
/// errors, since they compute the same bits.
#[test]
fn all_engines_agree_with_the_cpu_alike() {
    let filter = "^(ADD|MUL_MAT|RMS_NORM|ROPE|SOFT_MAX|FLASH_ATTN_EXT) (f32|f16|q8_0)";
    let (report, well) = ops(&["--short", "--engine", "all", "--filter", filter]);
    assert!(well, "{report:#}");
    let worst = |engine: Engine| {
        let report = &report[engine.name()];
        assert_eq!(report["engine"], engine.name());
        assert!(report["passed"].as_u64().unwrap() > 10, "{report:#}");
        &report["worst"]
    };
    let engines = Engine::available();
    assert_eq!(report.as_object().unwrap().len(), engines.len(), "{report:#}");
    for pair in engines.windows(2) {
        assert_eq!(worst(pair[0]), worst(pair[1]), "{pair:?}");
    }
}

/// `--engine both` runs `jit` and `interpreter`, and reports an object for each.
#[test]
fn both_engines_are_reported_by_name() {
    let (report, well) = ops(&["--short", "--engine", "both", "--filter", "^ADD f32"]);
    assert!(well, "{report:#}");
    for engine in ["jit", "interpreter"] {
        assert_eq!(report[engine]["engine"], engine);
        assert!(report[engine]["passed"].as_u64().unwrap() > 0, "{report:#}");
    }
}

/// If the device gets other inputs than the CPU, every case that depends on its inputs fails.
#[test]
fn wrong_results_are_found() {
    let cpu = Backend::Cuda12.folder().unwrap().join("libggml-cpu-sse42.so");
    let cpu = cpu.to_str().unwrap();
    let filter =
        "^(ADD|MUL_MAT|MUL_MAT_ID|ARGSORT|CPY|FLASH_ATTN_EXT|GET_ROWS|ROPE|SOFT_MAX|TOP_K) (f32|f16|q8_0)";
    let arguments = ["--short", "--backend", cpu, "--filter", filter];
    let (report, well) = ops(&arguments);
    assert!(well, "two builds of the CPU backend agree: {:#}", report["failed"]);
    let cases = report["cases"].as_u64().unwrap();
    assert!(cases > 30, "{cases} cases");

    let (report, well) = ops(&[&arguments[..], &["--spoil"]].concat());
    assert!(!well);
    assert_eq!(report["passed"], 0, "{report:#}");
    let unsupported = names(&report["unsupported"]).len();
    assert_eq!(names(&report["failed"]).len() + unsupported, cases as usize);
    for failed in report["failed"].as_array().unwrap() {
        assert!(failed["why"].as_str().is_some_and(|why| !why.is_empty()), "{failed}");
    }
}

/// A device that answers success without computing anything is detected.
#[test]
fn a_device_that_does_nothing_fails() {
    let (report, well) = ops(&["--executor", "null", "--filter", "^(ADD|ARGMAX|RMS_NORM) f32", "--short"]);
    assert!(!well);
    assert_eq!(report["passed"], 0, "{report:#}");
    assert_eq!(names(&report["failed"]).len() as u64, report["cases"].as_u64().unwrap());
}

/// A case that ends its process fails with GGML's message, and the next one runs in a new process.
#[test]
fn a_case_that_ends_its_process_is_one_failure() {
    // Too little memory for the pool that GGML takes a product's scratch from: it aborts.
    let filter = "^(MUL_MAT q8_0,f32 m=67 n=1 |SSM_CONV f32 4x256x3x1 )";
    let (report, well) = ops(&["--memory-mib", "1", "--filter", filter]);
    assert!(!well);
    assert_eq!(report["cases"], 2, "{report:#}");
    assert_eq!(report["passed"], 1, "{report:#}");
    let failed = &report["failed"][0];
    assert!(failed["case"].as_str().unwrap().starts_with("MUL_MAT"), "{failed}");
    assert!(failed["why"].as_str().unwrap().contains("out of memory"), "{failed}");
}
