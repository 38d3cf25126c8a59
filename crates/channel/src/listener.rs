//! The port at which a daemon serves other hosts.

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn6, bind, listen as start_listening,
    setsockopt, socket, sockopt,
};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6, TcpListener};
use std::os::fd::AsRawFd as _;

/// Connections that nobody has accepted yet, at most: as many as std has.
const BACKLOG: i32 = 128;

/// Listens on a port of this host, for IPv6 and IPv4, or for IPv6 alone (`DisableIPv4`).
///
/// # Errors
/// The port is taken, or this host has no IPv6 where it is to serve nothing else.
pub fn listen_everywhere(port: u16, ipv6_only: bool) -> io::Result<TcpListener> {
    if ipv6_only {
        return listen_by_ipv6(port);
    }
    // The socket takes both address families, if both exist.
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Err(e) if e.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        bound => bound,
    }
}

fn listen_by_ipv6(port: u16) -> io::Result<TcpListener> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet6, SockType::Stream, flags, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    let every = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
    bind(socket.as_raw_fd(), &SockaddrIn6::from(every))?;
    start_listening(&socket, Backlog::new(BACKLOG)?)?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn ipv4_is_served_unless_it_is_disabled() {
        for ipv6_only in [false, true] {
            let listener = match listen_everywhere(0, ipv6_only) {
                Ok(listener) => listener,
                // A host without IPv6.
                Err(e) if ipv6_only => return eprintln!("this host has no IPv6: {e}"),
                Err(e) => panic!("{e}"),
            };
            let port = listener.local_addr().unwrap().port();
            let by_ipv4 = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
            assert_eq!(by_ipv4.is_ok(), !ipv6_only);
        }
    }
}
