//! Computes LD_PRELOAD and LD_LIBRARY_PATH from their inherited values and the locations of our libraries, as
//! a pure function.
//!
//! ld.so splits LD_PRELOAD on colons and spaces and LD_LIBRARY_PATH on colons and semicolons, and expands `$`
//! in both; the paths given here contain none of these ([`fits`]). Inherited values are kept unchanged after
//! ours, so that ours take precedence. Only entries of an earlier launcher are removed, so that a process
//! does not load a library twice.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::env::{Environment, LD_LIBRARY_PATH, LD_PRELOAD};

/// Returns whether the loader takes `path` as a single literal entry in both variables.
pub fn fits(path: &OsStr) -> bool {
    path.as_bytes().starts_with(b"/") && !path.as_bytes().iter().any(|byte| b" :;$\n".contains(byte))
}

/// Paths of the delivered libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Paths to preload, in order.
    pub preload: Vec<OsString>,
    /// Directory that the loader searches first, if there is one.
    pub folder: Option<OsString>,
}

/// Sets both variables in `environment`. `earlier` recognises an entry of an earlier launcher in either
/// variable.
pub fn compose(environment: &mut Environment, places: &Places, earlier: impl Fn(&OsStr) -> bool) {
    let preload = prepend(&places.preload, environment.get(LD_PRELOAD), b": ", &earlier);
    let folders = prepend(places.folder.as_slice(), environment.get(LD_LIBRARY_PATH), b":;", &earlier);
    for (name, value) in [(LD_PRELOAD, preload), (LD_LIBRARY_PATH, folders)] {
        match value {
            Some(value) => environment.set(name, value),
            None => environment.remove(name),
        }
    }
}

/// Puts `ours` before the inherited value. Returns nothing if both are empty. The inherited text is kept
/// whole, because an empty element of LD_LIBRARY_PATH means the current directory.
fn prepend(
    ours: &[OsString],
    inherited: Option<&OsStr>,
    separators: &[u8],
    earlier: impl Fn(&OsStr) -> bool,
) -> Option<OsString> {
    let kept = without(inherited.unwrap_or_default(), separators, earlier);
    if ours.is_empty() {
        return inherited.is_some().then_some(kept).filter(|kept| !kept.is_empty());
    }
    let mut value = ours.join(OsStr::new(":"));
    if !kept.is_empty() {
        value.push(":");
        value.push(kept);
    }
    Some(value)
}

/// Returns `text` without the entries that `earlier` recognises. Each entry is removed with the separator
/// before it, the first one with the separator after it.
fn without(text: &OsStr, separators: &[u8], earlier: impl Fn(&OsStr) -> bool) -> OsString {
    let bytes = text.as_bytes();
    let mut kept = Vec::with_capacity(bytes.len());
    let mut start = 0;
    let mut any = false;
    while start <= bytes.len() {
        let rest = &bytes[start..];
        let end = rest.iter().position(|byte| separators.contains(byte)).unwrap_or(rest.len());
        let entry = &rest[..end];
        if entry.is_empty() || !earlier(OsStr::from_bytes(entry)) {
            if any {
                kept.push(bytes[start - 1]);
            }
            kept.extend_from_slice(entry);
            any = true;
        }
        start += end + 1;
    }
    OsStr::from_bytes(&kept).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places(preload: &[&str], folder: Option<&str>) -> Places {
        Places { preload: preload.iter().map(Into::into).collect(), folder: folder.map(Into::into) }
    }

    fn ours(entry: &OsStr) -> bool {
        entry.as_bytes().starts_with(b"/old/")
    }

    fn composed(preload: Option<&str>, library_path: Option<&str>) -> (String, Option<String>) {
        let mut environment = Environment::from_iter([("A", "1")]);
        for (name, value) in [(LD_PRELOAD, preload), (LD_LIBRARY_PATH, library_path)] {
            if let Some(value) = value {
                environment.set(name, value);
            }
        }
        compose(&mut environment, &places(&["/proc/1/fd/900", "/proc/1/fd/901"], Some("/f")), ours);
        assert_eq!(environment.get("A"), Some(OsStr::new("1")));
        let text = |name| environment.get(name).map(|value| value.to_str().unwrap().to_owned());
        (text(LD_PRELOAD).unwrap(), text(LD_LIBRARY_PATH))
    }

    #[test]
    fn ours_come_first_and_the_rest_is_kept() {
        let (preload, path) = composed(None, None);
        assert_eq!((preload.as_str(), path.as_deref()), ("/proc/1/fd/900:/proc/1/fd/901", Some("/f")));
        let (preload, path) = composed(Some("libx.so /y.so"), Some("/a::/b;/c"));
        assert_eq!(preload, "/proc/1/fd/900:/proc/1/fd/901:libx.so /y.so");
        assert_eq!(path.as_deref(), Some("/f:/a::/b;/c"));
    }

    #[test]
    fn an_empty_variable_is_none() {
        let (preload, path) = composed(Some(""), Some(""));
        assert_eq!((preload.as_str(), path.as_deref()), ("/proc/1/fd/900:/proc/1/fd/901", Some("/f")));
    }

    #[test]
    fn an_earlier_launchers_entries_go() {
        let (preload, path) = composed(Some("/old/1:/x.so /old/2"), Some("/old/f"));
        assert_eq!(preload, "/proc/1/fd/900:/proc/1/fd/901:/x.so");
        assert_eq!(path.as_deref(), Some("/f"));
        let (preload, path) = composed(Some("/old/1:/old/2"), Some("/old/f:"));
        assert_eq!(preload, "/proc/1/fd/900:/proc/1/fd/901");
        assert_eq!(path.as_deref(), Some("/f"), "an empty variable stays one that means nothing");
    }

    #[test]
    fn without_a_folder_the_search_path_stays() {
        let mut environment = Environment::from_iter([(LD_LIBRARY_PATH, "/a:/old/f")]);
        compose(&mut environment, &places(&["/p"], None), ours);
        assert_eq!(environment.get(LD_LIBRARY_PATH), Some(OsStr::new("/a")));
        let mut environment = Environment::default();
        compose(&mut environment, &places(&["/p"], None), ours);
        assert_eq!(environment.get(LD_LIBRARY_PATH), None);
    }

    #[test]
    fn paths_that_the_loader_would_split_do_not_fit() {
        for path in ["/a b", "/a:b", "/a;b", "/a$b", "relative", "", "/a\nb"] {
            assert!(!fits(OsStr::new(path)), "{path}");
        }
        assert!(fits(OsStr::new("/run/user/1000/vgpu-run.1.2.3.abc/libcuda.so.1")));
    }

    /// Splits the variable as ld.so does, which ignores empty entries of LD_PRELOAD.
    fn split(value: &OsStr) -> Vec<&[u8]> {
        value.as_bytes().split(|byte| b": ".contains(byte)).filter(|entry| !entry.is_empty()).collect()
    }

    proptest! {
        #[test]
        fn the_loader_finds_ours_then_theirs(
            ours in prop::collection::vec("/[a-z0-9/.]{1,12}", 1..9),
            theirs in "[ :]{0,2}([a-z/.$]{1,8}[ :]{1,2}){0,5}([a-z/.$]{1,8})?",
            set in any::<bool>(),
        ) {
            let mut environment = Environment::default();
            if set {
                environment.set(LD_PRELOAD, theirs.as_str());
            }
            let places = Places { preload: ours.iter().map(Into::into).collect(), folder: None };
            compose(&mut environment, &places, |_| false);
            let found = split(environment.get(LD_PRELOAD).unwrap());
            let mut expected: Vec<&[u8]> = ours.iter().map(String::as_bytes).collect();
            if set {
                expected.extend(split(OsStr::new(&theirs)));
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn launching_twice_is_launching_once(theirs in "([a-z/.]{0,8}[ :]){0,4}[a-z/.]{0,8}") {
            let once = places(&["/old/1", "/old/2"], Some("/old/f"));
            let mut environment = Environment::from_iter([(LD_PRELOAD, &theirs), (LD_LIBRARY_PATH, &theirs)]);
            compose(&mut environment, &once, ours);
            let first = environment.clone();
            compose(&mut environment, &once, ours);
            prop_assert_eq!(environment, first);
        }

        #[test]
        fn nothing_earlier_means_kept_to_the_byte(theirs in "[a-z: ;/$]{0,40}") {
            prop_assert_eq!(without(OsStr::new(&theirs), b": ", |_| false), OsString::from(theirs));
        }
    }
}
