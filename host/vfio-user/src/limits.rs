//! What a VMM and this end tell each other in the JSON of VERSION, and what follows from it.

use serde::{Deserialize, Serialize};

use crate::frame::MAX_DATA;

/// What a VMM can receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Limits {
    /// Number of descriptors in one message.
    pub max_msg_fds: u32,
    /// Number of bytes of one read or write.
    pub max_data_xfer_size: u32,
}

/// Limits of a VMM that does not name them.
impl Default for Limits {
    fn default() -> Self {
        Self { max_msg_fds: 1, max_data_xfer_size: 1 << 20 }
    }
}

impl Limits {
    /// Parses the text of a VMM, which may be empty. Capabilities of other names are not used, because a
    /// capability counts only if both ends name it.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        /// The whole text.
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Offer {
            capabilities: Limits,
        }

        let text = if text.is_empty() { "{}" } else { text };
        serde_json::from_str(text).map(|offer: Offer| offer.capabilities)
    }

    /// Returns the text of this end. It names one descriptor in a message: that of mapped memory.
    #[must_use]
    pub fn answer() -> String {
        format!("{{\"capabilities\":{{\"max_msg_fds\":1,\"max_data_xfer_size\":{MAX_DATA}}}}}\0")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_named_has_the_protocols_default() {
        let usual = Limits::default();
        for text in ["", "{}", r#"{"capabilities":{}}"#, r#"{"capabilities":{"pgsizes":4096},"more":[1]}"#] {
            assert_eq!(Limits::parse(text).unwrap(), usual, "{text}");
        }
        let text = r#"{"capabilities":{"max_msg_fds":0,"max_data_xfer_size":8}}"#;
        assert_eq!(Limits::parse(text).unwrap(), Limits { max_msg_fds: 0, max_data_xfer_size: 8 });
    }

    #[test]
    fn a_text_that_is_not_capabilities_is_refused() {
        let deep = "[".repeat(4000);
        for text in ["x", "{", "1", r#"{"capabilities":1}"#, r#"{"capabilities":{"max_msg_fds":-1}}"#, &deep]
        {
            assert!(Limits::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_answer_is_a_text_with_an_end() {
        let answer = Limits::answer();
        let (end, text) = answer.as_bytes().split_last().unwrap();
        assert_eq!(*end, 0);
        let limits = Limits::parse(std::str::from_utf8(text).unwrap()).unwrap();
        assert_eq!(limits, Limits { max_msg_fds: 1, max_data_xfer_size: MAX_DATA });
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            let _ = Limits::parse(&text);
        }
    }
}
