//! The part of HTTP that the stand-ins use.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;
use tiny_http::{Method, Response, Server};

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the host and port in `OLLAMA_HOST`.
pub fn host() -> String {
    let text = std::env::var("OLLAMA_HOST").unwrap_or_default();
    let text = text.strip_prefix("http://").unwrap_or(&text).trim_end_matches('/');
    match text {
        "" => "127.0.0.1:11434".to_owned(),
        text if text.contains(':') => text.to_owned(),
        text => format!("{text}:11434"),
    }
}

/// Sends a GET request over HTTP/1.0 on a new connection and returns the body of the answer.
pub fn ask(host: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(host).with_context(|| format!("connect to {host}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no HTTP")?;
    if head.split_whitespace().nth(1) != Some("200") {
        bail!("{}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

/// Starts listening at an address, given as host and port. Errors are in Go's words.
pub fn listen(host: &str) -> Result<Server> {
    let Ok(mut addresses) = host.to_socket_addrs() else {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        bail!("listen tcp: lookup {name}: no such host");
    };
    let address = addresses.next().context("no address")?;
    let listener = TcpListener::bind(address).map_err(|error| {
        let words = match error.kind() {
            ErrorKind::AddrInUse => "address already in use",
            ErrorKind::AddrNotAvailable => "cannot assign requested address",
            ErrorKind::PermissionDenied => "permission denied",
            _ => return anyhow!("listen tcp {address}: {error}"),
        };
        anyhow!("listen tcp {address}: bind: {words}")
    })?;
    Server::from_listener(listener, None).map_err(|error| anyhow!("listen tcp {address}: {error}"))
}

/// Tries whether this process may take connections. A filter of system calls answers before the kernel looks
/// at the descriptor.
pub fn may_accept(host: &str) -> Result<()> {
    // SAFETY: there is no such descriptor, and no memory is involved.
    unsafe { libc::accept4(-1, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
    let error = std::io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EBADF) {
        return Ok(());
    }
    bail!("accept tcp {host}: accept4: {}", error.to_string().to_lowercase())
}

/// Answers requests forever. `handler` receives path and body and returns the body of the answer.
pub fn answer(server: &Server, handler: &dyn Fn(&str, &str) -> Result<String>) {
    for mut request in server.incoming_requests() {
        let mut body = String::new();
        // Requests with a body that is not text are ignored.
        if request.method() == &Method::Post && request.as_reader().read_to_string(&mut body).is_err() {
            continue;
        }
        let path = request.url().split('?').next().unwrap_or_default().to_owned();
        let response = match handler(&path, &body) {
            Ok(text) => Response::from_string(text),
            Err(error) => Response::from_string(json!({ "error": format!("{error:#}") }).to_string())
                .with_status_code(if format!("{error}").ends_with("not found") { 404 } else { 500 }),
        };
        // The client may have closed the connection.
        let _ = request.respond(response);
    }
}
