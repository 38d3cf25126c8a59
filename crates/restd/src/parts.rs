//! Long answers: the thread that makes one gives parts of it away, which are sent as the client reads them. No more of it is in memory
//! than a few parts, and a client that does not read holds the thread no longer than a few seconds.

use crate::connection_slots::{ConnectionSlot, ReservedBytes};
use crate::packing::Packer;
use hyper::body::{Body, Bytes, Frame};
use muster_cli::rest::{AnswerSink, HttpStatus, RestReply};
use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Interval;

/// Parts that wait to be sent.
const PARTS_WAITING: usize = 4;
/// Bytes that are counted for an answer while it is made.
const COUNTED_BYTES: usize = 1 << 20;
/// Time that a part waits for the client to read those before it.
const PART_WAIT: Duration = Duration::from_secs(10);
/// Time that all of them may wait together.
const PARTS_WAIT: Duration = Duration::from_secs(120);
/// Interval of notes that the client waits for the next part, and not the other way round.
const WAITING_NOTE: Duration = Duration::from_secs(20);
/// The longest answer to a client of HTTP/1.0, which would take one that breaks off for the whole.
const OLD_BYTES_MAX: usize = 64 << 20;

/// The head of a long answer.
#[derive(Debug)]
pub(crate) struct PartsHead {
    pub(crate) status: HttpStatus,
    pub(crate) media_type: &'static str,
    /// Its parts are packed with gzip.
    pub(crate) is_packed: bool,
    pub(crate) body: PartsBody,
}

/// The turns of a request while its answer is made whole; they are given back where the answer is sent in parts.
#[derive(Debug)]
pub(crate) struct PartsTurns {
    /// Turns of requests that need much memory, but for the user's own.
    pub(crate) large: Vec<OwnedSemaphorePermit>,
    /// Answers that are sent in parts at a time: each has a thread.
    pub(crate) streams: Arc<Semaphore>,
}

/// Where the parts go.
enum PartsTarget {
    /// To whom waits for the head.
    Head(oneshot::Sender<PartsHead>),
    Parts(mpsc::Sender<Bytes>),
    /// All of it is kept, for a client of HTTP/1.0.
    Whole(Option<RestReply>),
    Gone,
}

/// Where a thread puts the parts of an answer.
pub(crate) struct PartsSink {
    way: PartsTarget,
    place: Arc<ConnectionSlot>,
    runtime: Handle,
    /// Time that parts may still wait for the client.
    patience: Duration,
    turns: PartsTurns,
    stream: Option<OwnedSemaphorePermit>,
    /// Packs the parts of an answer.
    packer: Option<Packer>,
}

impl PartsSink {
    /// A sink, and the receiver of the answer's head.
    pub(crate) fn new(
        place: &Arc<ConnectionSlot>,
        turns: PartsTurns,
    ) -> (PartsSink, oneshot::Receiver<PartsHead>) {
        let (head, comes) = oneshot::channel();
        let sink = PartsSink {
            way: PartsTarget::Head(head),
            place: Arc::clone(place),
            runtime: Handle::current(),
            patience: PARTS_WAIT,
            turns,
            stream: None,
            packer: None,
        };
        (sink, comes)
    }

    /// Keeps the answer whole from now on.
    pub(crate) fn keep_whole(&mut self) {
        self.way = PartsTarget::Whole(None);
    }

    /// Packs the answer with gzip if it is sent in parts.
    pub(crate) fn pack(&mut self) {
        self.packer = Some(Packer::new());
    }

    /// The answer that was kept, if it has its end.
    pub(crate) fn into_whole(self) -> Option<RestReply> {
        match self.way {
            PartsTarget::Whole(answer) => answer,
            PartsTarget::Head(_) | PartsTarget::Parts(_) | PartsTarget::Gone => None,
        }
    }

    /// Waits for the client, as long as it may take.
    fn wait<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        let begun = Instant::now();
        let most = self.patience.min(PART_WAIT);
        let came = match most.is_zero() {
            true => None,
            false => self.runtime.block_on(tokio::time::timeout(most, what)).ok(),
        };
        self.patience = self.patience.saturating_sub(begun.elapsed());
        came
    }

    fn put(&mut self, part: Bytes) -> bool {
        let PartsTarget::Parts(parts) = &self.way else {
            return false;
        };
        let parts = parts.clone();
        let is_sent = matches!(self.wait(parts.send(part)), Some(Ok(())));
        if !is_sent {
            self.fail();
        }
        is_sent
    }
}

impl AnswerSink for PartsSink {
    fn begin(&mut self, status: HttpStatus, media_type: &'static str) {
        if let PartsTarget::Whole(kept) = &mut self.way {
            let body = Cow::Owned(String::new());
            *kept = Some(RestReply {
                status,
                media_type,
                body,
            });
            return;
        }
        let streams = Arc::clone(&self.turns.streams);
        self.stream = self.wait(streams.acquire_owned()).and_then(Result::ok);
        let PartsTarget::Head(head) = std::mem::replace(&mut self.way, PartsTarget::Gone) else {
            return;
        };
        if self.stream.is_none() {
            return;
        }
        let (parts, waiting) = mpsc::channel(PARTS_WAITING);
        let body = PartsBody {
            parts: waiting,
            kept: self.place.keep(COUNTED_BYTES),
            has_end: false,
            note: tokio::time::interval(WAITING_NOTE),
        };
        let sent = head.send(PartsHead {
            status,
            media_type,
            is_packed: self.packer.is_some(),
            body,
        });
        if sent.is_ok() {
            self.way = PartsTarget::Parts(parts);
        }
        self.turns.large.clear();
    }

    fn send(&mut self, part: String) -> bool {
        let PartsTarget::Whole(Some(answer)) = &mut self.way else {
            let Some(packer) = &mut self.packer else {
                return self.put(Bytes::from(part));
            };
            let packed = packer.pack(&part);
            // An empty part would be the end.
            return match packed.is_empty() {
                true => matches!(self.way, PartsTarget::Parts(_)),
                false => self.put(packed),
            };
        };
        let body = answer.body.to_mut();
        if body.len() + part.len() > OLD_BYTES_MAX {
            self.fail();
            return false;
        }
        body.push_str(&part);
        true
    }

    fn finish(&mut self) {
        let left = self.packer.take().map(|mut packer| packer.finish());
        if let Some(left) = left.filter(|left| !left.is_empty()) {
            self.put(left);
        }
        // An empty part is the end: a thread that panics gives none.
        self.put(Bytes::new());
    }

    fn fail(&mut self) {
        self.way = PartsTarget::Gone;
    }
}

/// The body of a long answer. Without its end it is an error, so that nobody takes it for the whole.
#[derive(Debug)]
pub(crate) struct PartsBody {
    parts: mpsc::Receiver<Bytes>,
    kept: ReservedBytes,
    has_end: bool,
    note: Interval,
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
        let part = loop {
            if let Poll::Ready(part) = self.parts.poll_recv(context) {
                break part;
            }
            ready!(self.note.poll_tick(context));
            self.kept.sent(0);
        };
        Poll::Ready(match part {
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
    use crate::connection_slots::{ConnectionSlots, Origin};
    use http_body_util::BodyExt as _;

    /// The parts that come of what `make` puts into a sink, and whether they are whole.
    fn parts_of(make: impl FnOnce(&mut PartsSink) + Send + 'static) -> (Vec<Bytes>, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let places = ConnectionSlots::new(1, COUNTED_BYTES, 1);
            let place = Arc::new(places.admit(Origin::User(1)).unwrap());
            let turns = PartsTurns {
                large: Vec::new(),
                streams: Arc::new(Semaphore::new(1)),
            };
            let (mut sink, head) = PartsSink::new(&place, turns);
            let maker = tokio::task::spawn_blocking(move || {
                sink.begin(HttpStatus::OK, "text/plain");
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
            (0..20).for_each(|number| assert!(sink.send(format!("{number}"))));
            sink.finish();
        });
        assert!(is_whole);
        assert_eq!((parts.len(), &*parts[19]), (20, &b"19"[..]));
    }

    /// The parts of a packed answer are one stream, whose end comes before that of the answer.
    #[test]
    fn packed_parts_are_one_answer() {
        let (parts, is_whole) = parts_of(|sink| {
            sink.pack();
            (0..5000).for_each(|number| assert!(sink.send(format!("{number}"))));
            sink.finish();
        });
        let packed: Vec<u8> = parts.concat();
        let mut text = String::new();
        let mut reader = flate2::read::GzDecoder::new(packed.as_slice());
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        let wanted: String = (0..5000).map(|number| number.to_string()).collect();
        assert!(is_whole && text == wanted && packed.len() < wanted.len());
    }

    #[test]
    fn without_its_end_an_answer_is_an_error() {
        let (parts, is_whole) = parts_of(|sink| {
            assert!(sink.send("a".to_owned()));
            sink.fail();
            assert!(!sink.send("b".to_owned()));
        });
        assert_eq!((parts.len(), is_whole), (1, false));
        let (parts, is_whole) = parts_of(|sink| assert!(sink.send("a".to_owned())));
        assert_eq!((parts.len(), is_whole), (1, false));
    }

    /// A client that reads a little now and then held the thread for good.
    #[test]
    fn an_answer_ends_with_its_time() {
        let (parts, is_whole) = parts_of(|sink| {
            sink.patience = Duration::ZERO;
            assert!(!sink.send("a".to_owned()));
            sink.finish();
        });
        assert!(parts.is_empty() && !is_whole);
    }

    /// Clients of HTTP/1.0 take an answer that breaks off for the whole.
    #[test]
    fn old_clients_get_answers_whole() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let places = ConnectionSlots::new(1, COUNTED_BYTES, 1);
        let place = Arc::new(places.admit(Origin::User(1)).unwrap());
        let whole = |parts: usize, of: usize| {
            let turns = PartsTurns {
                large: Vec::new(),
                streams: Arc::new(Semaphore::new(1)),
            };
            let (mut sink, _head) = PartsSink::new(&place, turns);
            sink.keep_whole();
            sink.begin(HttpStatus::OK, "text/plain");
            let part = "x".repeat(of);
            (0..parts).for_each(|_| {
                sink.send(part.clone());
            });
            sink.finish();
            sink.into_whole().map(|answer| answer.body.len())
        };
        assert_eq!(whole(3, 5), Some(15));
        assert_eq!(whole(2, OLD_BYTES_MAX / 2 + 1), None);
    }
}
