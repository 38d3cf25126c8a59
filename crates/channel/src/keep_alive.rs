//! Detection of another host that is gone without a word: nothing comes back to probes, or to sent data.

use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Seconds between probes, and how many there are, where only the idle time is given: as in Linux.
const INTERVAL_S: u32 = 75;
const PROBES: u32 = 9;

/// When a connection is probed, and given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// Seconds after which an idle connection is probed; as the kernel has it, if absent.
    pub idle_s: Option<u32>,
    /// Seconds between probes, likewise.
    pub interval_s: Option<u32>,
    /// Probes without answer after which it is given up, likewise.
    pub probes: Option<u32>,
}

impl KeepAlive {
    /// Between a node's agent and the controller: each is missed within a minute.
    pub const AGENT: KeepAlive = KeepAlive {
        idle_s: Some(15),
        interval_s: Some(5),
        probes: Some(6),
    };

    /// Has a connection probed; those that a listening socket accepts from then on, too.
    ///
    /// # Errors
    /// The socket takes no such options.
    pub fn set_on(self, socket: &impl AsFd) -> io::Result<()> {
        setsockopt(socket, sockopt::KeepAlive, &true)?;
        if let Some(idle_s) = self.idle_s {
            setsockopt(socket, sockopt::TcpKeepIdle, &idle_s)?;
        }
        if let Some(interval_s) = self.interval_s {
            setsockopt(socket, sockopt::TcpKeepInterval, &interval_s)?;
        }
        if let Some(probes) = self.probes {
            setsockopt(socket, sockopt::TcpKeepCount, &probes)?;
        }
        match self.patience() {
            // A connection with unacknowledged data is not probed.
            Some(patience) => {
                let ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
                setsockopt(socket, sockopt::TcpUserTimeout, &ms)?;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// How long the other host may be silent, if that is given.
    fn patience(self) -> Option<Duration> {
        let interval_s = self.interval_s.unwrap_or(INTERVAL_S);
        let probing_s = interval_s.saturating_mul(self.probes.unwrap_or(PROBES));
        let idle_s = self.idle_s?;
        Some(Duration::from_secs(idle_s.saturating_add(probing_s).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::getsockopt;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_of_a_listener_are_probed_as_it_says() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        KeepAlive::default().set_on(&listener).unwrap();
        assert!(getsockopt(&listener, sockopt::KeepAlive).unwrap());
        assert_eq!(getsockopt(&listener, sockopt::TcpUserTimeout).unwrap(), 0);
        KeepAlive::AGENT.set_on(&listener).unwrap();
        let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        assert!(getsockopt(&far, sockopt::KeepAlive).unwrap());
        assert_eq!(getsockopt(&far, sockopt::TcpKeepIdle).unwrap(), 15);
        assert_eq!(getsockopt(&far, sockopt::TcpKeepInterval).unwrap(), 5);
        assert_eq!(getsockopt(&far, sockopt::TcpKeepCount).unwrap(), 6);
        assert_eq!(getsockopt(&far, sockopt::TcpUserTimeout).unwrap(), 45_000);
    }
}
