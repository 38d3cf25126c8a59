//! Has what tasks say to the library acknowledged at once. libpmix's clients leave Nagle's algorithm on and say farewell
//! in two messages, of which the first has no answer: the second waits until the kernel here acknowledges the first,
//! which it delays by 40 ms in the hope of an answer to send along. So each task's `MPI_Finalize` takes that long, under
//! any launcher. The library owns the connections; here they are only watched, and the kernel told not to wait.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{SockaddrStorage, getpeername, getsockname};
use std::os::fd::{AsRawFd, RawFd};

/// Connections of tasks to the library in this process.
#[derive(Debug)]
pub(crate) struct Prompt {
    epoll: Option<Epoll>,
}

impl Prompt {
    pub(crate) fn new() -> Prompt {
        Prompt {
            // Without it things work, only slower.
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).ok(),
        }
    }

    /// To poll.
    pub(crate) fn fd(&self) -> RawFd {
        self.epoll.as_ref().map_or(-1, |e| e.0.as_raw_fd())
    }

    /// Finds the connections that there are. One that is closed leaves by itself.
    pub(crate) fn look(&self) {
        let Some(epoll) = &self.epoll else {
            return;
        };
        let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
            return;
        };
        let numbers = entries
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.parse().ok());
        for fd in numbers.filter(|fd| is_local_connection(*fd)) {
            // Being writable is what it is told for, too: when the library has read what came before the kernel looks
            // whether there is something to tell, that is still so.
            let event = EpollEvent::new(
                EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET,
                u64::try_from(fd).unwrap_or(0),
            );
            // One that is known already is refused.
            let _ = crate::sys::watch(epoll, fd, event);
        }
    }

    /// Something has come from some of them.
    pub(crate) fn serve(&self) {
        let Some(epoll) = &self.epoll else {
            return;
        };
        let mut events = [EpollEvent::empty(); 64];
        let count = epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            crate::sys::acknowledge_now(RawFd::try_from(event.data()).unwrap_or(-1));
        }
    }
}

/// Whether a descriptor is a TCP connection within this machine.
fn is_local_connection(fd: RawFd) -> bool {
    let ip = |address: SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|a| a.ip().into());
        v4.or_else(|| {
            address
                .as_sockaddr_in6()
                .map(|a| std::net::IpAddr::from(a.ip()))
        })
    };
    let own = getsockname(fd).ok().and_then(ip);
    own.is_some() && own == getpeername(fd).ok().and_then(ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// The library's part: reads what comes, answers only what ends in `?`.
    fn answer(mut stream: TcpStream) {
        let mut bytes = [0; 64];
        while let Ok(n) = stream.read(&mut bytes) {
            if n == 0 || (bytes[..n].ends_with(b"?") && stream.write_all(b"!").is_err()) {
                return;
            }
        }
    }

    #[test]
    fn a_message_after_one_without_an_answer_does_not_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        std::thread::spawn(move || answer(far));
        let ask = |client: &mut TcpStream, text: &str| {
            client.write_all(text.as_bytes()).unwrap();
            client.read_exact(&mut [0]).unwrap();
        };
        // The kernel begins to delay once both sides have talked for a while.
        (0..40).for_each(|_| ask(&mut client, "?"));
        let prompt = Prompt::new();
        prompt.look();
        std::thread::scope(|scope| {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    let entry = libc::pollfd {
                        fd: prompt.fd(),
                        events: libc::POLLIN,
                        revents: 0,
                    };
                    crate::host::poll(&mut [entry], 10).unwrap();
                    prompt.serve();
                }
            });
            // The best of several: other load may delay anything.
            let best = (0..10).map(|_| {
                let started = Instant::now();
                client.write_all(b".").unwrap();
                ask(&mut client, "?");
                started.elapsed()
            });
            let best = best.min().unwrap();
            drop(stop);
            assert!(best < Duration::from_millis(35), "{best:?}");
        });
    }
}
