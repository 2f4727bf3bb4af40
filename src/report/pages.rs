//! Texts of `--explain LINK`: a page on each link, written for an operator.

use crate::diagnosis::LinkId;

macro_rules! pages {
    ($($link:ident $file:literal)*) => {
        /// Returns the page about a link.
        pub fn page(link: LinkId) -> &'static str {
            match link {
                $(LinkId::$link => include_str!(concat!("../check/pages/", $file, ".md")),)*
            }
        }
    };
}

pages! {
    Kernel "kernel"
    Pci "pci"
    Permission "permission"
    Device "device"
    Window "window"
    Host "host"
    Shims "shims"
    Environment "environment"
    Loader "loader"
    Ollama "ollama"
    Backend "backend"
    Init "init"
    Agreement "agreement"
    DataPath "data-path"
    Discovery "discovery"
    Service "service"
    Truth "truth"
}

#[cfg(test)]
mod tests {
    use vgpu_findings::UNKNOWN;

    use super::*;
    use crate::diagnosis::catalogue::LINKS;

    #[test]
    fn every_page_tells_of_its_link_and_of_every_cause() {
        for link in LINKS {
            let (id, text) = (link.id.as_str(), page(link.id));
            assert!(text.starts_with(&format!("# {id}: {}\n", link.title)), "{id}");
            for section in ["## How it breaks", "## What the lines mean"] {
                assert!(text.contains(section), "{id}: {section}");
            }
            for cause in link.causes {
                assert!(text.contains(&format!("\n- `{}`", cause.id())), "{id}: {}", cause.id());
            }
            assert!(text.contains(&format!("`{UNKNOWN}`")), "{id}");
            assert!(text.lines().all(|line| line.chars().count() < 80), "{id}: a line is too long");
            assert!(text.is_ascii(), "{id}");
        }
    }

    #[test]
    fn every_page_names_causes_that_there_are() {
        for link in LINKS {
            let text = page(link.id);
            let breaks = text.split("## ").find(|part| part.starts_with("How it breaks")).unwrap();
            let named = breaks.lines().filter_map(|line| line.strip_prefix("- `")?.split_once('`'));
            for (name, _) in named {
                let known = name == UNKNOWN || link.causes.iter().any(|cause| cause.id() == name);
                assert!(known, "{}: {name}", link.id.as_str());
            }
        }
    }
}
