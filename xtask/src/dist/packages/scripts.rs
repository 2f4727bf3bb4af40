//! The scripts that a package manager runs: the functions of packaging/NAME.sh, with a line that calls the one
//! of the step. dpkg says a step by words, RPM by the number of installed versions.

use std::path::Path;

use serde_json::{Map, Value};

use super::super::error::DistError;
use super::super::files::{read, write};
use super::kinds::{Format, Package};

/// What each script calls: nFPM's name of the script, dpkg's way and RPM's way.
type Calls = &'static [(&'static str, &'static str, &'static str)];

const OF_HOST: Calls = &[
    (
        "preinstall",
        "if [ \"$1\" = upgrade ]; then before_upgrade; fi",
        "if [ \"$1\" -gt 1 ]; then before_upgrade; fi",
    ),
    (
        "postinstall",
        "if [ \"$1\" = configure ]; then if [ -n \"${2:-}\" ]; then after_install yes; else after_install no; fi; fi",
        "if [ \"$1\" -gt 1 ]; then after_install yes; else after_install no; fi",
    ),
    (
        "preremove",
        "if [ \"$1\" = remove ]; then before_remove; fi",
        "if [ \"$1\" -eq 0 ]; then before_remove; fi",
    ),
    (
        "postremove",
        "case $1 in remove) after_remove ;; purge) after_purge ;; esac",
        // RPM has no purge.
        "if [ \"$1\" -eq 0 ]; then after_remove; after_purge; fi",
    ),
];

const OF_GUEST: Calls = &[
    ("postinstall", "if [ \"$1\" = configure ]; then after_install; fi", "after_install"),
    (
        "preremove",
        "if [ \"$1\" = remove ]; then before_remove; fi",
        "if [ \"$1\" -eq 0 ]; then before_remove; fi",
    ),
];

/// Writes the scripts of a package into `stage`, and returns their paths as nFPM's configuration lists them.
pub(super) fn write_scripts(
    root: &Path,
    stage: &Path,
    package: Package,
    format: Format,
) -> Result<Value, DistError> {
    let functions = read(&root.join("packaging").join(format!("{}.sh", package.name)))?;
    let functions = String::from_utf8_lossy(&functions);
    let mut scripts = Map::new();
    for (name, of_dpkg, of_rpm) in if package.host { OF_HOST } else { OF_GUEST } {
        let call = if format == Format::Deb { of_dpkg } else { of_rpm };
        let path = stage.join(name);
        write(&path, format!("#!/bin/sh\nset -e\n{functions}\n{call}\n").as_bytes())?;
        scripts.insert((*name).to_owned(), path.display().to_string().into());
    }
    Ok(Value::Object(scripts))
}
