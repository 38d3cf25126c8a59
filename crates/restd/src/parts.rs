//! Long answers: the thread that makes one gives parts of it away, which are sent as the client reads them. No more of it is in memory
//! than a few parts, and a client that does not read holds the thread no longer than a few seconds.

use crate::places::{Kept, Place};
use hyper::body::{Body, Bytes, Frame};
use muster_cli::rest::{AnswerSink, Status};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// Parts that wait to be sent.
const PARTS_WAITING: usize = 4;
/// Bytes that are counted for an answer while it is made.
const COUNTED_BYTES: usize = 1 << 20;
/// How long a part waits for the client to read those before it.
const PART_WAIT: Duration = Duration::from_secs(10);
/// How long the whole may take.
const WHOLE_WAIT: Duration = Duration::from_secs(120);

/// The head of a long answer.
#[derive(Debug)]
pub(crate) struct PartsHead {
    pub(crate) status: Status,
    pub(crate) media_type: &'static str,
    pub(crate) body: PartsBody,
}

/// Where a thread puts the parts of an answer.
pub(crate) struct PartsSink {
    head: Option<oneshot::Sender<PartsHead>>,
    parts: Option<mpsc::Sender<Bytes>>,
    place: Arc<Place>,
    runtime: Handle,
    until: Instant,
    /// The turn at what needs much memory, until it is known that the answer does not.
    large: Option<OwnedSemaphorePermit>,
}

impl PartsSink {
    /// A sink, and where the head of what is put into it comes.
    pub(crate) fn new(
        place: &Arc<Place>,
        large: Option<OwnedSemaphorePermit>,
    ) -> (PartsSink, oneshot::Receiver<PartsHead>) {
        let (head, comes) = oneshot::channel();
        let sink = PartsSink {
            head: Some(head),
            parts: None,
            place: Arc::clone(place),
            runtime: Handle::current(),
            until: Instant::now() + WHOLE_WAIT,
            large,
        };
        (sink, comes)
    }

    fn put(&mut self, part: Bytes) {
        let Some(parts) = &self.parts else {
            return;
        };
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return self.fail();
        }
        let sent = self
            .runtime
            .block_on(tokio::time::timeout(left.min(PART_WAIT), parts.send(part)));
        if !matches!(sent, Ok(Ok(()))) {
            self.fail();
        }
    }
}

impl AnswerSink for PartsSink {
    fn begin(&mut self, status: Status, media_type: &'static str) {
        let (parts, waiting) = mpsc::channel(PARTS_WAITING);
        let body = PartsBody {
            parts: waiting,
            kept: self.place.keep(COUNTED_BYTES),
            has_end: false,
        };
        let head = PartsHead {
            status,
            media_type,
            body,
        };
        let taken = self.head.take().map(|sender| sender.send(head));
        self.parts = taken.is_some_and(|sent| sent.is_ok()).then_some(parts);
        self.large = None;
    }

    fn send(&mut self, part: String) {
        self.put(Bytes::from(part));
    }

    fn finish(&mut self) {
        // An empty part is the end: a thread that panics gives none.
        self.put(Bytes::new());
    }

    fn fail(&mut self) {
        self.parts = None;
    }
}

/// The body of a long answer. Without its end it is an error, so that nobody takes it for the whole.
#[derive(Debug)]
pub(crate) struct PartsBody {
    parts: mpsc::Receiver<Bytes>,
    kept: Kept,
    has_end: bool,
}

impl Body for PartsBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.has_end {
            return Poll::Ready(None);
        }
        // The client has read on.
        self.kept.sent(0);
        Poll::Ready(match ready!(self.parts.poll_recv(context)) {
            Some(part) if part.is_empty() => {
                self.has_end = true;
                None
            }
            Some(part) => Some(Ok(Frame::data(part))),
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::{Origin, Places};
    use http_body_util::BodyExt as _;

    /// The parts that come of what `make` puts into a sink, and whether they are whole.
    fn parts_of(make: impl FnOnce(&mut PartsSink) + Send + 'static) -> (Vec<Bytes>, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let places = Places::new(1, COUNTED_BYTES, 1);
            let place = Arc::new(places.admit(Origin::User(1)).unwrap());
            let (mut sink, head) = PartsSink::new(&place, None);
            let maker = tokio::task::spawn_blocking(move || {
                sink.begin(Status::OK, "text/plain");
                make(&mut sink);
            });
            let mut body = head.await.unwrap().body;
            let (mut parts, mut is_whole) = (Vec::new(), true);
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(frame) => parts.push(frame.into_data().unwrap()),
                    Err(_) => {
                        is_whole = false;
                        break;
                    }
                }
            }
            maker.await.unwrap();
            (parts, is_whole)
        })
    }

    #[test]
    fn all_parts_come_and_then_the_end() {
        let (parts, is_whole) = parts_of(|sink| {
            (0..20).for_each(|number| sink.send(format!("{number}")));
            sink.finish();
        });
        assert!(is_whole);
        assert_eq!((parts.len(), &*parts[19]), (20, &b"19"[..]));
    }

    #[test]
    fn without_its_end_an_answer_is_an_error() {
        let (parts, is_whole) = parts_of(|sink| {
            sink.send("a".to_owned());
            sink.fail();
            sink.send("b".to_owned());
        });
        assert_eq!((parts.len(), is_whole), (1, false));
        let (parts, is_whole) = parts_of(|sink| sink.send("a".to_owned()));
        assert_eq!((parts.len(), is_whole), (1, false));
    }

    /// A client that reads a little now and then held the thread for good.
    #[test]
    fn an_answer_ends_with_its_time() {
        let (parts, is_whole) = parts_of(|sink| {
            sink.until = Instant::now();
            (0..PARTS_WAITING * 2).for_each(|_| sink.send("a".to_owned()));
            sink.finish();
        });
        assert!(parts.is_empty() && !is_whole);
    }
}
