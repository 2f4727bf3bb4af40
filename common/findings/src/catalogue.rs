//! A chain of links as data: its links in the order in which they are examined, what each needs, and the
//! causes that are known to break it.
//!
//! Ids are permanent: scripts and bug reports name them. A [`Cause`] can only be taken from the module
//! `cause` that [`chain!`](crate::chain) makes, or be [`Cause::unknown`], so a finding with a cause that the
//! catalogue does not list does not compile.

/// The names of a chain's links. Made by [`chain!`](crate::chain).
pub trait Chain: Copy + Ord + 'static {
    /// All links, in the order of the names.
    fn links() -> &'static [Link<Self>];

    /// The permanent name of the link.
    fn name(self) -> &'static str;

    /// The link's place in [`Chain::links`].
    fn index(self) -> usize;
}

/// One step of the chain.
#[derive(Debug, PartialEq, Eq)]
pub struct Link<L: 'static> {
    /// Its permanent name.
    pub id: L,
    /// A few words for the start of a line.
    pub title: &'static str,
    /// The links without which this one cannot be examined. All of them are earlier in the chain.
    pub needs: &'static [L],
    /// The causes that are told apart. A breakage with any other cause is `unknown`.
    pub causes: &'static [Cause<L>],
}

/// Why a link is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause<L> {
    link: L,
    id: &'static str,
    why: Option<&'static str>,
}

/// The id of a cause that nobody foresaw. It is reported with its evidence and never guessed at.
pub const UNKNOWN: &str = "unknown";

impl<L: Copy> Cause<L> {
    /// A cause of the catalogue: for [`chain!`](crate::chain).
    #[doc(hidden)]
    pub const fn listed(link: L, id: &'static str, why: &'static str) -> Self {
        Self { link, id, why: Some(why) }
    }

    /// A breakage of `link` that nobody foresaw.
    pub const fn unknown(link: L) -> Self {
        Self { link, id: UNKNOWN, why: None }
    }

    /// The link that it breaks.
    pub const fn link(self) -> L {
        self.link
    }

    /// Its permanent name, unique within the link.
    pub const fn id(self) -> &'static str {
        self.id
    }

    /// Why it matters to an operator, in one sentence. None for an unknown cause.
    pub const fn why(self) -> Option<&'static str> {
        self.why
    }
}

/// Defines a chain: the enumeration `LinkId`, the causes in a module `cause` with a module for each link, and
/// `LINKS`. The calling crate has serde, which writes links by their names.
#[macro_export]
macro_rules! chain {
    ($($name:ident $module:ident $id:literal $title:literal needs [$($need:ident)*] {
        $($cause:ident $cause_id:literal $why:literal)*
    })*) => {
        /// The permanent names of the links, in the order of the chain.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[derive(::serde::Deserialize, ::serde::Serialize)]
        #[allow(missing_docs, reason = "the catalogue below describes each")]
        pub enum LinkId { $(#[serde(rename = $id)] $name),* }

        impl LinkId {
            /// The name as it is written.
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

        /// All causes, in a module for each link.
        #[allow(missing_docs, reason = "the catalogue below gives the reason of each")]
        pub mod cause {
            $(pub mod $module {
                $(pub const $cause: $crate::Cause<super::super::LinkId> =
                    $crate::Cause::listed(super::super::LinkId::$name, $cause_id, $why);)*
            })*
        }

        /// All links.
        pub static LINKS: &[$crate::Link<LinkId>] = &[$($crate::Link {
            id: LinkId::$name,
            title: $title,
            needs: &[$(LinkId::$need),*],
            causes: &[$(cause::$module::$cause),*],
        }),*];
    };
}

/// The link of a name.
pub fn link<L: Chain>(id: &str) -> Option<&'static Link<L>> {
    L::links().iter().find(|link| link.id.name() == id)
}

/// The link of an id.
pub fn of<L: Chain>(id: L) -> &'static Link<L> {
    // In the order of the enumeration: the macro makes both.
    &L::links()[id.index()]
}

/// The cause of `link` with that id; `unknown` if it has no such cause.
pub fn cause_of<L: Chain>(link: L, id: &str) -> Cause<L> {
    of(link).causes.iter().copied().find(|cause| cause.id == id).unwrap_or(Cause::unknown(link))
}

/// What is wrong with a catalogue, for the test of each: ids that are not kebab-case, causes of one id, links
/// that need later ones, reasons that are no sentences. That no two links have one id the compiler sees to.
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
            let sentence = cause
                .why
                .is_some_and(|why| why.ends_with('.') && why.starts_with(|first: char| first.is_uppercase()));
            if !sentence {
                flaws.push(format!("{name}/{}: {:?} is no sentence", cause.id, cause.why));
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
                BROKEN "broken" "It matters."
            }
            Second second "second" "The second" needs [First] {}
        }
    }

    mod bad {
        crate::chain! {
            First first "one" "The first" needs [Second] {
                BROKEN "unknown" "It matters."
                AGAIN "a-b" "it matters."
                ONCE_MORE "a-b" "It matters"
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
            "one/a-b: Some(\"it matters.\") is no sentence",
            "one/a-b: Some(\"It matters\") is no sentence",
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
        assert!(LINKS.iter().all(|link| of(link.id) == link));
        assert!(
            cause_of(LinkId::First, "broken") == cause::first::BROKEN
                && cause_of(LinkId::Second, "broken") == Cause::unknown(LinkId::Second)
        );
        assert_eq!(serde_name(LinkId::First), "first");
    }

    fn serde_name(id: good::LinkId) -> String {
        serde_json::to_value(id).unwrap().as_str().unwrap().to_owned()
    }
}
