//! Sends plain HTTP requests to a server on this machine, with a time limit. The calls block, so requests
//! that may take long run on a thread of their own.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use vgpu_findings::child::may_be_filtered;

use super::obstacles;
use crate::program::find::errno;

/// Time limit for a connection to a port of this machine, which takes microseconds.
const REACHED: Duration = Duration::from_secs(2);
/// Maximum number of bytes that are read of an answer.
const MOST: u64 = 1 << 20;

/// Sends a GET request for `path` and returns the status and body of the answer.
pub fn get(address: SocketAddr, path: &str, limit: Duration) -> io::Result<(u16, String)> {
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    ask(address, &request, limit)
}

/// Posts JSON to `path` and returns the status and body of the answer.
pub fn post(address: SocketAddr, path: &str, json: &str, limit: Duration) -> io::Result<(u16, String)> {
    let request = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{json}",
        json.len()
    );
    ask(address, &request, limit)
}

fn ask(address: SocketAddr, request: &str, limit: Duration) -> io::Result<(u16, String)> {
    let deadline = Instant::now() + limit;
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
    };
    let mut stream = connect(address, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    // With 1.0 the answer is neither chunked nor followed by another.
    // At once: a server that answers what it has read of the request may close before the rest comes.
    stream.write_all(request.as_bytes())?;
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

/// Connects to an address of this machine. The time limit takes the call `ioctl`: where a filter refuses
/// that, there is no limit.
fn connect(address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let limited = TcpStream::connect_timeout(&address, limit);
    match &limited {
        Err(error) if may_be_filtered(errno(error)) => TcpStream::connect(address),
        _ => limited,
    }
}

/// Splits an answer into its status and body.
fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut words = head.lines().next()?.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/"))?;
    Some((words.next()?.parse().ok()?, body.to_owned()))
}

/// Returns a TCP port of the loopback address on which nobody listens, after a connection to it. In a network
/// namespace whose loopback interface is down, an address can be bound and not reached.
pub fn free_port() -> io::Result<u16> {
    let port = || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        connect(address, REACHED)?;
        Ok(address.port())
    };
    port().inspect_err(obstacles::without_loopback)
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
            [(); 2].map(|()| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let bytes = stream.read(&mut request).unwrap();
                stream.write_all(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n[1]").unwrap();
                String::from_utf8_lossy(&request[..bytes]).into_owned()
            })
        });
        assert_eq!(get(address, "/x", Duration::from_mins(1)).unwrap(), (200, "[1]".to_owned()));
        assert_eq!(post(address, "/y", "{}", Duration::from_mins(1)).unwrap().0, 200);
        let [first, second] = server.join().unwrap();
        assert!(first.starts_with("GET /x HTTP/1.0\r\n"));
        assert!(
            second.starts_with("POST /y HTTP/1.0\r\n") && second.ends_with("Content-Length: 2\r\n\r\n{}")
        );
        assert!(get(address, "/x", Duration::from_mins(1)).is_err(), "nobody listens any more");
    }

    proptest! {
        #[test]
        fn nothing_breaks_the_readers(text in ".{0,60}") {
            let _ = parse(&text);
            let _ = parse(&format!("HTTP/1.1 {text}\r\n\r\n"));
        }
    }
}
