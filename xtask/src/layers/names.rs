//! Resolves paths to the items and files that define them.

use std::collections::HashSet;

use super::tree::{Crate, Def, FileId, ModuleId};

/// Item or module to which a path resolves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Found {
    Module(ModuleId),
    /// An item defined in that file. The rest of the path, such as a variant or method, belongs to it.
    Item(FileId),
}

/// Paths being followed, to stop at cyclic re-exports.
type Followed = HashSet<(ModuleId, Vec<String>)>;

impl Crate {
    /// Returns the files that define the target of `path`, as seen from `module`; none if it belongs to
    /// another crate.
    pub(super) fn files_of(&self, module: ModuleId, path: &[String]) -> HashSet<FileId> {
        let found = self.follow(module, path, &mut Followed::new());
        found
            .into_iter()
            .map(|found| match found {
                Found::Module(module) => self.modules[module].file,
                Found::Item(file) => file,
            })
            .collect()
    }

    fn follow(&self, module: ModuleId, path: &[String], followed: &mut Followed) -> Vec<Found> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        if !followed.insert((module, path.to_vec())) {
            return Vec::new();
        }
        let own = &self.modules[module];
        let mut found = match first.as_str() {
            "crate" | "$crate" => vec![Found::Module(own.root)],
            "self" => vec![Found::Module(module)],
            "super" => own.parent.map(Found::Module).into_iter().collect(),
            name => match self.named(module, name, followed) {
                known if !known.is_empty() => known,
                _ => self.library(name),
            },
        };
        for part in rest {
            let next = |found: Found| match found {
                Found::Module(module) if part == "super" => {
                    self.modules[module].parent.map(Found::Module).into_iter().collect()
                }
                Found::Module(module) => self.named(module, part, followed),
                item @ Found::Item(_) => vec![item],
            };
            found = found.into_iter().flat_map(next).collect();
        }
        followed.remove(&(module, path.to_vec()));
        found
    }

    /// Returns what a name within a module resolves to.
    fn named(&self, module: ModuleId, name: &str, followed: &mut Followed) -> Vec<Found> {
        let own = &self.modules[module];
        let defs = own.names.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut found = Vec::new();
        for def in defs {
            match def {
                Def::Here => found.push(Found::Item(own.file)),
                Def::Module(module) => found.push(Found::Module(*module)),
                Def::Import(path) => found.extend(self.follow(module, path, followed)),
            }
        }
        if defs.is_empty() {
            for glob in &own.globs {
                for target in self.follow(module, glob, followed) {
                    if let Found::Module(target) = target
                        && followed.insert((target, vec![name.to_owned(), String::new()]))
                    {
                        found.extend(self.named(target, name, followed));
                        followed.remove(&(target, vec![name.to_owned(), String::new()]));
                    }
                }
            }
        }
        found
    }

    /// Returns the package's library if `name` is the name by which its programs refer to it.
    fn library(&self, name: &str) -> Vec<Found> {
        let library = self.library.as_ref().filter(|(library, _)| library == name);
        library.map(|&(_, root)| Found::Module(root)).into_iter().collect()
    }
}
