//! A plain GET from a server on this machine, with a time limit. Blocking: it is short, and nothing else is
//! to be done meanwhile.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// As much of an answer is read.
const MOST: u64 = 1 << 20;

/// Gets `path` from `address`; the answer's body, whatever its status says, with the status.
pub fn get(address: SocketAddr, path: &str, limit: Duration) -> io::Result<(u16, String)> {
    let deadline = Instant::now() + limit;
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
    };
    let mut stream = TcpStream::connect_timeout(&address, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    // With 1.0 the answer is neither chunked nor followed by another.
    // At once: a server that answers what it has read of the request may close before the rest comes.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 8192];
    while (answer.len() as u64) < MOST {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut buffer)? {
            0 => break,
            bytes => answer.extend_from_slice(&buffer[..bytes]),
        }
    }
    parse(&String::from_utf8_lossy(&answer)).ok_or_else(|| io::Error::other("the answer is not HTTP"))
}

/// Status and body.
fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut words = head.lines().next()?.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/"))?;
    Some((words.next()?.parse().ok()?, body.to_owned()))
}

/// Where Ollama listens, from what OLLAMA_HOST says: `[SCHEME://]HOST[:PORT]`. An address that means all is
/// asked at loopback.
pub fn ollama_address(host: Option<&str>) -> Option<SocketAddr> {
    const PORT: u16 = 11_434;
    let host = host.unwrap_or_default().trim().trim_matches(['"', '\'']);
    let (scheme, rest) = host.split_once("://").unwrap_or(("", host));
    let rest = rest.split('/').next().unwrap_or_default();
    let port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => PORT,
    };
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, number)) if !name.contains(':') || name.ends_with(']') => (name, number.parse().ok()?),
        _ => (rest, port),
    };
    let name = name.trim_matches(['[', ']']);
    let name = match name {
        "" | "0.0.0.0" => "127.0.0.1",
        "::" => "::1",
        name => name,
    };
    (name, port).to_socket_addrs().ok()?.next()
}

/// A port that nobody listens at.
pub fn free_port() -> io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let bytes = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n[1]").unwrap();
            String::from_utf8_lossy(&request[..bytes]).into_owned()
        });
        assert_eq!(get(address, "/x", Duration::from_mins(1)).unwrap(), (200, "[1]".to_owned()));
        assert!(server.join().unwrap().starts_with("GET /x HTTP/1.0\r\n"));
        assert!(get(address, "/x", Duration::from_mins(1)).is_err(), "nobody listens any more");
    }

    #[test]
    fn forms_of_ollama_host() {
        for (host, expected) in [
            (None, "127.0.0.1:11434"),
            (Some(""), "127.0.0.1:11434"),
            (Some("0.0.0.0"), "127.0.0.1:11434"),
            (Some("0.0.0.0:8080"), "127.0.0.1:8080"),
            (Some("http://127.0.0.2"), "127.0.0.2:80"),
            (Some("http://127.0.0.2:1/x"), "127.0.0.2:1"),
            (Some("[::]:9"), "[::1]:9"),
            (Some(":9"), "127.0.0.1:9"),
        ] {
            assert_eq!(
                ollama_address(host).map(|address| address.to_string()).as_deref(),
                Some(expected),
                "{host:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn nothing_breaks_the_readers(text in ".{0,60}") {
            let _ = parse(&text);
            let _ = parse(&format!("HTTP/1.1 {text}\r\n\r\n"));
        }
    }
}
