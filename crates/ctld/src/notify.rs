//! sd_notify(3): tells the service manager that started a daemon that it is ready, lives, or stops. One datagram
//! each; without a service manager nothing is sent.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Where the service manager listens.
#[derive(Debug, Default)]
pub struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The interval of its watchdog, and when it was notified last.
    watchdog: Option<(Duration, Mutex<Instant>)>,
}

impl Notify {
    /// Reads the environment (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`).
    pub fn from_environment() -> Notify {
        let text = |name: &str| std::env::var(name).ok();
        let Some(address) = text("NOTIFY_SOCKET").as_deref().and_then(address) else {
            return Notify::default();
        };
        let ours = |pid: String| pid == std::process::id().to_string();
        let usec = text("WATCHDOG_USEC").filter(|_| text("WATCHDOG_PID").is_none_or(ours));
        Notify::to(address, usec.and_then(|usec| usec.parse().ok()))
    }

    fn to(address: SocketAddr, watchdog_usec: Option<u64>) -> Notify {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            // A daemon never waits for the service manager.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Notify {
            socket: socket.ok().map(|socket| (socket, address)),
            watchdog: watchdog_usec.map(|usec| {
                let often = Duration::from_micros(usec / 3);
                (often, Mutex::new(Instant::now()))
            }),
        }
    }

    /// Sends a state.
    pub fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.socket {
            let _ = socket.send_to_addr(state.as_bytes(), address);
        }
    }

    /// All threads that count are well.
    pub(crate) fn alive(&self) {
        let Some((often, last)) = &self.watchdog else {
            return;
        };
        let mut last = last.lock().unwrap_or_else(|e| e.into_inner());
        if last.elapsed() >= *often {
            *last = Instant::now();
            self.send("WATCHDOG=1");
        }
    }
}

fn address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok(),
        None if text.starts_with('/') => SocketAddr::from_pathname(text).ok(),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_gets_one_datagram_a_state() {
        let name = format!("muster-notify-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let notify = Notify::to(super::address(&format!("@{name}")).unwrap(), Some(0));
        notify.send("READY=1");
        notify.alive();
        let mut bytes = [0; 64];
        for wanted in ["READY=1", "WATCHDOG=1"] {
            let count = manager.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..count], wanted.as_bytes());
        }
    }
}
