//! Follows links: of HTML pages to pages and their elements, and of Markdown documents to files. Addresses of
//! the web are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::BookError;

/// Pages that a web server answers with in another page's place, and whose links start at its root.
const ANYWHERE: &str = "404.html";

/// Links that were followed.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Number of links that were followed.
    pub followed: usize,
    /// Links that lead nowhere, each with the file that has it.
    pub broken: Vec<(PathBuf, String)>,
}

impl Links {
    /// Adds the links of other files.
    pub(super) fn add(&mut self, other: Self) {
        self.followed += other.followed;
        self.broken.extend(other.broken);
    }
}

/// Follows the links of all pages below `folder`.
pub(super) fn of_pages(folder: &Path) -> Result<Links, BookError> {
    let mut pages = BTreeMap::new();
    collect(folder, &mut pages)?;
    let ids: BTreeMap<&Path, BTreeSet<&str>> =
        pages.iter().map(|(path, text)| (path.as_path(), attribute(text, "id").collect())).collect();
    let mut links = Links::default();
    for (path, text) in pages.iter().filter(|(path, _)| !path.ends_with(ANYWHERE)) {
        for target in attribute(text, "href").chain(attribute(text, "src")).filter(|target| !is_web(target)) {
            let (file, id) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { beside(path, file) };
            let there = file.exists()
                && (id.is_empty() || ids.get(file.as_path()).is_none_or(|ids| ids.contains(id)));
            links.followed += 1;
            if !there {
                links.broken.push((path.clone(), target.to_owned()));
            }
        }
    }
    Ok(links)
}

/// Follows the links of a Markdown document to files.
pub(super) fn of_document(path: &Path) -> Result<Links, BookError> {
    let text = read(path)?;
    let mut links = Links::default();
    // Code has brackets of its own, in blocks and between backquotes.
    let prose = text.split("\n```").step_by(2).flat_map(|block| block.split('`').step_by(2));
    for target in prose.flat_map(|piece| piece.split("](").skip(1)).filter_map(|rest| rest.split(')').next())
    {
        let file = target.split('#').next().unwrap_or_default();
        if file.is_empty() || is_web(target) {
            continue;
        }
        links.followed += 1;
        if !beside(path, file).exists() {
            links.broken.push((path.to_owned(), target.to_owned()));
        }
    }
    Ok(links)
}

fn is_web(target: &str) -> bool {
    ["https:", "http:", "mailto:", "data:", "javascript:"].iter().any(|scheme| target.starts_with(scheme))
}

/// Returns the path that a link in `page` names.
fn beside(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(page).to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

/// Returns the values of an attribute in a page.
fn attribute<'a>(page: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let start = format!(" {name}=\"");
    let mut rest = page;
    std::iter::from_fn(move || {
        let at = rest.find(&start)? + start.len();
        let (value, after) = rest[at..].split_once('"')?;
        rest = after;
        Some(value)
    })
}

/// Reads all HTML pages below a directory.
fn collect(folder: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<(), BookError> {
    let failed = |source| BookError::File { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|end| end == "html") {
            let text = read(&path)?;
            pages.insert(path, text);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, BookError> {
    fs::read_to_string(path).map_err(|source| BookError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_pages_lead_to_elements() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        write(
            "a.html",
            r##"<h1 id="top">x</h1><a href="#top"><a href="sub/b.html#two"><a href="https://x.org/y">"##,
        );
        write("sub/b.html", r#"<h2 id="two"><img src="../picture.svg"><a href="../a.html">"#);
        write("picture.svg", "");
        write("404.html", r#"<a href="nowhere.html">"#);
        let links = of_pages(folder.path()).unwrap();
        assert_eq!((links.followed, links.broken), (4, Vec::new()));
        write("a.html", r##"<a href="#bottom"><a href="sub/b.html#three"><a href="c.html">"##);
        let broken: Vec<_> =
            of_pages(folder.path()).unwrap().broken.into_iter().map(|(_, target)| target).collect();
        assert_eq!(broken, ["#bottom", "sub/b.html#three", "c.html"]);
    }

    #[test]
    fn links_of_documents_lead_to_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("README.md");
        let text = "[a](README.md#x) ![p](no.svg) [w](https://x.org) `f[0](gone.md)`\n```\n[c](gone.md)\n```\n[d](gone.md)\n";
        fs::write(&path, text).unwrap();
        let links = of_document(&path).unwrap();
        let broken: Vec<_> = links.broken.into_iter().map(|(_, target)| target).collect();
        assert_eq!((links.followed, broken), (3, vec!["no.svg".to_owned(), "gone.md".to_owned()]));
    }
}
