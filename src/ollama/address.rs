//! Parses `OLLAMA_HOST`: the address at which a server listens and to which its clients connect.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use super::variable::bare;

/// TCP port of Ollama if none is given.
const PORT: u16 = 11_434;

/// Returns the addresses that a client connects to for `[SCHEME://]HOST[:PORT][/PATH]`, in the order of the
/// system's resolver. Wildcard addresses become loopback addresses. A port that is not a number becomes the
/// default port, as in Ollama. The list is empty if the host name does not resolve.
pub fn addresses(host: Option<&str>) -> Vec<SocketAddr> {
    let host = bare(host.unwrap_or_default());
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

/// Returns the host and the port at which a server listens for a value of `OLLAMA_HOST`, as Ollama's
/// `envconfig.Host` and Go's `net.SplitHostPort` read it. An empty host stands for all addresses.
pub fn listens(host: Option<&str>) -> (String, u16) {
    let value = bare(host.unwrap_or_default());
    let (scheme, rest) = value.split_once("://").unwrap_or(("", value));
    let usual = match scheme {
        "http" => 80,
        "https" => 443,
        _ => PORT,
    };
    let rest = rest.split('/').next().unwrap_or_default();
    let (host, port) = split(rest).unwrap_or_else(|| {
        let bare = rest.trim_matches(['[', ']']);
        let name = match (bare.parse::<IpAddr>(), rest) {
            (Ok(address), _) => address.to_string(),
            (Err(_), "") => "127.0.0.1".to_owned(),
            (Err(_), name) => name.to_owned(),
        };
        (name, String::new())
    });
    (host, port.parse().unwrap_or(usual))
}

/// Splits `HOST:PORT` or `[HOST]:PORT` as Go does. Returns `None` for what Go rejects: no port, or a host
/// with colons outside brackets.
fn split(text: &str) -> Option<(String, String)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(inner) => {
            let (host, rest) = inner.split_once(']')?;
            (host, rest.strip_prefix(':')?)
        }
        None => text.rsplit_once(':').filter(|(host, _)| !host.contains([':', '[', ']']))?,
    };
    (!port.contains([':', '[', ']'])).then(|| (host.to_owned(), port.to_owned()))
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

    #[test]
    fn where_a_server_listens() {
        for (host, expected, port) in [
            (None, "127.0.0.1", 11434),
            (Some(" \"0.0.0.0\" "), "0.0.0.0", 11434),
            (Some(":8080"), "", 8080),
            (Some("http://gpu-box/x"), "gpu-box", 80),
            (Some("https://1.2.3.4:99999"), "1.2.3.4", 443),
            (Some("[::1]:9"), "::1", 9),
            (Some("[::]"), "::", 11434),
            (Some("fe80::1"), "fe80::1", 11434),
            (Some("a:b:c"), "a:b:c", 11434),
            (Some("1.2.3.4:-1"), "1.2.3.4", 11434),
        ] {
            assert_eq!(listens(host), (expected.to_owned(), port), "{host:?}");
        }
    }

    proptest! {
        #[test]
        fn no_value_breaks_the_reader(text in "[\\[\\]0-9.:/]{0,24}") {
            let _ = (addresses(Some(&text)), listens(Some(&text)));
        }
    }
}
