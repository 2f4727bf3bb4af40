//! Tests of `install.sh` in dash, bash and BusyBox's shell with BusyBox's tools: the installed files, the
//! messages, and that a failure leaves nothing behind.

mod bed;
mod ending;
mod home;
mod installing;
mod places;
mod releases;
mod surroundings;
mod tls;

use bed::{Bed, Shell, shells};

const BASE: &str = "VGPU_RUN_BASE_URL";

fn in_each_shell(test: impl Fn(&Shell)) {
    for shell in shells() {
        println!("in {}", shell.name);
        test(&shell);
    }
}

/// Asserts that the script fails with `sentence` on stderr and leaves the home directory unchanged.
#[track_caller]
fn refused(bed: &Bed, url: &str, sentence: &str) {
    let before = bed.tree();
    bed.run(&[], &[(BASE, url)]).badly(sentence);
    assert_eq!(bed.tree(), before, "something was left behind");
}
