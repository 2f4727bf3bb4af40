//! The HTTP endpoint of the metrics.
//!
//! It has a thread of its own, which shares no lock with an arbiter and yields the processor to ordinary
//! programs. Nobody waits for a scraper: connections are served side by side, each for one request and a
//! limited time. When there are too many, the oldest is closed: it has had more time than any other. An
//! answer is written once for all requests of [`KEPT`], so that requests in a loop cost little.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::prometheus_text;
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};
use vgpu_device::{listen_for, lock, threads};

use super::address::MetricsAddress;
use super::{Format, MeasuredGpus};

/// Path of the metrics in a URL.
const PATH: &str = "/metrics";
/// Connections that are served at a time.
const CONNECTIONS_MOST: usize = 64;
/// Bytes of a request's line and headers.
const HEADERS_MOST: usize = 8192;
/// Time that a scraper has for its request, and from the connection to the end of the answer.
const REQUEST_MOST: Duration = Duration::from_secs(5);
const CONNECTION_MOST: Duration = Duration::from_secs(10);
/// Time for which an answer is given again. Devices store their figures as often.
const KEPT: Duration = Duration::from_millis(200);
/// Nice value of the thread. Arbiters have a low one, which nobody who asks for metrics is to profit from.
const NICE: i32 = 10;
/// Pause before the next attempt to listen, or to accept when the process is out of descriptors.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Media type of OpenMetrics, without its parameters.
const OPEN_METRICS: &str = "application/openmetrics-text";

/// The endpoint, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Endpoint {
    end: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Serves the metrics of `gpus` at `address` from now on, or as soon as that is possible: an address that
    /// is in use keeps nothing else from working, and is logged once. A UNIX socket is for this user, and for
    /// the users of `group`.
    ///
    /// # Errors
    /// The system has no room for a thread.
    pub(crate) fn start(address: MetricsAddress, group: Option<u32>, gpus: MeasuredGpus) -> Result<Self> {
        let (end, ended) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("prepare to serve metrics")?;
        // Done here, so that scrapers can connect when this returns.
        let entered = runtime.enter();
        let listener = Listener::listen(&address, group);
        drop(entered);
        if let Err(error) = &listener {
            tracing::error!(
                "NO METRICS are served at {address}: {error:#}; GPUs' time is shared all the same"
            );
        }
        let answers = Arc::new(Answers { gpus, kept: Mutex::default() });
        let serve = move || serve(&runtime, listener.ok(), &address, group, &answers, ended);
        let thread = threads::spawn("metrics", serve).context("start a thread for metrics")?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}

/// Serves until `ended`, and listens anew until that succeeds.
fn serve(
    runtime: &Runtime,
    mut listener: Option<Listener>,
    address: &MetricsAddress,
    group: Option<u32>,
    answers: &Arc<Answers>,
    ended: oneshot::Receiver<Infallible>,
) {
    if let Err(error) = setpriority_process(Some(gettid()), NICE) {
        tracing::warn!("answers to scrapers compete with the work of arbiters: set a nice value: {error}");
    }
    let serving = async move {
        loop {
            if let Some(listener) = listener.take() {
                listener.serve(answers).await;
            }
            sleep(LISTEN_PAUSE).await;
            listener = Listener::listen(address, group).ok();
            if listener.is_some() {
                tracing::warn!("metrics are served at {address} from now on");
            }
        }
    };
    runtime.block_on(async {
        tokio::select! {
            () = serving => {}
            _ = ended => {}
        }
    });
}

/// A socket that listens. The file of a UNIX socket is removed when this is dropped.
#[derive(Debug)]
enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener, PathBuf),
}

impl Listener {
    fn listen(address: &MetricsAddress, group: Option<u32>) -> Result<Self> {
        match address {
            MetricsAddress::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(tokio::net::TcpListener::from_std(listener)?))
            }
            MetricsAddress::Unix(path) => {
                let listener = UnixListener::from(listen_for(path, group)?);
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(tokio::net::UnixListener::from_std(listener)?, path.clone()))
            }
        }
    }

    /// Accepts scrapers, and closes the oldest connection when there are too many.
    async fn serve(self, answers: &Arc<Answers>) {
        let mut open = VecDeque::<AbortHandle>::new();
        loop {
            let accepted = match &self {
                Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| answer(stream, answers)),
                Self::Unix(listener, _) => listener.accept().await.map(|(stream, _)| answer(stream, answers)),
            };
            let Ok(accepted) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            open.retain(|connection| !connection.is_finished());
            if open.len() == CONNECTIONS_MOST
                && let Some(oldest) = open.pop_front()
            {
                oldest.abort();
            }
            open.push_back(accepted);
            // A request that has arrived is answered before the next connections may close this one.
            yield_now().await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The text of the metrics in a format, and when it was written.
type CachedText = Option<(Instant, Bytes)>;

/// Answers of the last moment.
#[derive(Debug)]
struct Answers {
    gpus: MeasuredGpus,
    /// By format.
    kept: Mutex<[CachedText; 2]>,
}

impl Answers {
    /// Returns the metrics, which are at most [`KEPT`] old.
    fn get(&self, format: Format) -> Result<Bytes, fmt::Error> {
        let kept = &mut lock(&self.kept)[format as usize];
        if let Some((written, text)) = kept
            && written.elapsed() < KEPT
        {
            return Ok(text.clone());
        }
        let now = Instant::now();
        let (_, text) = kept.insert((now, self.gpus.encode(format)?.into()));
        Ok(text.clone())
    }
}

/// Starts to answer the request of one connection.
fn answer(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    answers: &Arc<Answers>,
) -> AbortHandle {
    let answers = Arc::clone(answers);
    let connection = async move {
        let service = service_fn(|request| ready(Ok::<_, Infallible>(respond(&request, &answers))));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(REQUEST_MOST).keep_alive(false);
        http.max_header_size(HEADERS_MOST).max_buf_size(HEADERS_MOST);
        // What ends a connection early is the scraper's affair.
        let _ = timeout(CONNECTION_MOST, http.serve_connection(TokioIo::new(stream), service)).await;
    };
    tokio::spawn(connection).abort_handle()
}

fn respond(request: &Request<Incoming>, answers: &Answers) -> Response<Full<Bytes>> {
    let reply = |status, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != PATH {
        return reply(StatusCode::NOT_FOUND, "the metrics are at /metrics\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, "");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let mut accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (format, media_type) = if accepted.any(|value| value.contains(OPEN_METRICS)) {
        (Format::OpenMetrics, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    } else {
        (Format::Text, prometheus_text::CONTENT_TYPE)
    };
    let Ok(text) = answers.get(format) else {
        return reply(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n");
    };
    let mut response = Response::new(Full::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
