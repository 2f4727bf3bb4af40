//! Parses `OLLAMA_HOST`: the address at which a server listens and to which its clients connect.

use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};

/// TCP port of Ollama if none is given.
const PORT: u16 = 11_434;

/// Returns the addresses that a client connects to for `[SCHEME://]HOST[:PORT][/PATH]`, in the order of the
/// system's resolver. Wildcard addresses become loopback addresses. A port that is not a number becomes the
/// default port, as in Ollama. The list is empty if the host name does not resolve.
pub fn addresses(host: Option<&str>) -> Vec<SocketAddr> {
    let host = host.unwrap_or_default().trim().trim_matches(['"', '\'']);
    let (scheme, rest) = host.split_once("://").unwrap_or(("", host));
    let rest = rest.split('/').next().unwrap_or_default();
    let usual = match scheme {
        "http" => 80,
        "https" => 443,
        _ => PORT,
    };
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, number)) if !name.contains(':') || name.ends_with(']') => {
            (name, number.parse().unwrap_or(usual))
        }
        _ => (rest, usual),
    };
    let name = name.trim_matches(['[', ']']);
    let name = match name.parse::<Ipv6Addr>() {
        Ok(Ipv6Addr::UNSPECIFIED) => "::1",
        _ if name.is_empty() || name == "0.0.0.0" => "127.0.0.1",
        _ => name,
    };
    (name, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn forms_of_ollama_host() {
        for (host, expected) in [
            (None, "127.0.0.1:11434"),
            (Some(""), "127.0.0.1:11434"),
            (Some("0.0.0.0"), "127.0.0.1:11434"),
            (Some("0.0.0.0:8080"), "127.0.0.1:8080"),
            (Some("127.0.0.2"), "127.0.0.2:11434"),
            (Some("\"127.0.0.2:5\""), "127.0.0.2:5"),
            (Some("http://127.0.0.2"), "127.0.0.2:80"),
            (Some("https://127.0.0.2"), "127.0.0.2:443"),
            (Some("http://127.0.0.2:1/x"), "127.0.0.2:1"),
            (Some("[::]:9"), "[::1]:9"),
            (Some("[::1]:9"), "[::1]:9"),
            (Some("[::1]"), "[::1]:11434"),
            (Some("::1"), "[::1]:11434"),
            (Some(":9"), "127.0.0.1:9"),
            (Some("127.0.0.1:x"), "127.0.0.1:11434"),
            (Some("127.0.0.1:99999"), "127.0.0.1:11434"),
        ] {
            let found: Vec<String> = addresses(host).iter().map(ToString::to_string).collect();
            assert_eq!(found, [expected], "{host:?}");
        }
        assert!(addresses(Some("localhost:7")).iter().all(|address| address.port() == 7));
    }

    proptest! {
        #[test]
        fn no_value_breaks_the_reader(text in "[\\[\\]0-9.:/]{0,24}") {
            let _ = addresses(Some(&text));
        }
    }
}
