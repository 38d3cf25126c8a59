//! A channel for a daemon with an event loop: what goes through a Unix socket, as from a peer on its own host, is carried to
//! another host and back. A connection on which nothing happens has no buffers: there may be ten thousand.

use crate::admission::ByteCount;
use crate::handshake::{Channel, UnconfirmedChannel};
use crate::opening::{OPENING_BYTES_MAX, Opening};
use crate::records::{Sealer, Unsealer};
use std::cell::RefCell;
use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, UnixStream, unix};

/// Bytes that are carried at a time.
const CHUNK: usize = 32 << 10;
/// Room that a connection needs to read on: it may keep a part of a record in twice the bytes that it has, and what else is read.
const ROOM: usize = 4 * CHUNK;
/// Time in which a record must come whole while its owner has no room for more.
const PART_MAX: Duration = Duration::from_secs(30);
/// Time in which the other host must end a connection that has ended on this one.
const ENDING_MAX: Duration = Duration::from_secs(5);

/// The buffers of a thread into which all its connections are read, and for the resulting bytes.
struct Buffers {
    read: Vec<u8>,
    made: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::new(Buffers {
        read: vec![0; CHUNK],
        made: Vec::new(),
    });
}

/// The kept bytes of one direction of a connection: a part of a record, and bytes that the other end has not taken yet.
/// They count as its owner's.
struct KeptBytes {
    count: Option<ByteCount>,
    bytes: usize,
    /// Since when a record is there that has not come whole.
    part_since: Option<Instant>,
}

impl KeptBytes {
    fn new(count: Option<ByteCount>) -> KeptBytes {
        KeptBytes {
            count,
            bytes: 0,
            part_since: None,
        }
    }

    /// Waits until there is room for the bytes of one read. A part of a record that is too old is ended instead: parts of
    /// one owner would keep each other from coming whole.
    async fn wait_for_room(&self, part_max: Duration) -> io::Result<()> {
        let Some(count) = &self.count else {
            return Ok(());
        };
        let room = count.wait_for_room(ROOM);
        let Some(since) = self.part_since else {
            room.await;
            return Ok(());
        };
        let left = part_max.saturating_sub(since.elapsed());
        let come = tokio::time::timeout(left, room).await;
        come.map_err(|_| no_room())
    }

    /// Counts as many as are kept now.
    fn set(&mut self, bytes: usize) -> io::Result<()> {
        if let Some(count) = &self.count {
            match bytes.checked_sub(self.bytes) {
                Some(more) => count.take(more).map_err(|_| no_room())?,
                None => count.give_back(self.bytes - bytes),
            }
            self.bytes = bytes;
        }
        Ok(())
    }
}

fn no_room() -> io::Error {
    io::Error::other("too much is kept that has not come whole or was not taken")
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        if let Some(count) = &self.count {
            count.give_back(self.bytes);
        }
    }
}

/// Carries in both directions until this host's side has ended. What is kept meanwhile is counted, if a count is given; where that
/// has no room, no more is read.
///
/// # Errors
/// The connection broke, what came was not sent by the other side, or a record does not come whole and there is no room.
pub async fn relay(
    local: UnixStream,
    tcp: TcpStream,
    channel: Channel,
    count: Option<ByteCount>,
) -> io::Result<()> {
    relay_within(local, tcp, channel, count, PART_MAX).await
}

/// As [`relay`], with the time for a part of a record.
async fn relay_within(
    local: UnixStream,
    tcp: TcpStream,
    channel: Channel,
    count: Option<ByteCount>,
    part_max: Duration,
) -> io::Result<()> {
    let (local_in, local_out) = local.into_split();
    let (tcp_in, tcp_out) = tcp.into_split();
    let Channel { sealer, opener } = channel;
    let held = KeptBytes::new(count.clone());
    let mut out = pin!(carry_out(local_in, tcp_out, sealer, held));
    let held = KeptBytes::new(count);
    let mut into = pin!(carry_in(tcp_in, local_out, opener, held, part_max));
    tokio::select! {
        ended = &mut out => {
            ended?;
            match tokio::time::timeout(ENDING_MAX, into).await {
                Ok(ended) => ended,
                Err(_) => Ok(()),
            }
        }
        ended = &mut into => {
            ended?;
            out.await
        }
    }
}

/// The first message of a connection.
#[derive(Debug)]
pub enum FirstMessage {
    /// A channel.
    Channel(Box<Opening>),
    /// A request of HTTP, of which these bytes have come.
    Http(Vec<u8>),
}

/// Reads what a connection begins with, of a server that speaks HTTP as well.
///
/// # Errors
/// The text says why it is neither.
pub async fn read_beginning(tcp: &mut TcpStream) -> Result<FirstMessage, String> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 2048]);
    while bytes.len() < 4 {
        match tcp.read(&mut chunk).await {
            Ok(0) => return Err("it closed the connection".to_owned()),
            Ok(count) => bytes.extend(&chunk[..count]),
            Err(e) => return Err(e.to_string()),
        }
    }
    match &bytes[..4] {
        b"GET " | b"HEAD" | b"POST" | b"PUT " | b"OPTI" => Ok(FirstMessage::Http(bytes)),
        _ => {
            let opening = read_rest(tcp, bytes).await?;
            Ok(FirstMessage::Channel(Box::new(opening)))
        }
    }
}

/// Reads what a channel begins with.
///
/// # Errors
/// The text says why it is none.
pub async fn read_opening(tcp: &mut TcpStream) -> Result<Opening, String> {
    read_rest(tcp, Vec::new()).await
}

/// Reads what a channel begins with, of which some has come.
async fn read_rest(tcp: &mut TcpStream, mut bytes: Vec<u8>) -> Result<Opening, String> {
    let mut chunk = [0; 2048];
    loop {
        if let Some(opening) = Opening::decode(&bytes).map_err(|e| e.to_string())? {
            return Ok(opening);
        }
        match tcp.read(&mut chunk).await {
            Ok(0) => return Err("it closed the connection".to_owned()),
            Ok(count) => bytes.extend(&chunk[..count]),
            Err(e) => return Err(e.to_string()),
        }
        if bytes.len() > OPENING_BYTES_MAX {
            return Err("what it says first is too long".to_owned());
        }
    }
}

/// Waits until the other side has confirmed the channel: only then is it who its credential says.
///
/// # Errors
/// The text says why it has not.
pub async fn confirmed(
    tcp: &mut TcpStream,
    mut channel: UnconfirmedChannel,
) -> Result<Channel, String> {
    let mut chunk = [0; 2048];
    loop {
        match tcp.read(&mut chunk).await {
            Ok(0) => return Err("it closed the connection".to_owned()),
            Ok(count)
                if channel
                    .confirm(&chunk[..count])
                    .map_err(|e| e.to_string())? =>
            {
                return Ok(channel.into_channel());
            }
            Ok(_) => {}
            Err(e) => return Err(e.to_string()),
        }
    }
}

/// The result of one read: what remains to be written to the other side.
enum CarryOutcome {
    /// Nothing was available.
    Idle,
    /// These bytes.
    Rest(Vec<u8>),
    /// These bytes; the source has ended.
    End(Vec<u8>),
}

/// Handles the result of a write that may take a part of the bytes; returns the rest.
fn write_now(written: io::Result<usize>, bytes: &[u8]) -> io::Result<Vec<u8>> {
    match written {
        Ok(count) => Ok(bytes[count..].to_vec()),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(bytes.to_vec()),
        Err(e) => Err(e),
    }
}

/// Like [`write_now`], for the local socket. A program that has closed it takes nothing any more, which is not an error: its
/// earlier bytes are still to be sent.
fn write_local(written: io::Result<usize>, bytes: &[u8]) -> io::Result<Vec<u8>> {
    match write_now(written, bytes) {
        Err(e) if is_closed(&e) => Ok(Vec::new()),
        rest => rest,
    }
}

/// Whether the program at the other end of a local socket has closed it, perhaps with something unread.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// The number of bytes that a read from a socket has brought; none if nothing had come.
fn received(read: io::Result<usize>) -> io::Result<Option<usize>> {
    match read {
        Ok(count) => Ok(Some(count)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

async fn carry_out(
    from: unix::OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut sealer: Sealer,
    mut held: KeptBytes,
) -> io::Result<()> {
    loop {
        from.readable().await?;
        held.wait_for_room(Duration::MAX).await?;
        let step = BUFFERS.with_borrow_mut(|Buffers { read, made }| {
            let read_now = match from.try_read(read) {
                Err(e) if is_closed(&e) => Ok(0),
                read_now => read_now,
            };
            let Some(count) = received(read_now)? else {
                return Ok(CarryOutcome::Idle);
            };
            made.clear();
            let sealed = match count {
                0 => sealer.seal_end(made),
                _ => sealer.seal(&read[..count], made),
            };
            sealed.map_err(io::Error::other)?;
            let rest = write_now(to.try_write(made), made)?;
            Ok::<_, io::Error>(match count {
                0 => CarryOutcome::End(rest),
                _ => CarryOutcome::Rest(rest),
            })
        })?;
        match step {
            CarryOutcome::Idle => {}
            CarryOutcome::Rest(rest) => {
                held.set(rest.len())?;
                to.write_all(&rest).await?;
                held.set(0)?;
            }
            CarryOutcome::End(rest) => {
                held.set(rest.len())?;
                to.write_all(&rest).await?;
                return to.shutdown().await;
            }
        }
    }
}

async fn carry_in(
    from: OwnedReadHalf,
    mut to: unix::OwnedWriteHalf,
    mut opener: Unsealer,
    mut held: KeptBytes,
    part_max: Duration,
) -> io::Result<()> {
    // The bytes that came with the answer.
    let mut first = Vec::new();
    while opener.open_next(&mut first).map_err(io::Error::other)? {}
    write_all_local(&mut to, &first).await?;
    drop(first);
    loop {
        wait_for_more(&from, &held, part_max).await?;
        let step = BUFFERS.with_borrow_mut(|Buffers { read, made }| {
            let Some(count) = received(from.try_read(read))? else {
                return Ok(CarryOutcome::Idle);
            };
            if count == 0 {
                return Ok(CarryOutcome::End(Vec::new()));
            }
            opener.push(&read[..count]);
            made.clear();
            while opener.open_next(made).map_err(io::Error::other)? {}
            if made.is_empty() {
                held.part_since.get_or_insert_with(Instant::now);
                return Ok(CarryOutcome::Rest(Vec::new()));
            }
            held.part_since = (opener.held() > 0).then(Instant::now);
            write_local(to.try_write(made), made).map(CarryOutcome::Rest)
        })?;
        match step {
            CarryOutcome::Idle => {}
            CarryOutcome::Rest(rest) => {
                held.set(opener.held() + rest.len())?;
                write_all_local(&mut to, &rest).await?;
                held.set(opener.held())?;
            }
            CarryOutcome::End(_) => {
                // The program may have closed it already.
                let _ = to.shutdown().await;
                return match opener.has_ended() {
                    true => Ok(()),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }
}

/// Waits until something has come, and there is room for it. A part of a record is looked after though nothing comes: others may
/// need its room.
async fn wait_for_more(
    from: &OwnedReadHalf,
    held: &KeptBytes,
    part_max: Duration,
) -> io::Result<()> {
    while held.count.is_some() && held.part_since.is_some() {
        let come = tokio::time::timeout(part_max, from.readable()).await;
        held.wait_for_room(part_max).await?;
        if let Ok(come) = come {
            return come;
        }
    }
    from.readable().await?;
    held.wait_for_room(part_max).await
}

async fn write_all_local(to: &mut unix::OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
    match to.write_all(bytes).await {
        Err(e) if is_closed(&e) => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::ByteBounds;
    use crate::{Initiator, Responder, SECRET, Scheme};
    use tokio::net::TcpListener;

    fn channels() -> (Channel, Channel) {
        let secret = [5; SECRET];
        let (mut client, bytes) = Initiator::begin(Scheme::Job, b"7", &secret, b"").unwrap();
        let opening = Opening::decode(&bytes).unwrap().unwrap();
        let (server, _) = Responder::accept(&opening, &secret).unwrap();
        let (answer, mut far) = server.answer(b"").unwrap();
        let near = client.finish(&answer).unwrap().unwrap();
        assert!(far.confirm(&near.confirmation).unwrap());
        (near.channel, far.into_channel())
    }

    /// Two hosts with a relay each, and the ends of the local sockets.
    async fn hosts() -> (
        UnixStream,
        UnixStream,
        [tokio::task::JoinHandle<io::Result<()>>; 2],
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = channels();
        let tcp = TcpStream::connect(address).await.unwrap();
        let (near_end, near_local) = UnixStream::pair().unwrap();
        let (far_end, far_local) = UnixStream::pair().unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let relays = [
            tokio::spawn(relay(near_local, tcp, near, None)),
            tokio::spawn(relay(far_local, accepted, far, None)),
        ];
        (near_end, far_end, relays)
    }

    /// A connection whose kept bytes count, the far end of its socket, and the data for it: all of a record but its
    /// last byte.
    async fn part(
        listener: &TcpListener,
        count: &ByteCount,
        part_max: Duration,
    ) -> (
        TcpStream,
        UnixStream,
        tokio::task::JoinHandle<io::Result<()>>,
        u8,
    ) {
        let mut tcp = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let (end, local) = UnixStream::pair().unwrap();
        let (mut near, far) = channels();
        let count = Some(count.clone());
        let relay = tokio::spawn(relay_within(local, accepted, far, count, part_max));
        let mut sealed = Vec::new();
        near.sealer.seal(&[7; 30_000], &mut sealed).unwrap();
        let last = sealed.pop().unwrap();
        tcp.write_all(&sealed).await.unwrap();
        (tcp, end, relay, last)
    }

    /// A part of a record that has come, of each of a user's thousands of connections, was not counted.
    #[tokio::test]
    async fn parts_of_records_count() {
        let count = ByteCount::new(ByteBounds {
            own: ROOM + 130_000,
            all: 10 * ROOM,
            few: 1000,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        count.take(110_000).unwrap();
        let (mut tcp, mut end, first, last) = part(&listener, &count, PART_MAX).await;
        while count.own() < 140_000 {
            tokio::task::yield_now().await;
        }
        // Another waits, and goes on once there is room.
        let (mut other_tcp, mut other_end, second, other_last) =
            part(&listener, &count, PART_MAX).await;
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        assert!(count.own() < 110_000 + 65_536 && !second.is_finished());
        count.give_back(110_000);
        let mut read = vec![0; 30_000];
        tcp.write_all(&[last]).await.unwrap();
        end.read_exact(&mut read).await.unwrap();
        other_tcp.write_all(&[other_last]).await.unwrap();
        other_end.read_exact(&mut read).await.unwrap();
        drop((tcp, end, other_tcp, other_end));
        let _ = (first.await.unwrap(), second.await.unwrap());
        assert_eq!(count.own(), 0);
    }

    /// Connections were ended that would have gone beyond the bound, and those went on that had taken the room.
    #[tokio::test]
    async fn parts_that_do_not_come_whole_end_where_others_need_room() {
        // One part leaves room to read on, and two do not.
        let count = ByteCount::new(ByteBounds {
            own: ROOM + 40_000,
            all: 10 * ROOM,
            few: 1000,
        });
        let short = Duration::from_millis(20);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (_tcp, _end, stalled, _) = part(&listener, &count, short).await;
        while count.own() < 30_000 {
            tokio::task::yield_now().await;
        }
        let (mut tcp, mut end, relay, last) = part(&listener, &count, PART_MAX).await;
        let error = stalled.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("too much is kept"), "{error}");
        let mut read = vec![0; 30_000];
        tcp.write_all(&[last]).await.unwrap();
        end.read_exact(&mut read).await.unwrap();
        relay.abort();
    }

    /// A step daemon that had said all, and closed its socket while srun still sent something, was lost for srun.
    #[tokio::test]
    async fn what_was_written_before_a_socket_was_closed_arrives() {
        for _ in 0..4 {
            let (near, far, relays) = hosts().await;
            let (mut near_in, mut near_out) = near.into_split();
            // More than the other side takes, which does not read.
            let sender = tokio::spawn(async move { near_out.write_all(&[1; 600 << 10]).await });
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            assert_eq!(far.try_write(&[7; 60_000]).unwrap(), 60_000);
            drop(far);
            let mut read = Vec::new();
            near_in.read_to_end(&mut read).await.unwrap();
            assert_eq!(read.len(), 60_000);
            drop(near_in);
            sender.abort();
            for relay in relays {
                relay.abort();
            }
        }
    }

    #[tokio::test]
    async fn more_than_sockets_take_goes_through_in_both_directions() {
        let (near, far, relays) = hosts().await;
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let exchange = |stream: UnixStream| {
            let sent = sent.clone();
            async move {
                let (mut read, mut write) = stream.into_split();
                let writing = async {
                    write.write_all(&sent).await.unwrap();
                    write.shutdown().await.unwrap();
                };
                let mut got = Vec::new();
                let reading = async { read.read_to_end(&mut got).await.unwrap() };
                tokio::join!(writing, reading);
                assert!(got == sent);
            }
        };
        tokio::join!(exchange(near), exchange(far));
        for relay in relays {
            relay.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn an_end_on_one_host_is_one_on_the_other() {
        let (near, mut far, relays) = hosts().await;
        drop(near);
        assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
        drop(far);
        for relay in relays {
            relay.await.unwrap().unwrap();
        }
    }
}
