//! A byte stream by which an unprivileged process sends to a process of root's: a TCP connection
//! within the host.
//!
//! Unlike a Unix socket it carries no descriptors, which root would have to close. The two ends
//! also share no kernel lock that a writer can hold: with a pipe or a file the writer holds one for
//! as long as a write takes, and a write from a mapped file of a user's file system (FUSE) takes as
//! long as the user likes. The reader would wait for that lock in the kernel.

use crate::os_error;
use crate::sys;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, connect, listen, setsockopt,
    socket, sockopt,
};
use nix::unistd::geteuid;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

/// Length of the accept queue. It holds one connection, unless another process finds the port in
/// that moment.
const WAITING_MAX: i32 = 128;
/// Timeout for packets within the host, milliseconds.
const ACCEPT_MAX_MS: u16 = 1000;
/// Privileged ports that programs use when they need any such port (rresvport(3), mount.nfs).
const PORTS: Range<u16> = 665..1024;
/// Number of unread bytes after which the writer waits.
const BYTES: usize = 256 << 10;

/// Both ends, which block and are closed at the next exec.
#[derive(Debug)]
pub(crate) struct OneWayLink {
    pub(crate) reader: OwnedFd,
    pub(crate) writer: OwnedFd,
}

impl OneWayLink {
    /// Opens a link.
    ///
    /// # Errors
    /// There is no loopback interface, or no descriptor is left.
    pub(crate) fn open() -> io::Result<OneWayLink> {
        OneWayLink::connect().map_err(|e| {
            let subject = "no connection within this host (is its loopback interface up?)";
            os_error::named(subject, e)
        })
    }

    fn connect() -> io::Result<OneWayLink> {
        let listener = bind_socket()?;
        listen(&listener, Backlog::new(WAITING_MAX)?)?;
        let listener = TcpListener::from(listener);
        listener.set_nonblocking(true)?;
        let writer = bind_socket()?;
        let place = SockaddrIn::from(place_of(listener.local_addr()?)?);
        // Within a host this waits for no process unless there is no room; then it waits as long as
        // a lost packet takes.
        connect(writer.as_raw_fd(), &place)?;
        let writer = TcpStream::from(writer);
        let reader = accept(&listener, writer.local_addr()?)?;
        reader.set_nonblocking(false)?;
        writer.set_nodelay(true)?;
        setsockopt(&writer, sockopt::SndBuf, &BYTES)?;
        Ok(OneWayLink {
            reader: reader.into(),
            writer: writer.into(),
        })
    }
}

/// A socket of this host's loopback address. Root's socket has a privileged port, because users can
/// take all others.
fn bind_socket() -> io::Result<OwnedFd> {
    let own = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    if geteuid().is_root() {
        let mut random = [0; 2];
        sys::fill_randomly(&mut random)?;
        let (count, first) = (PORTS.end - PORTS.start, u16::from_ne_bytes(random));
        for at in 0..count {
            let port = PORTS.start + (first % count + at) % count;
            match bind(own.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, port)) {
                Ok(()) => {
                    // A service that starts later may also use the port.
                    setsockopt(&own, sockopt::ReuseAddr, &true)?;
                    return Ok(own);
                }
                Err(Errno::EADDRINUSE) => {}
                // The process lacks some of root's rights.
                Err(Errno::EACCES) => break,
                Err(e) => return Err(e.into()),
            }
        }
    }
    bind(own.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0))?;
    Ok(own)
}

fn place_of(address: SocketAddr) -> io::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(place) => Ok(place),
        SocketAddr::V6(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

/// Accepts the connection from that address. Other processes of the host may have connected too.
fn accept(listener: &TcpListener, from: SocketAddr) -> io::Result<TcpStream> {
    loop {
        match listener.accept() {
            Ok((accepted, peer)) if peer == from => return Ok(accepted),
            Ok(_) => {}
            // The last packet of the TCP handshake may arrive after connect(2) has returned.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
                if poll(&mut fds, ACCEPT_MAX_MS)? == 0 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::stalled_memory::StalledMemory;
    use nix::sys::socket::{ControlMessage, MsgFlags, recv, sendmsg};
    use std::fs::File;
    use std::io::{IoSlice, Read as _, Write as _};
    use std::net::Ipv4Addr;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    #[test]
    fn what_is_written_comes_and_then_its_end() {
        let link = OneWayLink::open().unwrap();
        let mut writer = File::from(link.writer);
        let written = std::thread::spawn(move || writer.write_all(&[7; 3 << 20]));
        let mut read = Vec::new();
        File::from(link.reader).read_to_end(&mut read).unwrap();
        written.join().unwrap().unwrap();
        assert_eq!(read, [7; 3 << 20]);
    }

    #[test]
    fn roots_links_have_ports_that_users_cannot_take() {
        let link = OneWayLink::open().unwrap();
        let ends = [TcpStream::from(link.reader), TcpStream::from(link.writer)];
        for end in ends {
            let port = end.local_addr().unwrap().port();
            assert_eq!(PORTS.contains(&port), geteuid().is_root(), "{port}");
        }
    }

    #[test]
    fn no_descriptor_comes_by_it() {
        let link = OneWayLink::open().unwrap();
        let file = File::open("/dev/null").unwrap();
        let numbers = [file.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&numbers)];
        let text = [IoSlice::new(b"x")];
        let flags = MsgFlags::MSG_NOSIGNAL;
        let sent = sendmsg::<()>(link.writer.as_raw_fd(), &text, &rights, flags, None);
        // The kernel refuses the descriptor, or sends the text without it.
        assert!(matches!(sent, Err(Errno::EINVAL) | Ok(1)), "{sent:?}");
        if sent.is_ok() {
            let mut received = std::collections::VecDeque::new();
            crate::descriptors::receive(&link.reader, &mut [0; 8], &mut received).unwrap();
            assert!(received.is_empty());
        }
    }

    /// A reader of a pipe waits in the kernel for a writer that blocks.
    #[test]
    fn a_writer_that_waits_for_its_memory_holds_no_reader() {
        let link = OneWayLink::open().unwrap();
        let (memory, writer) = (Arc::new(StalledMemory::new().unwrap()), link.writer);
        let stalled = Arc::clone(&memory);
        let written = std::thread::spawn(move || stalled.write_to(writer.as_raw_fd()));
        memory.until_read().unwrap();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let read = recv(link.reader.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT);
            sender.send((read, link.reader)).unwrap();
        });
        let (read, reader) = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(read, Err(Errno::EAGAIN));
        memory.release().unwrap();
        assert_eq!(written.join().unwrap(), 4096);
        assert_eq!(recv(reader.as_raw_fd(), &mut [1], MsgFlags::empty()), Ok(1));
    }

    #[test]
    fn a_connection_of_another_process_is_not_taken() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let place = listener.local_addr().unwrap();
        let _others = [TcpStream::connect(place), TcpStream::connect(place)];
        let own = TcpStream::connect(place).unwrap();
        let accepted = accept(&listener, own.local_addr().unwrap()).unwrap();
        assert_eq!(accepted.peer_addr().unwrap(), own.local_addr().unwrap());
    }
}
