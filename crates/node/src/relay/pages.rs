//! Requests of HTTP at `SlurmdPort`: whether the node's daemons are there, and metrics. Anybody may ask, so what an answer costs is
//! bounded: one question to the agent at a time, and an answer is given again for a second.

use crate::messages::agent_relay::AgentPage;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// Bytes of a request, which has no body.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time that an answer is given again unchanged.
const KEPT: Duration = Duration::from_secs(1);

/// A page.
#[derive(Clone, Debug)]
pub(super) struct PageAnswer {
    pub(super) status: u16,
    pub(super) text: String,
}

impl PageAnswer {
    pub(super) fn new(status: u16, text: &str) -> PageAnswer {
        PageAnswer {
            status,
            text: format!("{text}\n"),
        }
    }
}

/// Source of the page at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PagePlace {
    /// The relay's own word.
    Alive,
    /// The agent's.
    Agent(AgentPage),
    Absent,
}

fn place(path: &str) -> PagePlace {
    match path.strip_suffix('/').unwrap_or(path) {
        "/livez" => PagePlace::Alive,
        "/readyz" | "/healthz" => PagePlace::Agent(AgentPage::Ready),
        "/metrics" => PagePlace::Agent(AgentPage::Metrics),
        _ => PagePlace::Absent,
    }
}

/// Pages of the agent that were given a moment ago.
#[derive(Debug, Default)]
pub(super) struct AgentPages {
    ready: Mutex<Option<KeptAnswer>>,
    metrics: Mutex<Option<KeptAnswer>>,
}

#[derive(Debug)]
struct KeptAnswer {
    made: Instant,
    answer: PageAnswer,
}

impl AgentPages {
    /// Answers one request, of which some bytes have come; the connection ends with it. `ask` asks the agent.
    ///
    /// # Errors
    /// It is none, or the connection broke.
    pub(super) async fn serve(
        &self,
        tcp: &mut TcpStream,
        bytes: Vec<u8>,
        ask: impl AsyncFnOnce(AgentPage) -> Result<PageAnswer, String>,
    ) -> Result<(), String> {
        let (method, path) = read_head(tcp, bytes).await?;
        let answer = match method.as_str() {
            "GET" | "HEAD" => self.page(&path, ask).await,
            _ => PageAnswer::new(405, "only GET and HEAD are answered here"),
        };
        let body = match method.as_str() {
            "HEAD" => "",
            _ => answer.text.as_str(),
        };
        let whole = format!("{}{body}", head(&answer));
        let sent = tcp.write_all(whole.as_bytes()).await;
        sent.map_err(|e| e.to_string())?;
        tcp.shutdown().await.map_err(|e| e.to_string())
    }

    async fn page(
        &self,
        path: &str,
        ask: impl AsyncFnOnce(AgentPage) -> Result<PageAnswer, String>,
    ) -> PageAnswer {
        let page = match place(path) {
            PagePlace::Alive => return PageAnswer::new(200, "ok"),
            PagePlace::Absent => return PageAnswer::new(404, "there is nothing at this path"),
            PagePlace::Agent(page) => page,
        };
        let kept = match page {
            AgentPage::Ready => &self.ready,
            AgentPage::Metrics => &self.metrics,
        };
        // Others wait here, and have the answer of the first.
        let mut kept = kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.made.elapsed() < KEPT) {
            return kept.answer.clone();
        }
        match ask(page).await {
            Ok(answer) => {
                *kept = Some(KeptAnswer {
                    made: Instant::now(),
                    answer: answer.clone(),
                });
                answer
            }
            Err(why) => PageAnswer::new(503, &why),
        }
    }
}

/// Reads method and path of a request, and the rest of its head.
async fn read_head(tcp: &mut TcpStream, mut bytes: Vec<u8>) -> Result<(String, String), String> {
    let mut chunk = [0; 2048];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        if bytes.len() > HEAD_BYTES_MAX {
            return Err("a request of HTTP that is too long".to_owned());
        }
        match tcp.read(&mut chunk).await {
            Ok(0) => return Err("it closed the connection".to_owned()),
            Ok(count) => bytes.extend(&chunk[..count]),
            Err(e) => return Err(e.to_string()),
        }
    }
    request_line(&bytes).ok_or_else(|| "malformed HTTP request".to_owned())
}

/// Method and path, without what a path has behind `?`.
fn request_line(bytes: &[u8]) -> Option<(String, String)> {
    let line = bytes.split(|b| *b == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() || !version.starts_with("HTTP/1.") {
        return None;
    }
    let path = path.split(['?', '#']).next()?;
    Some((method.to_owned(), path.to_owned()))
}

fn head(answer: &PageAnswer) -> String {
    let reason = match answer.status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        503 => "Service Unavailable",
        _ => "Error",
    };
    format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.text.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_page_or_none() {
        let of = |line: &str| request_line(format!("{line}\r\nHost: n\r\n\r\n").as_bytes());
        let path = |line: &str| of(line).map(|(_, path)| place(&path));
        assert_eq!(path("GET /livez HTTP/1.1"), Some(PagePlace::Alive));
        assert_eq!(
            path("GET /metrics/?x=1 HTTP/1.0"),
            Some(PagePlace::Agent(AgentPage::Metrics))
        );
        assert_eq!(
            path("GET /healthz HTTP/1.1"),
            Some(PagePlace::Agent(AgentPage::Ready))
        );
        assert_eq!(path("GET /metrics/jobs HTTP/1.1"), Some(PagePlace::Absent));
        for wrong in [
            "GET /livez",
            "GET / livez HTTP/1.1",
            "GET /livez HTTP/2",
            "",
            "GET \u{ff}",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(request_line(b"GET /\xff HTTP/1.1\r\n\r\n"), None);
    }

    #[tokio::test]
    async fn an_answer_is_given_again_for_a_while() {
        let pages = AgentPages::default();
        let ask = async |_| Ok(PageAnswer::new(200, "first"));
        assert_eq!(pages.page("/metrics", ask).await.text, "first\n");
        let again = async |_| -> Result<PageAnswer, String> { panic!("it is not asked again") };
        assert_eq!(pages.page("/metrics", again).await.text, "first\n");
        let failed = async |_| Err("nobody there".to_owned());
        assert_eq!(pages.page("/readyz", failed).await.status, 503);
    }
}
