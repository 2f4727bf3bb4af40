//! Removes from texts what a bug report does not need: names of users and of the host, and secrets.

use std::path::Path;

/// Text that replaces a secret.
const SECRET: &str = "<redacted>";
/// Words in the name of a variable whose value is a secret.
const SECRET_NAMES: [&str; 11] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASS",
    "PWD",
    "AUTH",
    "CREDENTIAL",
    "COOKIE",
    "PRIVATE",
    "SIGNATURE",
    "BEARER",
];
/// Prefixes of tokens of well-known services.
const SECRET_BEGINNINGS: [&str; 10] =
    ["sk-", "hf_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xoxb-", "AKIA", "eyJ"];
/// Minimum number of characters of a word with such a prefix that counts as a token.
const TOKEN_LETTERS: usize = 12;
/// System accounts whose names are kept: they are no secret and show what is running.
const SYSTEM: [&str; 4] = ["root", "ollama", "nobody", "daemon"];

/// Names that are removed from texts.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    /// Texts to replace and their replacements, the longest text first.
    words: Vec<(String, &'static str)>,
}

impl Redaction {
    /// Collects the names of this system: its host name, and users with a home directory.
    pub fn of_system() -> Self {
        let mut users: Vec<String> = Vec::new();
        for variable in ["USER", "LOGNAME", "SUDO_USER"] {
            users.extend(std::env::var(variable));
        }
        users.extend(std::env::var("HOME").ok().and_then(|home| last(Path::new(&home))));
        let homes = std::fs::read_dir("/home").into_iter().flatten().flatten();
        users.extend(homes.filter_map(|entry| last(&entry.path())));
        let mut hosts: Vec<String> = ["/proc/sys/kernel/hostname", "/etc/hostname"]
            .iter()
            .filter_map(|path| vgpu_paths::read_to_string(Path::new(path), 4096).ok())
            .collect();
        hosts.extend(std::env::var("HOSTNAME"));
        Self::new(users, hosts)
    }

    /// Creates a redaction of these names of users and hosts.
    pub fn new(users: impl IntoIterator<Item = String>, hosts: impl IntoIterator<Item = String>) -> Self {
        let fit = |name: &String| name.len() > 2 && !SYSTEM.contains(&name.as_str()) && name != "localhost";
        let trim = |name: String| name.trim().to_owned();
        let mut words: Vec<(String, &'static str)> =
            users.into_iter().map(trim).filter(fit).map(|name| (name, "USER")).collect();
        for host in hosts.into_iter().map(trim) {
            let short = host.split('.').next().map(str::to_owned);
            words.extend(short.into_iter().chain([host]).filter(fit).map(|name| (name, "HOST")));
        }
        words.sort_by(|one, other| other.0.len().cmp(&one.0.len()).then_with(|| one.cmp(other)));
        words.dedup();
        Self { words }
    }

    /// Returns `text` with names and secrets replaced.
    pub fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                out.push('\n');
            }
            out.push_str(&self.line(line));
        }
        out
    }

    fn line(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for (word, instead) in &self.words {
            line = replace_word(&line, word, instead);
        }
        tokens(&urls(&line))
    }

    /// Returns the value of a variable with secrets and names replaced.
    pub fn variable(&self, name: &str, value: &str) -> String {
        let upper = name.to_ascii_uppercase();
        // A folder is no secret, whatever it is called.
        let secret =
            SECRET_NAMES.iter().any(|word| upper.contains(word)) && name != "PWD" && name != "OLDPWD";
        if secret && !value.is_empty() { SECRET.into() } else { self.text(value) }
    }
}

fn last(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}

fn part_of_word(letter: Option<char>) -> bool {
    letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
}

/// Replaces `word` where it is not part of a longer word.
fn replace_word(text: &str, word: &str, instead: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        out.push_str(before);
        let alone = !part_of_word(out.chars().next_back()) && !part_of_word(after.chars().next());
        out.push_str(if alone { instead } else { word });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Removes user and password from URLs of the form `scheme://user:password@host`.
fn urls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after
            .find(|letter: char| letter.is_whitespace() || "/?#\"'".contains(letter))
            .unwrap_or(after.len());
        match after[..end].rfind('@') {
            Some(sign) => {
                out.push_str(SECRET);
                rest = &after[sign..];
            }
            None => rest = after,
        }
    }
    out.push_str(rest);
    out
}

/// Replaces words that look like tokens of well-known services.
fn tokens(text: &str) -> String {
    let of_token = |letter: char| letter.is_ascii_alphanumeric() || "-_.+/=".contains(letter);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.find(|letter| !of_token(letter)).unwrap_or(rest.len());
        let (token, after) = rest.split_at(word);
        // After an `=` or a `/` a token may begin as well.
        let start = SECRET_BEGINNINGS
            .iter()
            .filter_map(|beginning| {
                token
                    .match_indices(beginning)
                    .map(|(at, _)| at)
                    .find(|at| *at == 0 || token[..*at].ends_with(['=', '/']))
            })
            .min();
        match start {
            Some(start) if token.len() - start >= TOKEN_LETTERS => {
                out.push_str(&token[..start]);
                out.push_str(SECRET);
            }
            _ => out.push_str(token),
        }
        let mut letters = after.chars();
        out.extend(letters.next());
        rest = letters.as_str();
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redaction() -> Redaction {
        Redaction::new(["alice".to_owned(), "root".into(), "al".into()], ["box7.example.org\n".to_owned()])
    }

    #[test]
    fn names() {
        let redaction = redaction();
        assert_eq!(redaction.text("/home/alice/models, alice@box7"), "/home/USER/models, USER@HOST");
        assert_eq!(redaction.text("malice, alice_2, /root"), "malice, alice_2, /root");
        assert_eq!(redaction.text("box7.example.org box7"), "HOST HOST");
        assert_eq!(redaction.text("al"), "al", "too short to be told from a word");
    }

    #[test]
    fn secrets() {
        let redaction = redaction();
        assert_eq!(redaction.variable("OPENAI_API_KEY", "abc"), "<redacted>");
        assert_eq!(redaction.variable("HF_TOKEN", ""), "");
        assert_eq!(redaction.variable("PWD", "/srv"), "/srv");
        assert_eq!(
            redaction.variable("HTTPS_PROXY", "http://u:p@proxy:8080/x"),
            "http://<redacted>@proxy:8080/x"
        );
        assert_eq!(redaction.text("Authorization: sk-0123456789abcdef end"), "Authorization: <redacted> end");
        assert_eq!(redaction.text("--token=hf_abcdefghijklm"), "--token=<redacted>");
        assert_eq!(redaction.text("desk-top, task-0123456789ab"), "desk-top, task-0123456789ab");
    }

    proptest! {
        #[test]
        fn what_is_to_go_is_gone(before in "[ /:=\"]?", after in "[ /:@\"]?", noise in "[a-z /=:@.-]{0,30}") {
            let redaction = redaction();
            let text = redaction.text(&format!("{noise} {before}alice{after} {noise}"));
            let whole = format!(" {before}alice{after} ");
            prop_assert!(!text.contains(&whole));
            let text = redaction.text(&format!("{noise} ghp_0123456789abcdefghij {noise}"));
            prop_assert!(!text.contains("0123456789"));
        }

        #[test]
        fn no_text_breaks_it_and_twice_is_once(text in "\\PC{0,60}") {
            let redaction = redaction();
            let once = redaction.text(&text);
            prop_assert_eq!(redaction.text(&once), once);
        }
    }
}
