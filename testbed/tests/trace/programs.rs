//! Programs that end by themselves, or inside a call.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use vgpu_artifacts::Cache;
use vgpu_testbed::traffic::Traffic;

use super::bed::{ROOT, standin, start, start_standin};

#[test]
fn a_backends_calls_are_counted_and_named() {
    for backend in ["ggml-cuda12", "ggml-cuda13"] {
        let folder = Cache::open().unwrap().fetch(backend).unwrap();
        let probe = Path::new(ROOT).join("embedded/vgpu-probe");
        let library = folder.join("libggml-cuda.so");
        let base = folder.join("libggml-base.so");
        let arguments = ["load".as_ref(), library.as_os_str(), "--with".as_ref(), base.as_os_str()];
        let traced = start(&[], &probe, &arguments).finish();
        let (summary, calls) = (&traced.summary, &traced.calls);
        assert!(traced.status.success(), "{summary}");
        assert_eq!(calls.get("cudaGetDeviceCount"), Some(&1), "{summary}");
        assert!(calls["cudaMemGetInfo"] >= 1 && calls["cuInit"] >= 1, "{calls:?}");
        let registered = summary.lines().find(|line| line.ends_with(" __cudaRegisterFunction")).unwrap();
        let registered: u32 = registered.split_whitespace().next().unwrap().parse().unwrap();
        assert!(registered > 1000, "{summary}");
        if backend == "ggml-cuda12" {
            assert_eq!(registered, 6741);
        }
        for part in ["no call failed", "libcuda.so.1 from vgpu-run", "libggml-cuda.so"] {
            assert!(summary.contains(part), "{part}: {summary}");
        }
    }
}

#[test]
fn the_call_that_a_process_died_in_is_named() {
    let traced = start_standin("crash").finish();
    let (summary, calls, head) = (&traced.summary, &traced.calls, traced.head());
    assert!(head.contains("SIGSEGV") && head.contains("ended inside cuDeviceGetCount(0x8,"), "{summary}");
    assert!(summary.contains("101 CUDA_ERROR_INVALID_DEVICE"), "{summary}");
    assert_eq!(traced.status.code(), Some(128 + 11));
    assert_eq!(calls.get("cuDriverGetVersion"), Some(&60_000), "two threads of 30,000");
    assert_eq!(calls.get("cuDeviceGetCount"), Some(&3), "one of them the child's");
    assert!(summary.contains("2 processes made"), "{summary}");
    let unfinished = traced.lines().iter().filter(|line| line.ends_with("did not return")).count();
    assert!(unfinished >= 1);
}

#[test]
fn it_is_named_when_the_file_is_full_too() {
    let traced = start_standin("full").finish();
    let summary = &traced.summary;
    assert!(traced.head().contains("ended inside cuDeviceGetCount(0x8,"), "{summary}");
    let calls = traced.calls["cuDriverGetVersion"];
    assert!(calls > 1000 && calls < 30_000, "{calls}");
    assert!(summary.contains(" for which the file had no room"), "{summary}");
}

#[test]
fn messages_and_waits_are_those_that_the_device_counts() {
    let mut running = start_standin("messages");
    let program = running.ready();
    // The program waits, and the device has read all that it said.
    let mut counted = Traffic::read(running.bed.sysfs(), program).unwrap().kinds().clone();
    let traced = running.finish();
    let summary = &traced.summary;
    assert!(traced.status.success(), "{summary}");
    // Padding is no message: where the ring's end is decides about it.
    counted.remove("Pad");
    assert_eq!(traced.messages, counted, "{summary}");
    let total: u64 = counted.values().sum();
    assert!(total > 150, "{summary}");
    assert!(summary.contains(&format!("  messages  {total}\n")), "{summary}");
    assert!(summary.contains(&format!("  waits     {}, ", traced.waits)), "{summary}");
    assert!(traced.waits >= 1, "{summary}");
    for (kind, count) in &counted {
        let line = summary.lines().find(|line| line.ends_with(&format!(" B  {kind}"))).unwrap();
        assert_eq!(line.split_whitespace().next(), Some(count.to_string().as_str()), "{summary}");
    }
}

/// The host's explanation of a refused kernel is in the summary, the list of calls and the timeline.
#[test]
fn a_refused_kernel_is_shown_with_the_hosts_words() {
    let traced = start_standin("refused").finish();
    let summary = &traced.summary;
    assert!(traced.status.success(), "{summary}");
    let words = "the host refused FunctionGet with 218 CUDA_ERROR_INVALID_PTX: ";
    let head = traced.head();
    assert!(head.contains("the first call that failed") && head.contains("cuLaunchKernel("), "{summary}");
    let (_, reason) = head.split_once(words).unwrap_or_else(|| panic!("{summary}"));
    assert!(reason.contains("wrong") && reason.contains("frobnicate"), "{reason}");
    assert!(summary.contains("\n  refused   1\n"), "{summary}");
    let (lines, refusal) = (traced.lines(), format!("# {words}{reason}"));
    let follows = |pair: &[String]| pair[0].contains(" cuLaunchKernel(0x") && pair[1].ends_with(&refusal);
    assert!(lines.windows(2).any(follows), "{lines:?}");
    assert_eq!(traced.refusals, [("FunctionGet is refused".to_owned(), 218, reason.to_owned())]);
}

#[test]
fn each_majors_calls_are_its_own() {
    let traced = start_standin("majors").finish();
    assert!(traced.status.success(), "{}", traced.summary);
    assert_eq!(traced.calls.get("cudaRuntimeGetVersion"), Some(&2));
    for major in [12, 13] {
        let of = format!("cudaRuntimeGetVersion of libcudart.so.{major}");
        assert!(traced.summary.contains(&of), "{}", traced.summary);
    }
}

#[test]
fn another_users_program_is_traced() {
    if !rustix::process::geteuid().is_root() {
        println!("left out: it takes root");
        return;
    }
    let traced = start(&["--user", "nobody"], standin(), &["messages".as_ref()]).finish();
    assert!(traced.status.success(), "{}", traced.summary);
    assert_eq!(traced.calls.get("cuMemcpyHtoD_v2"), Some(&50), "{}", traced.summary);
}

#[test]
fn a_place_that_another_user_cannot_reach_is_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("left out: it takes root");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let output = std::process::Command::new(vgpu_testbed::programs::launcher().unwrap())
        .args(["--user", "nobody", "trace", "--output"])
        .arg(place.path().join("run"))
        .arg("true")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains(&format!("nobody may not pass {}", place.path().display())), "{said}");
}

/// The summary shows a kernel's fault together with the call that reports it.
#[test]
fn a_kernel_that_faulted_is_named_with_place_and_address() {
    let traced = start_standin("fault").finish();
    let (summary, head) = (&traced.summary, traced.head());
    assert!(traced.status.success(), "{summary}");
    for part in
        ["cuCtxSynchronize(", "refused earlier work with 700", "fault", "illegal write at 0x10", "line 9"]
    {
        assert!(head.contains(part), "no {part}: {summary}");
    }
}
