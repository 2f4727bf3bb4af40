//! Finds all paths in a crate, with the files that they lead from and to.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::tree::{Crate, FileId, ModuleId, imported};

/// Returns pairs of files, where a path in the first refers to an item that the second defines.
pub(super) fn edges(found: &Crate) -> BTreeSet<(FileId, FileId)> {
    let mut edges = BTreeSet::new();
    for (id, module) in found.modules.iter().enumerate() {
        let mut visitor = Paths { found, module: id, local: Vec::new(), edges: &mut edges };
        for item in &module.items {
            visitor.visit_item(item);
        }
    }
    edges
}

struct Paths<'a> {
    found: &'a Crate,
    module: ModuleId,
    /// Imports in functions that enclose the current expression.
    local: Vec<Vec<String>>,
    edges: &'a mut BTreeSet<(FileId, FileId)>,
}

impl Paths<'_> {
    fn lead(&mut self, path: &[String]) {
        let from = self.found.modules[self.module].file;
        let targets = self.found.files_of(self.module, path);
        self.edges.extend(targets.into_iter().map(|to| (from, to)));
        // A name that a function imports for itself.
        let named = |import: &&Vec<String>| import.last() == path.first();
        let whole: Vec<Vec<String>> =
            self.local.iter().filter(named).map(|import| [import, &path[1..]].concat()).collect();
        for path in whole {
            let targets = self.found.files_of(self.module, &path);
            self.edges.extend(targets.into_iter().map(|to| (from, to)));
        }
    }

    /// Collects paths from a macro's arguments, whose syntax is unknown.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(ident) if ident == "pub" => {
                    self.finish_path(&mut path);
                    colons = 0;
                    let limited = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
                    tokens.next_if(limited);
                }
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.finish_path(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Group(group) => {
                    self.finish_path(&mut path);
                    colons = 0;
                    self.tokens(group.stream());
                }
                _ => {
                    self.finish_path(&mut path);
                    colons = 0;
                }
            }
        }
        self.finish_path(&mut path);
    }

    fn finish_path(&mut self, path: &mut Vec<String>) {
        if !path.is_empty() {
            self.lead(path);
            path.clear();
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let local = self.local.len();
        visit::visit_item(self, item);
        // What an import within a function names is known there alone; one of the module's is among its names
        // anyway.
        self.local.truncate(local);
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let local = self.local.len();
        for statement in &block.stmts {
            if let syn::Stmt::Item(syn::Item::Use(import)) = statement {
                imported(&import.tree, &mut Vec::new(), &mut self.local);
            }
        }
        visit::visit_block(self, block);
        self.local.truncate(local);
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        let mut paths = Vec::new();
        imported(&import.tree, &mut Vec::new(), &mut paths);
        for path in paths {
            self.lead(&path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
            self.lead(&parts);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        visit::visit_macro(self, called);
        self.tokens(called.tokens.clone());
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // `pub(crate)` says who may see an item; the item needs nothing of the module that is named.
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {
        // Names there are not the crate's.
    }
}
