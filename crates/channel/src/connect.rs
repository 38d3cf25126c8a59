//! A channel for a program that blocks: it gets a Unix socket, as to a daemon on its own host, and two threads carry what goes
//! through it to the other host and back.

use crate::SECRET;
use crate::handshake::{Channel, HandshakeError, Initiator};
use crate::opening::Scheme;
use crate::records::{Sealer, Unsealer};
use nix::sys::signal::{SigSet, SigmaskHow};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that are carried at a time.
const CHUNK: usize = 32 << 10;

/// A channel that is there.
#[derive(Debug)]
pub struct EstablishedChannel {
    /// The local end: the other host reads the bytes that are written here, and the reverse.
    pub stream: UnixStream,
    /// The other side's answer, with which it proved its identity.
    pub answer: Vec<u8>,
}

/// Connects to the first of the addresses that takes it within `patience`.
///
/// # Errors
/// Why the last of the addresses did not take it, or that there is none.
pub fn dial(addresses: impl ToSocketAddrs, patience: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(tcp) => return Ok(tcp),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Makes a channel of a connection, for who carries it himself: both directions, and what the other side says. `patience` bounds
/// the exchange.
///
/// # Errors
/// See [`connect`].
pub fn open(
    tcp: &TcpStream,
    (scheme, credential, secret): (Scheme, &[u8], &[u8; SECRET]),
    payload: &[u8],
    patience: Duration,
) -> io::Result<(Channel, Vec<u8>)> {
    tcp.set_nodelay(true)?;
    let (mut client, opening) =
        Initiator::begin(scheme, credential, secret, payload).map_err(denied)?;
    let opened = exchange(tcp, &mut client, &opening, patience)?;
    tcp.set_read_timeout(None)?;
    Ok(opened)
}

/// Makes a channel of a connection. `patience` bounds the exchange.
///
/// # Errors
/// The connection broke, or the other side refuses or is not who can read the credential: then the error's kind is
/// `PermissionDenied` and its source a [`HandshakeError`].
pub fn connect(
    tcp: TcpStream,
    proof: (Scheme, &[u8], &[u8; SECRET]),
    payload: &[u8],
    patience: Duration,
) -> io::Result<EstablishedChannel> {
    let (channel, answer) = open(&tcp, proof, payload, patience)?;
    let (near, far) = UnixStream::pair()?;
    let Channel { sealer, opener } = channel;
    let (out, into) = (far.try_clone()?, far);
    let (tcp_out, tcp_in) = (tcp.try_clone()?, tcp);
    let name = || {
        thread::Builder::new()
            .name("channel".to_owned())
            .stack_size(128 << 10)
    };
    // A signal of the process is its main thread's, which blocks those that it reads from a descriptor. Threads inherit
    // the mask.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let spawned = name()
        .spawn(move || carry_out(out, tcp_out, sealer))
        .and_then(|_| name().spawn(move || carry_in(tcp_in, into, opener)));
    before.thread_set_mask()?;
    spawned?;
    Ok(EstablishedChannel {
        stream: near,
        answer,
    })
}

fn denied(error: HandshakeError) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, error)
}

fn exchange(
    mut tcp: &TcpStream,
    client: &mut Initiator,
    opening: &[u8],
    patience: Duration,
) -> io::Result<(Channel, Vec<u8>)> {
    let until = Instant::now() + patience;
    tcp.set_write_timeout(Some(patience))?;
    tcp.write_all(opening)?;
    tcp.set_write_timeout(None)?;
    let (mut answer, mut chunk) = (Vec::new(), [0; 2048]);
    loop {
        if let Some(begun) = client.finish(&answer).map_err(denied)? {
            tcp.set_write_timeout(Some(patience))?;
            tcp.write_all(&begun.confirmation)?;
            tcp.set_write_timeout(None)?;
            return Ok((begun.channel, begun.payload));
        }
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        tcp.set_read_timeout(Some(rest))?;
        match tcp.read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => answer.extend(&chunk[..count]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(e) => return Err(e),
        }
    }
}

/// Carries to the other host what the program writes, until it closes its end.
fn carry_out(mut from: UnixStream, mut to: TcpStream, mut sealer: Sealer) {
    let (mut chunk, mut sealed) = (vec![0; CHUNK], Vec::new());
    let mut carry = || -> io::Result<()> {
        loop {
            let count = read_some(&mut from, &mut chunk)?;
            sealed.clear();
            let done = match count {
                0 => sealer.seal_end(&mut sealed),
                _ => sealer.seal(&chunk[..count], &mut sealed),
            };
            done.map_err(io::Error::other)?;
            to.write_all(&sealed)?;
            if count == 0 {
                return to.shutdown(Shutdown::Write);
            }
        }
    };
    if carry().is_err() {
        // The program notices when it writes; what comes in ends by itself.
        let _ = from.shutdown(Shutdown::Read);
        let _ = to.shutdown(Shutdown::Write);
    }
}

/// Carries to the program what comes from the other host, until either end closes.
fn carry_in(mut from: TcpStream, mut to: UnixStream, mut opener: Unsealer) {
    let (mut chunk, mut plain) = (vec![0; CHUNK], Vec::new());
    let mut carry = || -> io::Result<()> {
        loop {
            // At first, what came with the answer.
            plain.clear();
            while opener.open_next(&mut plain).map_err(io::Error::other)? {}
            to.write_all(&plain)?;
            let count = read_some(&mut from, &mut chunk)?;
            if count == 0 {
                return Ok(());
            }
            opener.push(&chunk[..count]);
        }
    };
    // A cut is the same to the program as an end: whatever it waits for says itself whether it is whole.
    let _ = carry();
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

fn read_some(from: &mut impl Read, chunk: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(chunk) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::Responder;
    use crate::opening::Opening;
    use nix::sys::signal::Signal;
    use std::fs;
    use std::net::TcpListener;
    use std::path::Path;

    const KNOWN: [u8; SECRET] = [9; SECRET];
    const PATIENCE: Duration = Duration::from_secs(10);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// Takes one connection, and sends back what comes by it, until it ends.
    fn echo(mut tcp: TcpStream) {
        let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
        let opening = loop {
            let count = tcp.read(&mut chunk).unwrap();
            bytes.extend(&chunk[..count]);
            if let Some(opening) = Opening::decode(&bytes).unwrap() {
                break opening;
            }
        };
        let (server, _) = Responder::accept(&opening, &KNOWN).unwrap();
        let (answer, mut channel) = server.answer(b"welcome").unwrap();
        tcp.write_all(&answer).unwrap();
        loop {
            let count = tcp.read(&mut chunk).unwrap();
            if channel.confirm(&chunk[..count]).unwrap() {
                break;
            }
        }
        let mut channel = channel.into_channel();
        loop {
            // Records may have come with the confirmation.
            let (mut plain, mut sealed) = (Vec::new(), Vec::new());
            while channel.opener.open_next(&mut plain).unwrap() {}
            channel.sealer.seal(&plain, &mut sealed).unwrap();
            tcp.write_all(&sealed).unwrap();
            if channel.opener.has_ended() {
                return;
            }
            let count = tcp.read(&mut chunk).unwrap();
            assert!(count > 0, "cut off");
            channel.opener.push(&chunk[..count]);
        }
    }

    #[test]
    fn a_socket_leads_to_the_other_side_and_back() {
        let (near, far) = pair();
        let there = thread::spawn(move || echo(far));
        let proof = (Scheme::Munge, &b"MUNGE:x:"[..], &KNOWN);
        let connected = connect(near, proof, b"hello", PATIENCE).unwrap();
        assert_eq!(connected.answer, b"welcome");
        let sent: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let mut writer = connected.stream.try_clone().unwrap();
        let bytes = sent.clone();
        let writing = thread::spawn(move || {
            writer.write_all(&bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        (&connected.stream).read_to_end(&mut got).unwrap();
        assert!(got == sent);
        writing.join().unwrap();
        there.join().unwrap();
    }

    /// srun blocks the signals that it reads from a descriptor once its step runs: on a login host each of them, SIGINT
    /// included, came to a thread of its channel and ended it.
    #[test]
    fn no_signal_comes_to_a_thread_of_a_channel() {
        let own = SigSet::thread_get_mask().unwrap();
        let (near, far) = pair();
        let there = thread::spawn(move || echo(far));
        let proof = (Scheme::Munge, &b"MUNGE:x:"[..], &KNOWN);
        let connected = connect(near, proof, b"hello", PATIENCE).unwrap();
        assert_eq!(SigSet::thread_get_mask().unwrap(), own);
        let blocked = |task: &Path| {
            let status = fs::read_to_string(task.join("status")).ok()?;
            let of_channel = status.starts_with("Name:\tchannel\n");
            let mask = status.lines().find_map(|l| l.strip_prefix("SigBlk:\t"))?;
            Some(u64::from_str_radix(mask, 16).unwrap()).filter(|_| of_channel)
        };
        // Threads have their names once they run.
        let until = Instant::now() + PATIENCE;
        let masks = loop {
            let tasks = fs::read_dir("/proc/self/task").unwrap();
            let masks: Vec<u64> = tasks
                .filter_map(|task| blocked(&task.unwrap().path()))
                .collect();
            if masks.len() >= 2 {
                break masks;
            }
            assert!(Instant::now() < until, "{masks:?}");
            thread::yield_now();
        };
        for signal in [Signal::SIGINT, Signal::SIGUSR1, Signal::SIGWINCH] {
            let bit = 1 << (signal as i32 - 1);
            assert!(masks.iter().all(|mask| mask & bit != 0), "{signal}");
        }
        connected.stream.shutdown(Shutdown::Write).unwrap();
        (&connected.stream).read_to_end(&mut Vec::new()).unwrap();
        there.join().unwrap();
    }

    #[test]
    fn why_there_is_no_channel_is_said() {
        let proof = (Scheme::Munge, &b"MUNGE:x:"[..], &KNOWN);
        let (near, mut far) = pair();
        far.write_all(&Responder::refusal("too old")).unwrap();
        let refused = connect(near, proof, b"", PATIENCE).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(refused.to_string(), "too old");
        let (near, far) = pair();
        drop(far);
        let closed = connect(near, proof, b"", PATIENCE).unwrap_err();
        assert_ne!(closed.kind(), io::ErrorKind::PermissionDenied);
        let (near, _far) = pair();
        let silent = connect(near, proof, b"", Duration::from_millis(20)).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
    }
}
