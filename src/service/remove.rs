//! Implements `service remove`.

use std::path::Path;

use super::change::{self, print};
use super::error::ServiceError;
use super::receipt::Receipt;
use super::root::SystemRoot;
use super::unit_name::unit_name;
use super::{surroundings, system, texts};
use crate::cli::ChangeOptions;

/// State that is reported when a later command fails: the files are already removed.
const DONE: &str = "the files are taken away";

/// Removes what `service install` wrote for a unit. Removing the last unit also removes the device's setup.
pub fn remove(options: &ChangeOptions) -> Result<(), ServiceError> {
    let root = change::open_root(&options.service.root)?;
    change::may(&root, options)?;
    let before = Receipt::load(&root)?;
    let unit = unit_name(&options.service.unit)?;
    let known = before.units.contains_key(&unit);
    // What remains without a unit belongs to the device alone.
    if before.is_empty() || !(known || before.units.is_empty()) {
        print(&format!("{unit} is not set up: nothing to take away.\n"));
        return Ok(());
    }
    let mut wanted = before.clone();
    let entry = wanted.units.remove(&unit);
    let last = wanted.units.is_empty();
    if last {
        wanted.files.clear();
    } else if let Some(entry) = &entry {
        wanted.files.remove(&entry.drop_in);
    }
    let changes = change::to_lose(&root, &before, &wanted)?;
    change::show(&changes);
    if options.dry_run {
        return Ok(());
    }
    change::agree(options)?;
    let restart = root.is_this() && entry.is_some();
    change::make(&root, &changes, &mut wanted)?;
    if root.is_this() {
        if restart {
            system::reload_systemd(DONE)?;
        }
        if last {
            if before.files.contains_key(Path::new(texts::WATCH)) {
                system::stop(DONE, texts::WATCHES)?;
            }
            system::reload_udev(DONE)?;
            system::take_back(&surroundings::functions())?;
            system::unmake_group(DONE, before.group_made, &before.members)?;
        }
    }
    // Last, so that what failed can be tried again.
    if last {
        wanted.discard(&root)?;
    } else {
        wanted.save(&root)?;
        remove_empty(&root, &wanted);
    }
    if entry.is_some() {
        print(&format!("{unit} starts as it did before.\n"));
    }
    if restart && !options.no_restart && system::restart(DONE, &unit)? {
        print(&format!("{unit} was started anew, without vgpu-run.\n"));
    }
    Ok(())
}

/// Removes the directories of the receipt that are now empty.
fn remove_empty(root: &SystemRoot, receipt: &Receipt) {
    for folder in receipt.folders.iter().rev() {
        // One that is in use stays, and is in the receipt still.
        let _ = root.remove_folder(folder);
    }
}
