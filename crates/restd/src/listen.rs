//! Where requests come in: addresses of the command line, sockets that systemd has made, or the one connection that is standard
//! input (inetd).

use muster_closer::refuse_descriptors;
use muster_trust::sack::open_to_all;
use nix::sys::socket::{AddressFamily, SockaddrLike as _, SockaddrStorage, getsockname};
use std::fs;
use std::io::{self, IsTerminal as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// `HOST:PORT`, or `:PORT` for all addresses of this host.
    Tcp(String, u16),
    /// `unix:PATH`.
    Unix(PathBuf),
}

/// The error of a text that is no address.
#[derive(Debug, thiserror::Error)]
#[error("invalid address '{0}': give HOST:PORT, :PORT or unix:PATH")]
pub struct AddressError(String);

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<ListenAddress, AddressError> {
        let wrong = || AddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            // unix:///path is unix:/path.
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path.starts_with('/') {
                true => Ok(ListenAddress::Unix(path.into())),
                false => Err(wrong()),
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(wrong)?;
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        match host.contains(['/', '[', ']']) {
            true => Err(wrong()),
            false => Ok(ListenAddress::Tcp(host.to_owned(), port)),
        }
    }
}

/// Sockets that are open.
#[derive(Debug, Default)]
pub struct Listeners {
    pub(crate) tcp: Vec<TcpListener>,
    pub(crate) unix: Vec<UnixListener>,
    /// The one connection, if there is only one: the server ends with it.
    pub(crate) connection: Option<Connection>,
}

/// A connection that was made by another.
#[derive(Debug)]
pub(crate) enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// Standard input and output, which are no socket.
    Stdio,
}

impl Listeners {
    /// Opens sockets.
    ///
    /// # Errors
    /// Names the address.
    pub fn open(addresses: &[ListenAddress]) -> anyhow::Result<Listeners> {
        use anyhow::Context as _;
        let mut all = Listeners::default();
        for address in addresses {
            match address {
                ListenAddress::Tcp(host, port) => {
                    all.tcp.push(
                        tcp(host, *port)
                            .with_context(|| format!("cannot listen on {host}:{port}"))?,
                    );
                }
                ListenAddress::Unix(path) => {
                    let shown = path.display();
                    all.unix.push(
                        unix(path).with_context(|| format!("cannot listen on unix:{shown}"))?,
                    );
                }
            }
        }
        Ok(all)
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, others: Listeners) -> Listeners {
        self.tcp.extend(others.tcp);
        self.unix.extend(others.unix);
        self.connection = self.connection.or(others.connection);
        self
    }

    /// The sockets that systemd has made (sd_listen_fds(3)), if it has.
    ///
    /// # Errors
    /// They are of another kind.
    pub fn given_by_systemd() -> io::Result<Option<Listeners>> {
        let mut given = listenfd::ListenFd::from_env();
        let mut all = Listeners::default();
        for at in 0..given.len() {
            match given.take_unix_listener(at) {
                Ok(Some(listener)) => {
                    let _ = refuse_descriptors(&listener);
                    all.unix.push(listener);
                }
                _ => all.tcp.extend(given.take_tcp_listener(at)?),
            }
        }
        let is_there = !all.tcp.is_empty() || !all.unix.is_empty();
        Ok(is_there.then_some(all))
    }

    /// The connection that is standard input: a socket, or, with standard output, a pipe, a file or a terminal.
    ///
    /// # Errors
    /// It cannot be taken over.
    pub fn standard_input() -> io::Result<Option<Listeners>> {
        let stdin = io::stdin();
        let Ok(name) = getsockname::<SockaddrStorage>(stdin.as_fd().as_raw_fd()) else {
            let kind = fs::metadata("/proc/self/fd/0").map(|found| found.file_type());
            let has_input =
                stdin.is_terminal() || kind.is_ok_and(|kind| kind.is_fifo() || kind.is_file());
            return Ok(has_input.then(|| Listeners {
                connection: Some(Connection::Stdio),
                ..Listeners::default()
            }));
        };
        let own = stdin.as_fd().try_clone_to_owned()?;
        let connection = match name.family() {
            Some(AddressFamily::Unix) => Connection::Unix(own.into()),
            _ => Connection::Tcp(own.into()),
        };
        Ok(Some(Listeners {
            connection: Some(connection),
            ..Listeners::default()
        }))
    }
}

fn tcp(host: &str, port: u16) -> io::Result<TcpListener> {
    if host.is_empty() {
        // Sockets of both families where this host has both.
        return TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
    }
    let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
    TcpListener::bind(addresses.as_slice())
}

/// Makes a socket that everyone may connect to; who does is found out for each connection. One that was left there goes away.
fn unix(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    // On older kernels they are closed where nobody waits.
    let _ = refuse_descriptors(&listener);
    open_to_all(path)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_mode_of_what_a_link_leads_to_stays() {
        let dir = std::env::temp_dir().join(format!("muster-restd-listen-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let [socket, file, link] = ["socket", "file", "link"].map(|name| dir.join(name));
        let _listener = unix(&socket).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&socket), 0o666);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(open_to_all(&link).is_err() && open_to_all(&file).is_err());
        assert_eq!(mode(&file), 0o600);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn addresses() {
        let read = |text: &str| text.parse::<ListenAddress>().ok();
        assert_eq!(
            read("localhost:6820"),
            Some(ListenAddress::Tcp("localhost".into(), 6820))
        );
        assert_eq!(read(":6820"), Some(ListenAddress::Tcp(String::new(), 6820)));
        assert_eq!(
            read("[::1]:6820"),
            Some(ListenAddress::Tcp("::1".into(), 6820))
        );
        assert_eq!(
            read("unix:/run/x"),
            Some(ListenAddress::Unix("/run/x".into()))
        );
        assert_eq!(
            read("unix:///run/x"),
            Some(ListenAddress::Unix("/run/x".into()))
        );
        for bad in [
            "",
            "nonsense",
            "host",
            "host:",
            "host:0",
            "host:99999",
            "unix:x",
            "http://h:1",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
