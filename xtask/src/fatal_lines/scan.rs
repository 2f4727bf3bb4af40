//! Finds the messages of calls that report failures in the text of a source file.

/// Calls of C++ that report a failure. A `throw` is one of anything.
const CPP: [&str; 7] =
    ["throw", "LOG_ERR", "SRV_ERR", "SLT_ERR", "LLAMA_LOG_ERROR", "GGML_LOG_ERROR", "GGML_ABORT"];
/// Calls of Go that report a failure.
const GO: [&str; 7] =
    ["errors.New", "fmt.Errorf", "log.Fatal", "log.Fatalf", "panic", "slog.Error", "slog.Warn"];
/// Minimum number of letters of a message outside its placeholders.
const LETTERS: usize = 8;
/// Maximum number of bytes between a call and its message.
const NEAR: usize = 80;

/// Returns the messages in a source file of Go, or of C++, with `{}` for what is filled in.
pub fn messages(text: &str, go: bool) -> Vec<String> {
    let calls: &[&str] = if go { &GO } else { &CPP };
    let mut found = Vec::new();
    for call in calls {
        for (at, _) in text.match_indices(call) {
            let before = text[..at].chars().next_back();
            let after = &text[at + call.len()..];
            let word = |letter: char| letter.is_alphanumeric() || letter == '_';
            if before.is_some_and(|letter| word(letter) || letter == '.') || after.starts_with(word) {
                continue;
            }
            if let Some(literal) = literal(after) {
                let message = plain(&literal);
                if message.chars().filter(|letter| letter.is_alphabetic()).count() >= LETTERS {
                    found.push(message);
                }
            }
        }
    }
    found
}

/// Returns the first string literal of a call's arguments, with those that follow it directly. Returns `None`
/// if the call has none nearby.
fn literal(after: &str) -> Option<String> {
    let start = after.find(['"', ';', '{', '`', ')'])?;
    if start > NEAR || !after[start..].starts_with('"') {
        return None;
    }
    let mut rest = &after[start..];
    let mut text = String::new();
    while let Some(inner) = rest.strip_prefix('"') {
        let end = end_of(inner)?;
        text.push_str(&inner[..end]);
        rest = inner[end + 1..].trim_start();
    }
    Some(text)
}

/// Returns the position of the quote that ends a literal.
fn end_of(inner: &str) -> Option<usize> {
    let mut escaped = false;
    inner.char_indices().find_map(|(at, letter)| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends.then_some(at)
    })
}

/// Converts the first line of a format of printf or Go to text: `{}` for each placeholder, without escapes.
fn plain(literal: &str) -> String {
    let mut text = String::new();
    let mut letters = literal.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('n') if !text.trim().is_empty() => break,
                Some('n' | 't' | 'r') => text.push(' '),
                Some(other) => text.push(other),
                None => {}
            },
            '%' if letters.peek() == Some(&'%') => {
                letters.next();
                text.push('%');
            }
            '%' => {
                while letters.next_if(|letter| !letter.is_ascii_alphabetic() && *letter != '"').is_some() {}
                while letters.next_if(|letter| "hlzjtL".contains(*letter)).is_some() {}
                if letters.next_if(char::is_ascii_alphabetic).is_some() {
                    text.push_str("{}");
                }
            }
            _ => text.push(letter),
        }
    }
    // The name of the function, which many messages begin with.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.strip_prefix("{}: ").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cpp() {
        let of = |text: &str| messages(text, false);
        assert_eq!(
            of("throw std::invalid_argument(string_format(\"invalid device: %s\", name));"),
            ["invalid device: {}"]
        );
        assert_eq!(
            of("LOG_ERR(\"%s: failed to \"\n  \"open '%5.2f'\\n\", __func__);"),
            ["failed to open '{}'"]
        );
        assert_eq!(of("GGML_ABORT(\"fatal error\\nsecond line\");"), ["fatal error"]);
        assert_eq!(of("throw; x = \"a long text here\";"), [""; 0]);
        assert_eq!(of("rethrow(\"a long text here\")"), [""; 0]);
    }

    #[test]
    fn messages_of_go() {
        let of = |text: &str| messages(text, true);
        assert_eq!(
            of("return fmt.Errorf(\"%w: ensure path elements are traversable\", err)"),
            ["ensure path elements are traversable"]
        );
        assert_eq!(of("slog.Warn(fmt.Sprintf(\"100%% of %q is gone\", x))"), ["100% of {} is gone"]);
        assert_eq!(of("errors.New(\"short\")"), [""; 0]);
    }
}
