//! The controller's pages by HTTP, at SlurmctldPort: whether it runs, and metrics. A client has no identity: the pages are made
//! over a connection of a user without rights, so that they contain public data only.

use super::{Network, NetworkArrival};
use crate::peer::{Origin, Peer};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SndBuf;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Bytes of a request, which has no body.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Headers of it.
const HEADERS_MAX: usize = 64;
/// The user whose rights the pages are made with: nobody's, as systems number that user.
const NOBODY: u32 = 65534;
/// Time limit of the controller for a page.
const ANSWER_MAX: Duration = Duration::from_secs(8);
/// Time that a page is given again unchanged.
const KEPT: Duration = Duration::from_secs(1);
/// Bytes of pages that were replaced by others and are still being sent.
const OLDER_BYTES_MAX: usize = 32 << 20;
/// The kernel's buffer for an answer that is not read.
const SEND_BUFFER: usize = 64 << 10;
/// Pages that are made at a time.
pub(super) const MADE_MAX: usize = 2;

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code of HTTP.
    pub status: u16,
    /// Media type.
    pub media_type: &'static str,
    /// The text.
    pub body: String,
}

impl HttpAnswer {
    fn text(status: u16, text: &str) -> HttpAnswer {
        HttpAnswer {
            status,
            media_type: "text/plain; charset=utf-8",
            body: format!("{text}\n"),
        }
    }
}

/// Makes the page of a path over a connection to the controller; absent if there is none.
pub type HttpPages = Arc<dyn Fn(&str, UnixStream) -> Option<HttpAnswer> + Send + Sync>;

/// Paths that say whether the controller answers.
const READY: &str = "/readyz";
/// Paths of metrics. A path is one of these as it is written, or there is no page: that bounds the kept pages.
const METRICS: [&str; 6] = [
    "/metrics",
    "/metrics/jobs",
    "/metrics/jobs-users-accts",
    "/metrics/nodes",
    "/metrics/partitions",
    "/metrics/scheduler",
];

/// Pages that were made a moment ago, by their paths, and those that are still being sent to somebody.
#[derive(Debug, Default)]
pub(super) struct KeptPages {
    last: HashMap<&'static str, KeptPage>,
    being_sent: Vec<Weak<HttpAnswer>>,
}

#[derive(Debug)]
struct KeptPage {
    made: Instant,
    page: Rc<HttpAnswer>,
}

impl KeptPages {
    fn fresh(&self, path: &str) -> Option<Rc<HttpAnswer>> {
        let kept = self.last.get(path)?;
        (kept.made.elapsed() < KEPT).then(|| Rc::clone(&kept.page))
    }

    /// The page as it was, where older ones take too much to make another beside them. Whether the controller answers is a short page,
    /// and says nothing once it is old.
    fn instead_of_new(&mut self, path: &str) -> Option<Rc<HttpAnswer>> {
        self.being_sent.retain(|page| page.strong_count() > 0);
        let pages = self.being_sent.iter().filter_map(Weak::upgrade);
        let is_last = |page: &Rc<HttpAnswer>| {
            let mut last = self.last.values();
            last.any(|last| Rc::ptr_eq(&last.page, page))
        };
        let older = pages.filter(|page| !is_last(page));
        let bytes: usize = older.map(|page| page.body.len()).sum();
        let is_reused = path != READY && bytes > OLDER_BYTES_MAX;
        let kept = self.last.get(path).filter(|_| is_reused)?;
        Some(Rc::clone(&kept.page))
    }

    fn keep(&mut self, path: &'static str, page: Rc<HttpAnswer>) {
        self.being_sent.push(Rc::downgrade(&page));
        let made = Instant::now();
        self.last.insert(path, KeptPage { made, page });
    }
}

/// The page of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    /// This thread's own word.
    Alive,
    /// A page that the controller makes.
    Made(&'static str),
    /// A page of metrics, where the site wants none.
    Off,
    /// Nothing.
    Absent,
}

impl Page {
    fn at(path: &str, has_metrics: bool) -> Page {
        let path = path.strip_suffix('/').unwrap_or(path);
        match path {
            "/livez" => Page::Alive,
            "/readyz" | "/healthz" => Page::Made(READY),
            other => match METRICS.into_iter().find(|page| *page == other) {
                Some(page) if has_metrics => Page::Made(page),
                Some(_) => Page::Off,
                None => Page::Absent,
            },
        }
    }
}

impl Network {
    /// Answers one request, of which some bytes have come; the connection ends with it.
    ///
    /// # Errors
    /// It is none, or the connection broke.
    pub(super) async fn serve_http(
        self: &Rc<Network>,
        tcp: &mut TcpStream,
        bytes: Vec<u8>,
        from: SocketAddr,
    ) -> Result<(), String> {
        let (method, path) = read_head(tcp, bytes).await?;
        let answer = match method.as_str() {
            "GET" | "HEAD" => self.page(&path, from).await,
            _ => Rc::new(HttpAnswer::text(405, "only GET and HEAD are answered here")),
        };
        let body = match method.as_str() {
            "HEAD" => "",
            _ => answer.body.as_str(),
        };
        write_answer(tcp, &head(&answer), body).await
    }

    async fn page(self: &Rc<Network>, path: &str, from: SocketAddr) -> Rc<HttpAnswer> {
        let path = match Page::at(path, self.has_metrics) {
            Page::Made(path) => path,
            // This thread is there, and the watchdog looks after the others.
            Page::Alive => return Rc::new(HttpAnswer::text(200, "ok")),
            Page::Off => {
                let off = "metrics are off here: MetricsType=metrics/openmetrics in slurm.conf turns them on";
                return Rc::new(HttpAnswer::text(404, off));
            }
            Page::Absent => {
                return Rc::new(HttpAnswer::text(404, "there is nothing at this path"));
            }
        };
        let Ok(_turn) = self.making.acquire().await else {
            return Rc::new(HttpAnswer::text(503, "the controller stops"));
        };
        if let Some(page) = self.kept.borrow().fresh(path) {
            return page;
        }
        // Clients that read slowly keep the pages that were made for them: while these are many bytes, the last page is given
        // again.
        if let Some(page) = self.kept.borrow_mut().instead_of_new(path) {
            return page;
        }
        match self.make(path, from).await {
            Ok(Some(page)) => {
                let page = Rc::new(page);
                self.kept.borrow_mut().keep(path, Rc::clone(&page));
                page
            }
            Ok(None) => Rc::new(HttpAnswer::text(404, "there is nothing at this path")),
            Err(why) => Rc::new(HttpAnswer::text(503, &why)),
        }
    }

    /// Has a page made.
    async fn make(&self, path: &str, from: SocketAddr) -> Result<Option<HttpAnswer>, String> {
        let failed = |e: io::Error| format!("no connection to the controller: {e}");
        let (near, far) = UnixStream::pair().map_err(failed)?;
        near.set_nonblocking(true).map_err(failed)?;
        far.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        far.set_write_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        let arrival = NetworkArrival {
            stream: near,
            peer: Peer {
                uid: NOBODY,
                gid: NOBODY,
                pid: 0,
            },
            origin: Origin {
                host: Some(from.ip().to_string()),
                address: Some(from.ip()),
                node: None,
                ..Origin::default()
            },
        };
        let taken = self.arrivals.send(arrival).await;
        taken.map_err(|_| "the controller stops".to_owned())?;
        let (pages, path) = (Arc::clone(&self.pages), path.to_owned());
        let making = tokio::task::spawn_blocking(move || pages(&path, far));
        making.await.map_err(|e| e.to_string())
    }
}

/// Writes an answer whose body others are sent, too: nothing of it is copied for this connection but what the kernel takes.
async fn write_answer(tcp: &mut TcpStream, head: &str, body: &str) -> Result<(), String> {
    let failed = |e: io::Error| e.to_string();
    setsockopt(&*tcp, SndBuf, &SEND_BUFFER).map_err(|e| e.to_string())?;
    tcp.write_all(head.as_bytes()).await.map_err(failed)?;
    tcp.write_all(body.as_bytes()).await.map_err(failed)?;
    tcp.shutdown().await.map_err(failed)
}

/// Reads method and path of a request.
async fn read_head(tcp: &mut TcpStream, mut bytes: Vec<u8>) -> Result<(String, String), String> {
    let mut chunk = [0; 2048];
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(&bytes);
        let parsed = parsed.map_err(|e| format!("malformed HTTP request: {e}"))?;
        if parsed.is_complete() {
            let (method, path) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
            let path = path.split(['?', '#']).next().unwrap_or("");
            return Ok((method.to_owned(), path.to_owned()));
        }
        if bytes.len() > HEAD_BYTES_MAX {
            return Err("a request of HTTP that is too long".to_owned());
        }
        match tcp.read(&mut chunk).await {
            Ok(0) => return Err("it closed the connection".to_owned()),
            Ok(count) => bytes.extend(&chunk[..count]),
            Err(e) => return Err(e.to_string()),
        }
    }
}

fn head(answer: &HttpAnswer) -> String {
    let reason = match answer.status {
        200 => "OK",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        503 => "Service Unavailable",
        _ => "Error",
    };
    format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.media_type,
        answer.body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_page_as_it_is_written_or_none() {
        assert_eq!(Page::at("/livez", false), Page::Alive);
        assert_eq!(Page::at("/healthz", false), Page::Made(READY));
        assert_eq!(
            Page::at("/metrics/jobs/", true),
            Page::Made("/metrics/jobs")
        );
        for path in METRICS {
            assert_eq!(Page::at(path, false), Page::Off);
        }
        for other in [
            "//metrics",
            "/metrics//jobs",
            "/%6detrics/jobs",
            "/metrics/jobs-users-accts//",
            "/metrics/none",
            "/",
            "",
        ] {
            assert_eq!(Page::at(other, true), Page::Absent, "{other}");
        }
    }

    /// Each second another page was made, and each connection had a copy.
    #[test]
    fn pages_that_nobody_reads_are_bounded() {
        let (mut kept, mut readers) = (KeptPages::default(), Vec::new());
        let mut made = 0;
        let mut ask = |kept: &mut KeptPages| match kept.instead_of_new("/metrics/nodes") {
            Some(page) => page,
            None => {
                made += 1;
                let page = Rc::new(HttpAnswer::text(200, &"x".repeat(5 << 20)));
                kept.keep("/metrics/nodes", Rc::clone(&page));
                page
            }
        };
        for _ in 0..256 {
            readers.push(ask(&mut kept));
        }
        kept.keep(READY, Rc::new(HttpAnswer::text(200, "ok")));
        assert_eq!(kept.instead_of_new(READY), None, "readiness is asked for");
        readers.dedup_by(|a, b| Rc::ptr_eq(a, b));
        assert_eq!(readers.len(), 2 + OLDER_BYTES_MAX / (5 << 20));
        let stale = Rc::clone(&readers[7]);
        drop(readers);
        assert!(!Rc::ptr_eq(&stale, &ask(&mut kept)), "there is room again");
        assert_eq!(made, 9);
    }

    #[tokio::test]
    async fn the_kernel_keeps_little_of_an_answer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (mut client, mut tcp) = (client.unwrap(), accepted.unwrap().0);
        let body = "x".repeat(16 << 20);
        let reads = async {
            let mut got = Vec::new();
            client.read_to_end(&mut got).await.unwrap();
            got
        };
        let (sent, got) = tokio::join!(write_answer(&mut tcp, "head ", &body), reads);
        sent.unwrap();
        assert_eq!(got.len(), 5 + body.len());
        let buffer = nix::sys::socket::getsockopt(&tcp, SndBuf).unwrap();
        assert!(buffer <= 2 * SEND_BUFFER, "{buffer}");
    }
}
