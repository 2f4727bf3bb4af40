//! Tries what Ollama's server does with the store of models when it starts, in the order of its sources: it
//! creates the directory of blobs and reads all of it, and removes directories of manifests that are empty.
//! The server ends if one of these fails. It starts without a directory of manifests, and keeps one in which
//! a manifest is damaged. The store may be read-only: only `ollama pull` and `ollama create` write.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::tried::{Obstacle, creatable, errno, refused, room_for_directory, writable};
use crate::check::messages::{RefusedValue, ValueTrouble};

/// Maximum number of entries of the store that are examined.
const ENTRIES: usize = 4096;
/// Maximum size of a manifest that is read. Real ones have a kilobyte.
const MANIFEST: u64 = 1 << 20;
/// Start of the names that old releases gave to blobs. The server renames those.
const OLD_NAME: &[u8] = b"sha256:";

/// Tries the store at `models`, which `variable` names. `prunes` tells whether the server removes what is
/// unused.
pub fn models(variable: &str, models: &Path, prunes: bool) -> Option<RefusedValue> {
    let [blobs, manifests] = ["blobs", "manifests"].map(|name| models.join(name));
    let fatal = |left, obstacle| Some(refused(ValueTrouble::ModelsRefused, variable, models, left, obstacle));
    let made = creatable(&blobs).and_then(|nearest| {
        if nearest == blobs {
            return walked(&blobs, &mut { ENTRIES });
        }
        room_for_directory(&nearest).map_err(|errno| (nearest, errno))
    });
    if let Err(obstacle) = made {
        // The server ends before it has changed anything, unless it has renamed blobs.
        return fatal(!renames(&blobs), obstacle);
    }
    let there = creatable(&manifests);
    if prunes
        && there.as_ref().is_ok_and(|nearest| *nearest == manifests)
        && !damaged(&manifests)
        && let Err(obstacle) = prunable(&manifests, &mut { ENTRIES })
    {
        return fatal(false, obstacle);
    }
    let read_only = [&blobs, &manifests].into_iter().find_map(|folder| {
        if !folder.is_dir() {
            return creatable(folder).err();
        }
        writable(folder).err().map(|errno| (folder.clone(), errno))
    });
    Some(refused(ValueTrouble::ModelsReadOnly, variable, models, false, read_only?))
}

/// Returns whether the server would rename blobs.
fn renames(blobs: &Path) -> bool {
    let mut entries = fs::read_dir(blobs).into_iter().flatten().flatten();
    writable(blobs).is_ok() && entries.any(|entry| entry.file_name().as_encoded_bytes().starts_with(OLD_NAME))
}

/// Tries whether the server can read all directories of blobs and rename those with old names.
fn walked(folder: &Path, left: &mut usize) -> Result<(), Obstacle> {
    let at = |error: io::Error| (folder.to_owned(), errno(&error));
    for entry in fs::read_dir(folder).map_err(at)? {
        let entry = entry.map_err(at)?;
        match left.checked_sub(1) {
            Some(fewer) => *left = fewer,
            None => break,
        }
        if entry.file_name().as_encoded_bytes().starts_with(OLD_NAME) {
            writable(folder).map_err(|errno| (folder.to_owned(), errno))?;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walked(&entry.path(), left)?;
        }
    }
    Ok(())
}

/// Returns whether a manifest, which is a file below four directories, cannot be understood. The server
/// removes nothing then.
fn damaged(manifests: &Path) -> bool {
    let mut folders = vec![manifests.to_owned()];
    for _ in 0..3 {
        let below = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        // The server's pattern follows links.
        folders = below.map(|entry| entry.path()).filter(|path| path.is_dir()).take(ENTRIES).collect();
    }
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    files.take(ENTRIES).map(|entry| entry.path()).any(|path| match fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => false,
        Ok(_) => !is_manifest(manifests, &path),
        Err(_) => true,
    })
}

/// Returns whether the server can read a manifest and takes its path for a model's name.
fn is_manifest(manifests: &Path, path: &Path) -> bool {
    let mut text = Vec::new();
    let read =
        vgpu_paths::open_regular(path).and_then(|file: File| file.take(MANIFEST).read_to_end(&mut text));
    let mut values = serde_json::Deserializer::from_slice(&text).into_iter::<serde_json::Value>();
    let understood = matches!(values.next(), Some(Ok(value)) if value.is_object());
    let names = path.strip_prefix(manifests).is_ok_and(|names| {
        names.iter().enumerate().all(|(part, name)| is_name(part, &name.to_string_lossy()))
    });
    read.is_ok() && understood && names
}

/// Returns whether Ollama takes a text for a part of a model's name: host, namespace, model and tag.
fn is_name(part: usize, text: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let most = if part == 0 { 350 } else { 80 };
    text.len() <= most
        && text.starts_with(plain)
        && text.chars().all(|letter| match letter {
            '-' => true,
            '.' => part != 1,
            ':' => part == 0,
            letter => plain(letter),
        })
}

/// Tries whether the server may remove those directories at and below `path` that are empty. Returns whether
/// it would remove `path`.
fn prunable(path: &Path, left: &mut usize) -> Result<bool, Obstacle> {
    let at = |error: io::Error| (path.to_owned(), errno(&error));
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() && *left > 0 => *left -= 1,
        Ok(_) | Err(_) => return Ok(false),
    }
    let mut empty = true;
    for entry in fs::read_dir(path).map_err(at)? {
        empty &= prunable(&entry.map_err(at)?.path(), left)?;
    }
    if empty && let Some(parent) = path.parent() {
        writable(parent).map_err(|errno| (path.to_owned(), errno))?;
    }
    Ok(empty)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};

    use super::*;
    use crate::scratch::Scratch;

    /// Returns the trouble with a store, and whether the server is given the store although there is trouble.
    fn trouble(store: &Scratch, prunes: bool) -> Option<(ValueTrouble, bool)> {
        models("OLLAMA_MODELS", store.path(), prunes).map(|refused| (refused.trouble, refused.left))
    }

    #[test]
    fn empty_directories_of_manifests_are_removed_at_a_start() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.join("manifests/a/b")).unwrap();
        assert_eq!(prunable(&scratch.join("manifests"), &mut 9), Ok(true));
        fs::write(scratch.join("manifests/a/b/c"), "{}").unwrap();
        assert_eq!(prunable(&scratch.join("manifests"), &mut 9), Ok(false));
        assert_eq!(prunable(&scratch.join("absent"), &mut 9), Ok(false));
    }

    #[test]
    fn a_damaged_manifest_keeps_the_server_from_removing_anything() {
        let scratch = Scratch::new();
        let manifest = scratch.join("registry.ollama.ai/library/llama3.2/1b-q4_K_M");
        fs::create_dir_all(manifest.parent().unwrap()).unwrap();
        assert!(!damaged(scratch.path()), "none is there");
        fs::write(&manifest, r#"{"schemaVersion": 2}"#).unwrap();
        assert!(!damaged(scratch.path()));
        fs::write(manifest.with_file_name("-tag"), "{}").unwrap();
        assert!(damaged(scratch.path()), "its name is none");
        fs::remove_file(manifest.with_file_name("-tag")).unwrap();
        fs::write(&manifest, "").unwrap();
        assert!(damaged(scratch.path()));
        assert!(is_name(0, "localhost:5000") && !is_name(3, "a:b") && !is_name(1, "a.b") && !is_name(2, ""));
    }

    #[test]
    fn what_ends_a_server_and_what_it_goes_on_with() {
        let store = Scratch::new();
        assert_eq!(trouble(&store, true), None);
        fs::create_dir(store.join("blobs")).unwrap();
        fs::write(store.join("manifests"), "").unwrap();
        let read_only = Some((ValueTrouble::ModelsReadOnly, false));
        assert_eq!(trouble(&store, true), read_only, "no manifests are possible");
        // Directories below each other whose path is longer than the kernel permits, for root as well.
        fs::create_dir(store.join("blobs/deep")).unwrap();
        let mut folder = File::open(store.join("blobs/deep")).unwrap();
        for _ in 0..20 {
            let name = "x".repeat(250);
            mkdirat(&folder, name.as_str(), Mode::RWXU).unwrap();
            folder = openat(&folder, name.as_str(), OFlags::DIRECTORY, Mode::empty()).unwrap().into();
        }
        assert_eq!(trouble(&store, false), Some((ValueTrouble::ModelsRefused, true)));
        fs::write(store.join("blobs/sha256:0"), "").unwrap();
        let refused = Some((ValueTrouble::ModelsRefused, false));
        assert_eq!(trouble(&store, false), refused, "the server would rename a blob first");
        fs::remove_dir_all(store.join("blobs/deep")).unwrap();
        assert_eq!(trouble(&store, false), read_only, "it can rename it");
        fs::remove_dir_all(store.join("blobs")).unwrap();
        fs::write(store.join("blobs"), "").unwrap();
        assert_eq!(trouble(&store, false), Some((ValueTrouble::ModelsRefused, true)));
    }
}
