//! Finds the files of a systemd unit and reads the settings in them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Directories of unit files. A file in an earlier directory replaces one of the same name; drop-ins of all
/// directories apply.
pub const PLACES: [&str; 6] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator",
];

/// Files that systemd reads for one unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitFiles {
    /// Path of the main unit file, if one exists.
    pub main: Option<PathBuf>,
    /// Paths of its drop-ins, in the order in which they apply.
    pub drop_ins: Vec<PathBuf>,
}

impl UnitFiles {
    /// Finds the files of the unit `name`, which includes the suffix, in `places` of this system.
    pub fn find(name: &str, places: &[PathBuf]) -> Self {
        let list = |folder: &Path| {
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
        };
        // A link that leads nowhere is a file too: in a tree of another system it may be right.
        Self::find_by(name, places, list, |path| path.symlink_metadata().is_ok())
    }

    /// Finds the files of the unit `name`. `list` returns the entries of a directory, and `there` tests for a
    /// file.
    pub fn find_by(
        name: &str,
        places: &[PathBuf],
        list: impl Fn(&Path) -> Vec<OsString>,
        there: impl Fn(&Path) -> bool,
    ) -> Self {
        let main = places.iter().map(|place| place.join(name)).find(|path| there(path));
        let mut drop_ins: BTreeMap<OsString, PathBuf> = BTreeMap::new();
        for place in places.iter().rev() {
            let folder = place.join(format!("{name}.d"));
            for file in list(&folder) {
                let path = folder.join(&file);
                if path.extension().is_some_and(|extension| extension == "conf") {
                    drop_ins.insert(file, path);
                }
            }
        }
        Self { main, drop_ins: drop_ins.into_values().collect() }
    }

    /// Paths of all files, in the order in which they apply.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.main.iter().chain(&self.drop_ins).map(PathBuf::as_path)
    }
}

/// Returns the settings of the section `section` in file order, as name and value. Continued lines are joined
/// as systemd joins them (systemd.syntax(7)).
pub fn settings<'a>(text: &'a str, section: &'a str) -> impl Iterator<Item = (String, String)> + 'a {
    let mut current = String::new();
    logical_lines(text).filter_map(move |line| {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut current);
            return None;
        }
        let (key, value) = line.split_once('=').filter(|_| current == section)?;
        Some((key.trim().to_owned(), value.trim().to_owned()))
    })
}

/// Joins continued lines: a backslash at the end of a line becomes a space, and comments in between are
/// skipped.
fn logical_lines(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut lines = text.lines();
    std::iter::from_fn(move || {
        let mut joined: Option<String> = None;
        for line in lines.by_ref() {
            let remark = line.trim_start().starts_with(['#', ';']);
            if remark || (joined.is_none() && line.trim().is_empty()) {
                continue;
            }
            let whole = joined.get_or_insert_default();
            let Some(part) = line.strip_suffix('\\') else {
                whole.push_str(line);
                break;
            };
            whole.push_str(part);
            whole.push(' ');
        }
        joined.map(|line| line.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scratch::Scratch;

    fn service(text: &str) -> Vec<(String, String)> {
        settings(text, "Service").collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn settings_of_a_section() {
        let text = "User=before\n[Unit]\nUser=other\n[Service]\n# remark\n; remark\n User = ollama \n\nExecStart=\nno setting\n\
                    ExecStart=/bin/ollama \\\n# between\n  serve \\\n\nType=simple\n[Install]\nUser=after";
        assert_eq!(
            service(text),
            [
                pair("User", "ollama"),
                pair("ExecStart", ""),
                pair("ExecStart", "/bin/ollama    serve"),
                pair("Type", "simple")
            ]
        );
        assert_eq!(service("[Service]\nA=\\"), [pair("A", "")]);
        assert_eq!(service(""), []);
    }

    #[test]
    fn drop_ins_count_in_the_order_of_their_names_and_hide_those_of_later_places() {
        let scratch = Scratch::new();
        let (etc, lib) = (scratch.join("etc"), scratch.join("lib"));
        for folder in [&etc, &lib] {
            std::fs::create_dir_all(folder.join("x.service.d")).unwrap();
        }
        for path in [
            lib.join("x.service"),
            lib.join("x.service.d/20.conf"),
            lib.join("x.service.d/10.conf"),
            etc.join("x.service.d/20.conf"),
            etc.join("x.service.d/30.txt"),
        ] {
            std::fs::write(path, "").unwrap();
        }
        let files = UnitFiles::find("x.service", &[etc.clone(), lib.clone()]);
        assert_eq!(files.main, Some(lib.join("x.service")));
        assert_eq!(files.drop_ins, [lib.join("x.service.d/10.conf"), etc.join("x.service.d/20.conf")]);
        assert_eq!(UnitFiles::find("y.service", &[etc, lib]), UnitFiles::default());
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "[\\[\\]a-zA-Z=\"'\\\\#; \n/-]{0,120}") {
            let _ = service(&text);
        }
    }
}
