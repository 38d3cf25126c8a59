//! HTTP: one task a connection, one request of it at a time. What asks the controller waits for it on a thread of its own.

use crate::connection_slots::{ConnectionSlot, ConnectionSlots, Origin, ReservedBytes, STALL_MAX};
use crate::connections::{Connections, ConnectionsOf};
use crate::events::{EventBody, Feeds, NoStream};
use crate::identity::{Authentication, Credentials, Identity, Peer};
use crate::line_limit::LineLimit;
use crate::listen::{Connection, Listeners};
use crate::packing::PackedReply;
use crate::pages;
use crate::parts::{PartsBody, PartsHead, PartsSink, PartsTurns};
use crate::request_headers::{credentials, is_json, takes_gzip, wants_yaml};
use crate::served_paths::{RestAccess, ServedPaths};
use crate::single::standard_streams;
use crate::user_stream::UserStream;
use anyhow::{Context as _, Result};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use muster_cli::connect::ConnectError;
use muster_cli::rest::{self, ApiDescription, HttpStatus, RestReply};
use muster_closer::passed;
use std::borrow::Cow;
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Bytes of a body: a script of the largest size, escaped, and an environment.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Bytes of a request before its body.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// Time limit for a request's head, and for a connection without one.
const HEAD_WAIT: Duration = Duration::from_secs(30);
/// Time limit for a body.
const BODY_WAIT: Duration = Duration::from_secs(60);
/// Bytes of a body that needs little memory, whatever is in it.
const SMALL_BODY_BYTES: usize = 64 << 10;
/// Bytes of bodies and of answers that were not sent yet, of all connections, but for those of one.
const KEPT_BYTES_MAX: usize = 128 << 20;
/// Bytes of an answer that are given away at a time.
const PART_BYTES: usize = 64 << 10;
/// Requests that need much memory and are answered at a time.
const LARGE: usize = 2;
/// Characters of a path in the log.
const LOGGED_CHARS: usize = 160;
/// Lifetime of a connection.
const CONNECTION_LIFE: Duration = Duration::from_secs(600);

/// The bounds of the server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time (`--max-connections`). Where all are taken, who has the most gives one up.
    pub connections: usize,
    /// Requests that are answered at a time (`-t`). One host or local user has half of them at most.
    pub threads: usize,
}

struct Shared {
    conf: PathBuf,
    allowed: Authentication,
    served: ServedPaths,
    description: ApiDescription,
    connections: Connections,
    places: Arc<ConnectionSlots>,
    /// Requests that need much memory; those about accounting apart, which may take long before anything comes.
    large: [Arc<Semaphore>; 2],
    /// Answers that are sent in parts.
    streams: Arc<Semaphore>,
    feeds: Arc<Feeds>,
    log: Arc<LineLimit>,
}

/// Serves until a signal ends the process, or the only connection has ended.
///
/// # Errors
/// A listener cannot be used.
pub fn serve(
    listeners: Listeners,
    conf: PathBuf,
    access: RestAccess,
    limits: Limits,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(limits.threads)
        .build()
        .context("cannot start the event loop")?;
    let shared = Arc::new(Shared {
        feeds: Feeds::new(conf.clone(), limits.connections),
        conf,
        allowed: access.authentication,
        description: access.served.description(),
        served: access.served,
        connections: Connections::default(),
        places: ConnectionSlots::new(
            limits.connections,
            KEPT_BYTES_MAX,
            limits.threads.div_ceil(2),
        ),
        large: [(); 2].map(|()| Arc::new(Semaphore::new(LARGE))),
        streams: Arc::new(Semaphore::new(limits.threads.div_ceil(2))),
        log: Arc::default(),
    });
    passed::start().context("cannot start thread to close what users send")?;
    let served = runtime.block_on(run(listeners, shared));
    if served.is_err() {
        // Answers that are being made would be waited for.
        runtime.shutdown_background();
    }
    served
}

async fn run(listeners: Listeners, shared: Arc<Shared>) -> Result<()> {
    if let Some(connection) = listeners.connection {
        return single(connection, &shared).await;
    }
    let mut parts = JoinSet::new();
    for listener in listeners.tcp {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        parts.spawn(accept_tcp(listener, shared.clone()));
    }
    for listener in listeners.unix {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        parts.spawn(accept_unix(listener, shared.clone()));
    }
    parts.spawn(watch(shared.places.clone()));
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        failed = first_end(&mut parts) => return Err(failed),
    }
    log::info!("slurmrestd ends, since it was asked to");
    Ok(())
}

/// Waits until one of the parts ends that slurmrestd cannot do without: each goes on until the process ends.
async fn first_end(parts: &mut JoinSet<()>) -> anyhow::Error {
    match parts.join_next().await {
        Some(Err(e)) => anyhow::anyhow!("a part of slurmrestd has failed: {e}"),
        _ => anyhow::anyhow!("a part of slurmrestd has ended"),
    }
}

/// The one connection of a server that another program has started for it.
///
/// # Errors
/// It cannot be used, or what standard input has is not HTTP.
async fn single(connection: Connection, shared: &Arc<Shared>) -> Result<()> {
    let place = shared.places.admit(Origin::Unknown).map(Arc::new);
    let place = place.context("no connection is allowed (--max-connections)")?;
    match connection {
        Connection::Tcp(stream) => {
            let address = stream.peer_addr().ok();
            let peer = Peer::of_tcp(address);
            stream.set_nonblocking(true)?;
            let stream = tokio::net::TcpStream::from_std(stream)?;
            // Its client knows how it has ended.
            let _ = connection_of(stream, peer, place, shared.clone()).await;
        }
        Connection::Unix(stream) => {
            let peer = Peer::of_unix(&stream);
            stream.set_nonblocking(true)?;
            let stream = tokio::net::UnixStream::from_std(stream)?;
            let stream = UserStream::new(stream, peer.uid);
            let _ = connection_of(stream, peer, place, shared.clone()).await;
        }
        Connection::Stdio => {
            let (stream, written) = standard_streams()?;
            let mut peer = Peer::of_unix(&stream);
            peer.ends_input = true;
            stream.set_nonblocking(true)?;
            let stream = tokio::net::UnixStream::from_std(stream)?;
            let served = connection_of(stream, peer, place, shared.clone()).await;
            // The other side has the end by now, so this does not take long.
            let written = written.join().unwrap_or(Ok(()));
            served.context("standard input")?;
            written.context("standard output")?;
        }
    }
    Ok(())
}

/// Waits where accepting has failed, as it does while there are no descriptors: it would fail again at once.
async fn pause(error: &std::io::Error) {
    log::warn!("cannot accept a connection: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn accept_tcp(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                // Answers are short, and clients wait for them.
                let _ = stream.set_nodelay(true);
                let peer = Peer::of_tcp(Some(address));
                begin(stream, peer, Origin::of(address.ip()), &shared);
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn accept_unix(listener: tokio::net::UnixListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let peer = Peer::of_unix(&stream);
                let origin = peer.uid.map_or(Origin::Unknown, Origin::User);
                let stream = UserStream::new(stream, peer.uid);
                begin(stream, peer, origin, &shared);
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Serves a connection, if there is a place for it.
fn begin<S>(stream: S, peer: Peer, origin: Origin, shared: &Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(place) = shared.places.admit(origin) else {
        if shared.log.may_write(false) {
            log::warn!("{}: all connections are taken", peer.source);
        }
        return;
    };
    let key = place.key();
    let task = tokio::spawn(connection_of(stream, peer, Arc::new(place), shared.clone()));
    shared.places.set_end(key, task.abort_handle());
}

/// Ends connections whose clients do not read.
async fn watch(places: Arc<ConnectionSlots>) {
    let mut ticks = tokio::time::interval(STALL_MAX / 6);
    loop {
        ticks.tick().await;
        places.end_stalled(Instant::now());
    }
}

async fn connection_of<S>(
    stream: S,
    peer: Peer,
    place: Arc<ConnectionSlot>,
    shared: Arc<Shared>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let peer = Arc::new(peer);
    let service = service_fn(|request| {
        let (peer, place, shared) = (peer.clone(), place.clone(), shared.clone());
        async move {
            place.set_busy(true);
            let response = respond(request, peer, &place, shared).await;
            place.set_busy(false);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .half_close(peer.ends_input)
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = &mut connection => served,
        () = tokio::time::sleep(CONNECTION_LIFE) => {
            // Clients make another; who only does not read the answer has had a place long enough.
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(BODY_WAIT, connection).await {
                Ok(served) => served,
                Err(_) => return Ok(()),
            }
        }
    };
    if let Err(error) = &served {
        log::debug!("connection from {}: {error}", peer.source);
    }
    served
}

async fn respond(
    request: Request<Incoming>,
    peer: Arc<Peer>,
    place: &Arc<ConnectionSlot>,
    shared: Arc<Shared>,
) -> Response<SentBody> {
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    let source = peer.source.clone();
    let log = shared.log.clone();
    let is_known = AtomicBool::new(false);
    let answer = match method == Method::GET && path == rest::events::PATH {
        true => stream(request, peer, place, shared, &is_known)
            .await
            .map(SentAnswer::Events),
        false => answer(request, peer, place, shared, &is_known).await,
    };
    let answer = answer.unwrap_or_else(SentAnswer::Whole);
    let status = answer.head().0;
    if log.may_write(is_known.into_inner()) {
        let path: String = path.chars().take(LOGGED_CHARS).collect();
        log::info!(
            "{source}: {} {} -> {}",
            method.as_str().chars().take(16).collect::<String>(),
            path.escape_debug(),
            status.0
        );
    }
    response(answer, place)
}

/// The answer to a request.
enum SentAnswer {
    Whole(RestReply),
    Packed(PackedReply),
    /// One that is sent while it is made.
    Parts(PartsHead),
    Events(EventBody),
}

impl SentAnswer {
    /// The status and the media type.
    fn head(&self) -> (HttpStatus, &'static str) {
        match self {
            SentAnswer::Whole(answer) => (answer.status, answer.media_type),
            SentAnswer::Packed(answer) => (answer.status, answer.media_type),
            SentAnswer::Parts(head) => (head.status, head.media_type),
            SentAnswer::Events(_) => (HttpStatus::OK, "text/event-stream"),
        }
    }

    fn is_packed(&self) -> bool {
        match self {
            SentAnswer::Packed(_) => true,
            SentAnswer::Parts(head) => head.is_packed,
            SentAnswer::Whole(_) | SentAnswer::Events(_) => false,
        }
    }
}

fn response(answer: SentAnswer, place: &Arc<ConnectionSlot>) -> Response<SentBody> {
    let (status, media_type) = answer.head();
    let status = StatusCode::from_u16(status.0).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let is_packed = answer.is_packed();
    let mut response = Response::new(match answer {
        SentAnswer::Whole(answer) => SentBody::Whole(AnswerBody::new(answer.body, place)),
        SentAnswer::Packed(answer) => SentBody::Whole(AnswerBody::packed(answer.bytes, place)),
        SentAnswer::Parts(head) => SentBody::Parts(head.body),
        SentAnswer::Events(stream) => SentBody::Stream(stream),
    });
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if is_packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(pages::POLICY),
    );
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    response
}

async fn answer(
    request: Request<Incoming>,
    peer: Arc<Peer>,
    place: &Arc<ConnectionSlot>,
    shared: Arc<Shared>,
    is_known: &AtomicBool,
) -> Result<SentAnswer, RestReply> {
    let (head, body) = request.into_parts();
    let method = match head.method {
        Method::GET => rest::Method::Get,
        Method::POST => rest::Method::Post,
        Method::DELETE => rest::Method::Delete,
        _ => {
            return Err(RestReply::text(
                HttpStatus::NOT_ALLOWED,
                "This HTTP method is not there at any path.",
            ));
        }
    };
    let path = head.uri.path().to_owned();
    shared.served.check(&path)?;
    let is_old = head.version < Version::HTTP_11;
    let is_packed = !is_old && takes_gzip(&head.headers);
    if method == rest::Method::Get {
        match path.trim_end_matches('/') {
            "/livez" | "/healthz" | "/readyz" => return Err(RestReply::text(HttpStatus(204), "")),
            _ => {}
        }
        if is_packed && let Some(page) = pages::packed_at(&path) {
            return Ok(SentAnswer::Packed(page));
        }
        if let Some(page) = pages::at(&path) {
            return Err(page);
        }
        if let Some(description) = shared.description.at(&path) {
            return Err(description);
        }
    }
    // Prometheus asks for text, in forms of its own; the form of a report is a parameter.
    let words = path.trim_start_matches('/');
    let is_text = words.starts_with("metrics") || words.starts_with("muster/");
    let yaml = match wants_yaml(&head.headers).or(is_text.then_some(false)) {
        Some(yaml) => yaml,
        None => {
            let text = "Accept content type is unknown";
            return Err(RestReply::text(HttpStatus(415), text));
        }
    };
    if !is_json(&head.headers) {
        let text = "Unable to parse query. The body's content type is not application/json.";
        return Err(RestReply::text(HttpStatus(415), text));
    }
    let given = match credentials(&head.headers) {
        Ok(given) => given,
        Err(text) => return Err(unauthorized(text)),
    };
    if given.token.is_none() && peer.uid.is_none() {
        // Before a body is read of who has not even said who it is.
        return Err(unauthorized("Authentication failure"));
    }
    let identity = identify(given, peer, place, &shared, is_known).await?;
    let mut kept = place.keep(0);
    let body = read(body, &mut kept).await?;
    let query = head.uri.query().unwrap_or("").to_owned();
    let is_large = body.len() > SMALL_BODY_BYTES || rest::is_listing(method, &path);
    let of_all = &shared.large[usize::from(path.starts_with("/slurmdb"))];
    let large = is_large.then_some(of_all);
    let mut turn = turn_of_user(place, &shared.places, identity.caller.uid, large).await;
    // A long answer in parts needs little memory: of its turns the user's own stays.
    let turns = PartsTurns {
        large: turn.drain(1..if is_large { 3 } else { 1 }).collect(),
        streams: Arc::clone(&shared.streams),
    };
    let (mut sink, long) = PartsSink::new(place, turns);
    if is_old {
        sink.keep_whole();
    }
    if is_packed {
        sink.pack();
    }
    let mut asked = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let request = rest::Request {
            method,
            path: &path,
            query: &query,
            body: &body,
            yaml,
            caller: &identity.caller,
        };
        let mut connections = ConnectionsOf {
            all: &shared.connections,
            identity: &identity,
            conf: &shared.conf,
            since: Instant::now(),
        };
        let answer = rest::answer(&request, &mut connections, &mut sink);
        let answer = answer.or_else(|| sink.into_whole())?;
        Some(match is_packed {
            true => PackedReply::of(answer).map_or_else(SentAnswer::Whole, SentAnswer::Packed),
            false => SentAnswer::Whole(answer),
        })
    });
    tokio::select! {
        biased;
        Ok(head) = long => Ok(SentAnswer::Parts(head)),
        asked = &mut asked => match asked {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(failed("its end is missing")),
            Err(error) => Err(failed(&error.to_string())),
        },
    }
}

fn unauthorized(error: impl ToString) -> RestReply {
    RestReply::text(HttpStatus::UNAUTHORIZED, &error.to_string())
}

fn failed(why: &str) -> RestReply {
    log::error!("a request could not be answered: {why}");
    RestReply::text(
        HttpStatus::INTERNAL_ERROR,
        "The request could not be answered; the log of slurmrestd says why.",
    )
}

/// Begins a stream of events.
async fn stream(
    request: Request<Incoming>,
    peer: Arc<Peer>,
    place: &Arc<ConnectionSlot>,
    shared: Arc<Shared>,
    is_known: &AtomicBool,
) -> Result<EventBody, RestReply> {
    let (head, _) = request.into_parts();
    let given = credentials(&head.headers).map_err(unauthorized)?;
    if given.token.is_none() && peer.uid.is_none() {
        return Err(unauthorized("Authentication failure"));
    }
    let last_event_id = head.headers.get("last-event-id");
    let last_event_id = last_event_id.map(|value| value.to_str().unwrap_or("?"));
    let query = head.uri.query().unwrap_or("");
    let (filter, after) = rest::events::StreamFilter::read(query, last_event_id)?;
    let identity = identify(given, peer, place, &shared, is_known).await?;
    if let Some(error) = identity.refusal() {
        return Err(RestReply::text(HttpStatus::UNAVAILABLE, &error.to_string()));
    }
    let opened = shared.feeds.open(identity, filter, after);
    opened.map_err(|why| match why {
        NoStream::OfUser => {
            RestReply::text(HttpStatus(429), "You have many streams of events already.")
        }
        NoStream::OfAll => RestReply::text(
            HttpStatus::UNAVAILABLE,
            "All places for streams of events are taken (--max-connections).",
        ),
    })
}

/// Finds out whose a request is, before anything of it is kept: who has no token that the controller believes gets no further.
async fn identify(
    given: Credentials,
    peer: Arc<Peer>,
    place: &ConnectionSlot,
    shared: &Arc<Shared>,
    is_known: &AtomicBool,
) -> Result<Identity, RestReply> {
    let turn = place.requests.clone().acquire_owned().await;
    let own = Arc::clone(shared);
    let confirming = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let mut identity = Identity::of(given, &peer, own.allowed).map_err(|e| unauthorized(&e))?;
        let mut connections = ConnectionsOf {
            all: &own.connections,
            identity: &identity,
            conf: &own.conf,
            since: Instant::now(),
        };
        let confirmed = connections.confirm();
        let is_confirmed = confirmed.is_ok();
        match confirmed {
            Ok(()) => identity.look_up().map_err(|e| unauthorized(&e))?,
            // Errors of the controller are reported where it is asked.
            Err(error) if identity.leave_unconfirmed(&error) => {}
            Err(ConnectError::Untrusted { why, .. }) => return Err(unauthorized(&why)),
            Err(error) => return Err(unauthorized(&error)),
        }
        Ok((identity, is_confirmed))
    });
    let (identity, is_confirmed) = confirming.await.unwrap_or_else(|error| {
        log::error!("a request could not be answered: {error}");
        Err(RestReply::text(
            HttpStatus::INTERNAL_ERROR,
            "The request could not be answered.",
        ))
    })?;
    if is_confirmed {
        place.set_known();
        is_known.store(true, Ordering::Relaxed);
    }
    Ok(identity)
}

/// Waits until a request of a user may be answered: the user and the origin have few others, also by other connections of the same proxy,
/// and of those that need much memory there are few of a user, of an origin and at all. Own turns come first: a request that waits for
/// another one of its user has no turn that all share.
async fn turn_of_user(
    place: &ConnectionSlot,
    places: &ConnectionSlots,
    uid: u32,
    large_of_all: Option<&Arc<Semaphore>>,
) -> Vec<OwnedSemaphorePermit> {
    let large = large_of_all.map(|of_all| {
        [
            places.large_of_user(uid),
            place.large.clone(),
            of_all.clone(),
        ]
    });
    let own = [places.requests_of_user(uid), place.requests.clone()];
    let mut permits = Vec::new();
    for lane in own.into_iter().chain(large.into_iter().flatten()) {
        // None is ever closed.
        permits.extend(lane.acquire_owned().await);
    }
    permits
}

async fn read(body: Incoming, kept: &mut ReservedBytes) -> Result<Vec<u8>, RestReply> {
    match tokio::time::timeout(BODY_WAIT, read_whole(body, kept)).await {
        Ok(read) => read,
        Err(_) => Err(RestReply::text(HttpStatus(408), "The body came too late.")),
    }
}

async fn read_whole(mut body: Incoming, kept: &mut ReservedBytes) -> Result<Vec<u8>, RestReply> {
    let too_large = || RestReply::text(HttpStatus(413), "The body is too large.");
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    // Grown by doubling, it would take twice the counted bytes.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(0);
    let mut bytes = Vec::with_capacity(announced);
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|_| RestReply::text(HttpStatus::BAD_REQUEST, "The body cannot be read."))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > BODY_BYTES_MAX {
            return Err(too_large());
        }
        kept.add(data.len());
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// The body of an answer.
enum SentBody {
    Whole(AnswerBody),
    Parts(PartsBody),
    Stream(EventBody),
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let never = |e: Infallible| match e {};
        match self.get_mut() {
            SentBody::Whole(body) => Pin::new(body).poll_frame(context).map_err(never),
            SentBody::Parts(body) => Pin::new(body).poll_frame(context),
            SentBody::Stream(body) => Pin::new(body).poll_frame(context).map_err(never),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            SentBody::Whole(body) => body.is_end_stream(),
            SentBody::Parts(body) => body.is_end_stream(),
            SentBody::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            SentBody::Whole(body) => body.size_hint(),
            SentBody::Parts(body) => body.size_hint(),
            SentBody::Stream(body) => body.size_hint(),
        }
    }
}

/// The body of an answer. It is given away in parts, so that it is known how much of it was sent.
struct AnswerBody {
    left: Bytes,
    kept: ReservedBytes,
}

impl AnswerBody {
    fn new(body: Cow<'static, str>, place: &Arc<ConnectionSlot>) -> AnswerBody {
        let (left, memory) = match body {
            Cow::Borrowed(text) => (Bytes::from_static(text.as_bytes()), 0),
            Cow::Owned(text) => {
                let length = text.len();
                (Bytes::from(text), length)
            }
        };
        AnswerBody {
            left,
            kept: place.keep(memory),
        }
    }

    fn packed(bytes: Bytes, place: &Arc<ConnectionSlot>) -> AnswerBody {
        let kept = place.keep(bytes.len());
        AnswerBody { left: bytes, kept }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.left.len().min(PART_BYTES);
        let part = self.left.split_to(length);
        self.kept.sent(length);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

#[cfg(test)]
mod tests;
