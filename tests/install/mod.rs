//! `install.sh`, in dash, bash and BusyBox's shell with BusyBox's tools: what it leaves, what it says, and
//! that what fails leaves nothing.

mod bed;
mod ending;
mod installing;
mod places;
mod releases;
mod surroundings;

use bed::{Bed, Shell, shells};

const BASE: &str = "VGPU_RUN_BASE_URL";

fn in_each_shell(test: impl Fn(&Shell)) {
    for shell in shells() {
        println!("in {}", shell.name);
        test(&shell);
    }
}

/// Runs the script against a release, as a user, and nothing may change but for the better.
#[track_caller]
fn refused(bed: &Bed, url: &str, sentence: &str) {
    let before = bed.tree();
    bed.run(&[], &[(BASE, url)]).badly(sentence);
    assert_eq!(bed.tree(), before, "something was left behind");
}
