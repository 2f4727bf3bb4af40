//! Other processes of a test: this test program, started again in one role.

use std::path::PathBuf;

use vgpu_transport_bed::{allocate, say, stay};

use crate::version1::attach_in;
use crate::{killed, old_guests, version1};

/// Entry point of the other processes, which is not a test itself.
#[test]
fn part() {
    let (Ok(part), Some(dir)) = (std::env::var("VGPU_TEST_PART"), std::env::var_os("VGPU_TEST_DIR")) else {
        return;
    };
    let dir = PathBuf::from(dir);
    match part.as_str() {
        "copying-small" => version1::copying(&dir),
        "copying-up" => old_guests::copying_up(&dir),
        "memory-1" => {
            let session = attach_in(&dir);
            allocate(&session, 64 << 20);
            say("ready");
            stay();
        }
        other => match other.strip_prefix("v1-") {
            Some(what) => killed::part(what, &dir),
            None => panic!("there is no part {other}"),
        },
    }
}
