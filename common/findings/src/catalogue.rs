//! A chain of links as data: its links in the order of examination, what each needs, the known causes that
//! break it, and the remedy for each cause.
//!
//! Ids are permanent: scripts and bug reports name them. A [`Cause`] can only be taken from the module
//! `cause` that [`chain!`](crate::chain) makes, or be [`Cause::unknown`], so a finding with a cause that the
//! catalogue does not list does not compile.

/// The names of a chain's links. Made by [`chain!`](crate::chain).
pub trait Chain: Copy + Ord + 'static {
    /// Returns all links, in the order of the chain.
    fn links() -> &'static [Link<Self>];

    /// Returns the permanent name of the link.
    fn name(self) -> &'static str;

    /// Returns the link's index in [`Chain::links`].
    fn index(self) -> usize;
}

/// One step of the chain.
#[derive(Debug, PartialEq, Eq)]
pub struct Link<L: 'static> {
    /// Permanent name of the link.
    pub id: L,
    /// A few words for the start of a line.
    pub title: &'static str,
    /// The links without which this one cannot be examined. All of them are earlier in the chain.
    pub needs: &'static [L],
    /// The causes that a check distinguishes. A breakage with any other cause is `unknown`.
    pub causes: &'static [Cause<L>],
}

/// Reason for which a link is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause<L> {
    link: L,
    id: &'static str,
    why: Option<&'static str>,
    remedy: Option<Remedy>,
}

/// Remedy for a breakage, as the catalogue lists it: a [`Fix`](crate::Fix) whose texts may have placeholders
/// such as `{unit}`, which [`Finding::with`](crate::Finding::with) fills in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedy {
    pub(crate) text: &'static str,
    pub(crate) command: Option<&'static str>,
    pub(crate) needs_root: bool,
}

impl Remedy {
    /// Creates a remedy that no command carries out. `text` is one or more whole sentences.
    pub const fn new(text: &'static str) -> Self {
        Self { text, command: None, needs_root: false }
    }

    /// Adds the command that carries it out.
    #[must_use]
    pub const fn command(self, command: &'static str) -> Self {
        Self { command: Some(command), ..self }
    }

    /// Marks the remedy as one that only root can carry out.
    #[allow(
        clippy::wrong_self_convention,
        reason = "it reads as a sentence: a remedy, by a command, as root"
    )]
    #[must_use]
    pub const fn as_root(self) -> Self {
        Self { needs_root: true, ..self }
    }
}

/// Id of a cause that the catalogue does not know. It is reported with its evidence and never guessed.
pub const UNKNOWN: &str = "unknown";

impl<L: Copy> Cause<L> {
    /// Creates a cause of the catalogue, for [`chain!`](crate::chain).
    #[doc(hidden)]
    pub const fn listed(link: L, id: &'static str, why: &'static str, remedy: &[Remedy]) -> Self {
        // An `Option` cannot be written by a macro whose text is optional; a slice can.
        let remedy = match remedy {
            [remedy, ..] => Some(*remedy),
            [] => None,
        };
        Self { link, id, why: Some(why), remedy }
    }

    /// Creates the cause of a breakage of `link` that the catalogue does not know.
    pub const fn unknown(link: L) -> Self {
        Self { link, id: UNKNOWN, why: None, remedy: None }
    }

    /// Returns the link that the cause breaks.
    pub const fn link(self) -> L {
        self.link
    }

    /// Returns the permanent name of the cause, unique within its link.
    pub const fn id(self) -> &'static str {
        self.id
    }

    /// Returns a sentence that tells an operator why the cause matters, or `None` for an unknown cause.
    pub const fn why(self) -> Option<&'static str> {
        self.why
    }

    /// Returns the remedy that findings with this cause get, its placeholders not filled in.
    pub const fn remedy(self) -> Option<Remedy> {
        self.remedy
    }
}

/// Defines a chain: the enumeration `LinkId`, the causes in a module `cause` with a module for each link, and
/// `LINKS`. The calling crate has serde, which writes links by their names.
///
/// A cause is `NAME "id" "reason"`, then `=>` and its [`Remedy`], which each finding with this cause gets.
/// Where circumstances call for another remedy, `NAME => REMEDY` lists it, for the module `fix`. A semicolon
/// ends the cause.
#[macro_export]
macro_rules! chain {
    ($($name:ident $module:ident $id:literal $title:literal needs [$($need:ident)*] {
        $($cause:ident $cause_id:literal $why:literal $(=> $remedy:expr)? $(, $other:ident => $instead:expr)*;)*
    })*) => {
        /// The permanent names of the links, in the order of the chain.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[derive(::serde::Deserialize, ::serde::Serialize)]
        #[allow(missing_docs, reason = "the catalogue below describes each")]
        pub enum LinkId { $(#[serde(rename = $id)] $name),* }

        impl LinkId {
            /// Returns the name as it is written in reports.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $id),* }
            }
        }

        impl $crate::Chain for LinkId {
            fn links() -> &'static [$crate::Link<Self>] {
                LINKS
            }

            fn name(self) -> &'static str {
                self.as_str()
            }

            fn index(self) -> usize {
                self as usize
            }
        }

        /// All causes of the chain, in a module for each link.
        #[allow(missing_docs, reason = "the catalogue below gives the reason of each")]
        pub mod cause {
            $(pub mod $module {
                #[allow(unused_imports, reason = "not every link has remedies, which name what is there")]
                use super::super::*;
                $(pub const $cause: $crate::Cause<LinkId> =
                    $crate::Cause::listed(LinkId::$name, $cause_id, $why, &[$($remedy)?]);)*
            })*
        }

        /// Remedies that only some findings with a cause have, in a module for each link.
        #[allow(missing_docs, reason = "the catalogue below has the texts")]
        pub mod fix {
            $(pub mod $module {
                #[allow(unused_imports, reason = "not every link has remedies, which name what is there")]
                use super::super::*;
                $($(pub const $other: $crate::Remedy = $instead;)*)*
            })*
        }

        /// All links of the chain, in order.
        pub static LINKS: &[$crate::Link<LinkId>] = &[$($crate::Link {
            id: LinkId::$name,
            title: $title,
            needs: &[$(LinkId::$need),*],
            causes: &[$(cause::$module::$cause),*],
        }),*];
    };
}

/// Returns the link with this name, as [`Chain::name`] gives it, or `None` if the chain has no such link.
pub fn link<L: Chain>(id: &str) -> Option<&'static Link<L>> {
    L::links().iter().find(|link| link.id.name() == id)
}

/// Returns the catalogue's entry for a link.
pub fn entry<L: Chain>(id: L) -> &'static Link<L> {
    // The macro lists both in the same order.
    &L::links()[id.index()]
}

/// Returns the cause of `link` with that id; `unknown` if it has no such cause.
pub fn find_cause<L: Chain>(link: L, id: &str) -> Cause<L> {
    entry(link).causes.iter().copied().find(|cause| cause.id == id).unwrap_or(Cause::unknown(link))
}

/// Lists the flaws of a catalogue, for the test of each: ids that are not kebab-case, several causes with one
/// id, links that need later ones, and reasons and remedies that are no sentences. The compiler already
/// rejects two links with one id.
pub fn flaws<L: Chain + std::fmt::Debug>() -> Vec<String> {
    let mut flaws = Vec::new();
    for link in L::links() {
        let name = link.id.name();
        if !kebab(name) {
            flaws.push(format!("{name} is not kebab-case"));
        }
        if link.needs.iter().any(|need| *need >= link.id) {
            flaws.push(format!("{name} needs a later link"));
        }
        let mut causes: Vec<_> = link.causes.iter().map(|cause| cause.id).collect();
        if link.causes.iter().any(|cause| cause.link != link.id) {
            flaws.push(format!("{name} lists another link's cause"));
        }
        for cause in link.causes {
            if !kebab(cause.id) || cause.id == UNKNOWN {
                flaws.push(format!("{name}/{} is no id", cause.id));
            }
            for text in cause.why.into_iter().chain(cause.remedy.map(|remedy| remedy.text)) {
                if !(text.ends_with('.') && text.starts_with(|first: char| first.is_uppercase())) {
                    flaws.push(format!("{name}/{}: {text:?} is no sentence", cause.id));
                }
            }
        }
        causes.sort_unstable();
        if causes.windows(2).any(|pair| pair[0] == pair[1]) {
            flaws.push(format!("{name} has a cause twice"));
        }
    }
    flaws
}

fn kebab(id: &str) -> bool {
    !id.is_empty()
        && id.split('-').all(|word| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    mod good {
        crate::chain! {
            First first "first" "The first" needs [] {
                BROKEN "broken" "It matters." => crate::Remedy::new("Mend {it}.").command("mend").as_root();
            }
            Second second "second" "The second" needs [First] {}
        }
    }

    mod bad {
        crate::chain! {
            First first "one" "The first" needs [Second] {
                BROKEN "unknown" "It matters.";
                AGAIN "a-b" "it matters.";
                ONCE_MORE "a-b" "It matters", OTHER => crate::Remedy::new("Do.");
            }
            Second second "two" "The second" needs [] {}
            Third third "Third" "The third" needs [] {}
        }
    }

    #[test]
    fn flaws_are_named() {
        assert_eq!(flaws::<good::LinkId>(), [""; 0]);
        let found = flaws::<bad::LinkId>();
        for flaw in [
            "one needs a later link",
            "one/unknown is no id",
            "one/a-b: \"it matters.\" is no sentence",
            "one/a-b: \"It matters\" is no sentence",
            "one has a cause twice",
            "Third is not kebab-case",
        ] {
            assert!(found.iter().any(|found| found == flaw), "{flaw}: {found:?}");
        }
        assert_eq!(found.len(), 6, "{found:?}");
    }

    #[test]
    fn links_are_found_by_name() {
        use good::{LINKS, LinkId, cause};
        assert_eq!(link::<LinkId>("second").map(|link| link.id), Some(LinkId::Second));
        assert_eq!(link::<LinkId>("third"), None);
        assert!(LINKS.iter().all(|link| entry(link.id) == link));
        assert!(
            find_cause(LinkId::First, "broken") == cause::first::BROKEN
                && find_cause(LinkId::Second, "broken") == Cause::unknown(LinkId::Second)
        );
        assert_eq!(serde_name(LinkId::First), "first");
    }

    #[test]
    fn a_finding_has_the_remedy_of_its_cause() {
        let finding = crate::Finding::fail(good::cause::first::BROKEN, "cracked").with("it", "the link");
        let fix =
            crate::Fix { text: "Mend the link.".into(), command: Some("mend".into()), needs_root: true };
        assert_eq!(finding.fix, Some(fix));
        let other = crate::Finding::fail(bad::cause::first::ONCE_MORE, "cracked");
        assert_eq!((&other.fix, other.clone().fix(bad::fix::first::OTHER).fix.is_some()), (&None, true));
    }

    fn serde_name(id: good::LinkId) -> String {
        serde_json::to_value(id).unwrap().as_str().unwrap().to_owned()
    }
}
