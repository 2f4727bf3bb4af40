//! A crate's modules: the file of each, and the definitions of its names.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta, Token, UseTree};

use super::error::LayersError;

/// Index of a file in [`Crate::files`].
pub(super) type FileId = usize;
/// Index of a module in [`Crate::modules`].
pub(super) type ModuleId = usize;

#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) lines: usize,
}

/// Definition of a name in a module. A name can have several, as type, value and macro.
#[derive(Clone, Debug)]
pub(super) enum Def {
    /// An item defined in the module's own file.
    Here,
    Module(ModuleId),
    /// An import of this path, relative to the module.
    Import(Vec<String>),
}

pub(super) struct Module {
    pub(super) file: FileId,
    pub(super) parent: Option<ModuleId>,
    pub(super) root: ModuleId,
    pub(super) names: HashMap<String, Vec<Def>>,
    /// Paths of the module's glob imports.
    pub(super) globs: Vec<Vec<String>>,
    /// Items of the module, except for child modules.
    pub(super) items: Vec<Item>,
}

/// Files and modules of a package's targets.
#[derive(Default)]
pub(super) struct Crate {
    pub(super) files: Vec<File>,
    pub(super) modules: Vec<Module>,
    /// Name by which programs refer to the library, and its root module.
    pub(super) library: Option<(String, ModuleId)>,
}

/// Directory in which the files of a module's children are searched.
struct ModuleDir<'a> {
    file: FileId,
    folder: &'a Path,
}

impl Crate {
    /// Adds the target with this root file. `library` is its name if it is a library.
    pub(super) fn add(&mut self, root: &Path, library: Option<String>) -> Result<(), LayersError> {
        let folder = root.parent().unwrap_or(root).to_owned();
        let id = self.file(root, &folder, None)?;
        if let Some(name) = library {
            self.library = Some((name, id));
        }
        Ok(())
    }

    /// Parses a module's file, and those of its children in `folder`.
    fn file(
        &mut self,
        path: &Path,
        folder: &Path,
        parent: Option<ModuleId>,
    ) -> Result<ModuleId, LayersError> {
        let read = |source| LayersError::Read { path: path.to_owned(), source };
        let text = fs::read_to_string(path).map_err(read)?;
        let parse = |source| LayersError::Parse { path: path.to_owned(), source };
        let parsed = syn::parse_file(&text).map_err(parse)?;
        let known = self.files.iter().position(|file| file.path == path);
        let file = known.unwrap_or_else(|| {
            self.files.push(File { path: path.to_owned(), lines: text.lines().count() });
            self.files.len() - 1
        });
        self.module(parsed.items, &ModuleDir { file, folder }, parent)
    }

    fn module(
        &mut self,
        items: Vec<Item>,
        place: &ModuleDir<'_>,
        parent: Option<ModuleId>,
    ) -> Result<ModuleId, LayersError> {
        let id = self.modules.len();
        let root = parent.map_or(id, |parent| self.modules[parent].root);
        self.modules.push(Module {
            file: place.file,
            parent,
            root,
            names: HashMap::new(),
            globs: Vec::new(),
            items: Vec::new(),
        });
        for item in items {
            if attributes(&item).iter().any(is_for_tests) {
                continue;
            }
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let child = match module.content {
                        Some((_, items)) => {
                            let folder = place.folder.join(&name);
                            self.module(items, &ModuleDir { file: place.file, folder: &folder }, Some(id))?
                        }
                        None => self.child(&name, &module.attrs, place, id)?,
                    };
                    self.define(id, name, Def::Module(child));
                }
                Item::Use(import) => {
                    self.import(id, &mut Vec::new(), &import.tree);
                    self.modules[id].items.push(Item::Use(import));
                }
                item => {
                    for name in defined(&item) {
                        self.define(id, name, Def::Here);
                    }
                    self.modules[id].items.push(item);
                }
            }
        }
        Ok(id)
    }

    /// Reads a child module from a file of its own, which is searched in the parent's directory.
    fn child(
        &mut self,
        name: &str,
        attributes: &[Attribute],
        place: &ModuleDir<'_>,
        parent: ModuleId,
    ) -> Result<ModuleId, LayersError> {
        let declared = self.files[place.file].path.clone();
        let beside = declared.parent().unwrap_or(&declared);
        let candidates = match attributes.iter().find_map(named_path) {
            Some(path) => vec![beside.join(path)],
            None => vec![place.folder.join(format!("{name}.rs")), place.folder.join(name).join("mod.rs")],
        };
        let found = candidates.into_iter().find(|path| path.is_file());
        let path =
            found.ok_or_else(|| LayersError::NoFile { name: name.to_owned(), path: declared.clone() })?;
        let own = path.file_name().is_some_and(|file| file == "mod.rs");
        let folder = if own { path.parent().unwrap_or(&path).to_owned() } else { path.with_extension("") };
        self.file(&path, &folder, Some(parent))
    }

    fn define(&mut self, module: ModuleId, name: String, def: Def) {
        self.modules[module].names.entry(name).or_default().push(def);
    }

    fn import(&mut self, module: ModuleId, path: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.import(module, path, &part.tree);
                path.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = path.last().cloned() {
                    self.define(module, last, Def::Import(path.clone()));
                }
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                let whole = [&path[..], std::slice::from_ref(&name)].concat();
                self.define(module, name, Def::Import(whole));
            }
            UseTree::Rename(rename) => {
                let mut whole = path.clone();
                if rename.ident != "self" {
                    whole.push(rename.ident.to_string());
                }
                self.define(module, rename.rename.to_string(), Def::Import(whole));
            }
            UseTree::Glob(_) => self.modules[module].globs.push(path.clone()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(module, path, tree);
                }
            }
        }
    }
}

/// Collects the paths that an import names, including their last segments.
pub(super) fn imported(tree: &UseTree, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            imported(&part.tree, path, found);
            path.pop();
        }
        UseTree::Name(syn::UseName { ident }) | UseTree::Rename(syn::UseRename { ident, .. }) => {
            let mut whole = path.clone();
            if ident != "self" {
                whole.push(ident.to_string());
            }
            found.push(whole);
        }
        UseTree::Glob(_) => found.push(path.clone()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| imported(tree, path, found)),
    }
}

/// Returns the names that an item defines in its module.
fn defined(item: &Item) -> Vec<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => match &item.ident {
            Some(ident) => ident,
            None => return made(item.mac.tokens.clone()),
        },
        _ => return Vec::new(),
    };
    vec![ident.to_string()]
}

/// Returns the names that a macro's arguments define, if they look like items.
fn made(tokens: TokenStream) -> Vec<String> {
    const KEYWORDS: [&str; 7] = ["const", "enum", "fn", "static", "struct", "type", "union"];
    let mut names = Vec::new();
    let mut keyword = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                if keyword {
                    names.push(ident.to_string());
                }
                keyword = KEYWORDS.iter().any(|word| ident == word);
            }
            TokenTree::Group(group) => {
                names.extend(made(group.stream()));
                keyword = false;
            }
            _ => keyword = false,
        }
    }
    names
}

/// Returns the path in a `#[path]` attribute, if there is one.
fn named_path(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) if pair.path.is_ident("path") => Some(path.value()),
        _ => None,
    }
}

/// Returns whether an attribute restricts an item to tests.
fn is_for_tests(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let Meta::List(list) = &attribute.meta else { return false };
    let parse = Punctuated::<Meta, Token![,]>::parse_terminated;
    list.path.is_ident("cfg")
        && list.parse_args_with(parse).is_ok_and(|parts| parts.iter().any(demands_tests))
}

fn demands_tests(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|parts| parts.iter().any(demands_tests)),
        _ => false,
    }
}

/// Returns the attributes of an item of any kind.
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
