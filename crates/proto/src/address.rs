//! Where an agent or a step daemon listens: at a Unix socket of its host, and for other hosts at its node's port, by which the
//! node's relay leads to that socket.

use std::fmt;

/// An address. It is text wherever it is sent or stored: `unix:PATH`, or `net:PLACE;HOST;PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The path of the socket on its host.
    pub path: String,
    /// For other hosts; absent where all are one host.
    pub network: Option<NetworkPlace>,
}

/// Address of a socket of another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPlace {
    /// The node's relay: `host:port`, or `[address]:port`.
    pub place: String,
    /// The contents of the host's file [`HOST_FILE`] beside the socket: a process that reads the same there is on that host.
    pub host: String,
}

/// The file beside an agent's socket by which a process knows that it is on the agent's host.
pub const HOST_FILE: &str = "host";

impl Address {
    /// Reads one; none if the text is no address.
    pub fn parse(text: &str) -> Option<Address> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Some(Address {
                path: path.to_owned(),
                network: None,
            });
        }
        let mut parts = text.strip_prefix("net:")?.splitn(3, ';');
        let (place, host, path) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Address {
            path: path.to_owned(),
            network: Some(NetworkPlace {
                place: place.to_owned(),
                host: host.to_owned(),
            }),
        })
    }

    /// The address of another socket on the same host.
    #[must_use]
    pub fn beside(&self, path: &str) -> Address {
        Address {
            path: path.to_owned(),
            network: self.network.clone(),
        }
    }

    /// Where another host connects to; none if this host's socket is the one that is meant, or the only way.
    pub fn remote_place(&self) -> Option<&NetworkPlace> {
        self.network
            .as_ref()
            .filter(|place| !place.is_here(&self.path))
    }
}

impl NetworkPlace {
    /// Whether the host is this one: the file beside the socket says the same here.
    fn is_here(&self, path: &str) -> bool {
        let file = std::path::Path::new(path).with_file_name(HOST_FILE);
        let said = std::fs::read_to_string(file);
        said.is_ok_and(|said| !self.host.is_empty() && said.trim_end() == self.host)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.network {
            None => write!(f, "unix:{}", self.path),
            Some(NetworkPlace { place, host }) => write!(f, "net:{place};{host};{}", self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for text in [
            "unix:/run/a;b",
            "net:n1:6818;0a1b;/run/a;b",
            "net:[fd00::1]:6818;x;/s",
        ] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "/run/a", "net:n1:6818;0a1b", "tcp:n1:1"] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_host_is_known_by_its_file() {
        let dir = std::env::temp_dir().join(format!("muster-address-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(HOST_FILE), "0a1b\n").unwrap();
        let address = |host: &str| {
            let text = format!("net:n1:6818;{host};{}/socket", dir.display());
            Address::parse(&text).unwrap()
        };
        assert_eq!(address("0a1b").remote_place(), None);
        assert!(address("0a1c").remote_place().is_some());
        assert!(address("").remote_place().is_some());
        let beside = address("0a1c").beside("/other/socket");
        assert_eq!(beside.to_string(), "net:n1:6818;0a1c;/other/socket");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
