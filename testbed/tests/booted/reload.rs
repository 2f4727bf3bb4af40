//! The device of a booted VM is reloaded while stock llama.cpp streams in the guest: `vgpu-testbed reload
//! --booted`, with few tokens.

use crate::support::{report_of, testbed};

#[test]
fn a_guest_streams_the_same_tokens_with_reloads() {
    let (report, good) = report_of(&mut testbed(&[
        "reload",
        "--json",
        "--booted",
        "--tokens",
        "6",
        "--reloads",
        "2",
        "--sessions",
        "2",
    ]));
    assert!(good, "{report:#}");
    assert_eq!((&report["different"], &report["reloads"]), (&0.into(), &2.into()), "{report:#}");
    assert!(report["access_ms"]["count"].as_u64() > Some(0), "{report:#}");
}
