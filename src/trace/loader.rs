//! Parses the output of ld.so with `LD_DEBUG=libs,files`: which libraries a process loaded, and which names
//! the loader searched for without success.

use std::collections::BTreeMap;

/// Prefixes of the library names that a trace reports; other libraries are ignored.
const NAMES: [&str; 7] =
    ["libcuda.", "libcudart.", "libcublas", "libnvidia-ml.", "libggml", "libvgpu-trace", "libllama"];

/// Libraries that the loader of one process loaded, and files that it tried.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Paths of the initialised libraries, in the order of their initialisation. Only names with a prefix of
    /// `NAMES` are listed.
    pub loaded: Vec<String>,
    /// Searched library names, each with the files that the loader tried for it.
    pub searched: BTreeMap<String, Vec<String>>,
}

/// Parses a loader's debug output. `ours` maps the paths of preloaded files to their SONAMEs.
pub fn read(text: &str, ours: &BTreeMap<String, String>) -> Decisions {
    let mut decisions = Decisions::default();
    let mut searched: Option<String> = None;
    for line in text.lines() {
        let Some((_, said)) = line.split_once(':') else { continue };
        let said = said.trim();
        if let Some(path) = said.strip_prefix("calling init: ") {
            let path = path.trim();
            let known = ours.get(path).map(|soname| format!("{soname} from vgpu-run"));
            let entry = known.or_else(|| matters(path).then(|| path.to_owned()));
            decisions.loaded.extend(entry.filter(|entry| !decisions.loaded.contains(entry)));
        } else if let Some(rest) = said.strip_prefix("find library=") {
            let name = rest.split(' ').next().unwrap_or_default().to_owned();
            searched = matters(&name).then_some(name);
        } else if let (Some(path), Some(name)) = (said.strip_prefix("trying file="), &searched) {
            decisions.searched.entry(name.clone()).or_default().push(path.to_owned());
        }
    }
    decisions
}

fn matters(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    NAMES.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAID: &str = "      77:\tfind library=libcudart.so.12 [0]; searching\n      77:\t search path=/a:/b\t\t(LD_LIBRARY_PATH)\n      77:\t  trying file=/a/libcudart.so.12\n      77:\t  trying file=/b/libcudart.so.12\n      77:\tfind library=libm.so.6 [0]; searching\n      77:\t  trying file=/b/libm.so.6\n      77:\tcalling init: /proc/77/fd/900\n      77:\tcalling init: /lib/libm.so.6\n      77:\tcalling init: /o/libggml-cuda.so\n";

    #[test]
    fn files_that_matter_are_named() {
        let ours = BTreeMap::from([("/proc/77/fd/900".to_owned(), "libcuda.so.1".to_owned())]);
        let decisions = read(SAID, &ours);
        assert_eq!(decisions.loaded, ["libcuda.so.1 from vgpu-run", "/o/libggml-cuda.so"]);
        assert_eq!(decisions.searched["libcudart.so.12"], ["/a/libcudart.so.12", "/b/libcudart.so.12"]);
        assert_eq!(decisions.searched.len(), 1);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "([ 0-9]{0,3}:?\t?(calling init: |find library=|trying file=)?[a-z/.]{0,9}\n){0,9}|.{0,50}") {
            let _ = read(&text, &BTreeMap::new());
        }
    }
}
