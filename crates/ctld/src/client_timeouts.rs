//! Time limits of clients.

use std::time::Duration;

/// Times after which a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// Until the first request.
    pub first_request: Duration,
    /// From the first byte of a request to its last. Clients write it at once.
    pub request: Duration,
    /// Between requests, if the client holds nothing and waits for nothing.
    pub idle: Duration,
    /// While an answer waits for the client to read it.
    pub answer: Duration,
}

impl Default for ClientTimeouts {
    fn default() -> ClientTimeouts {
        ClientTimeouts {
            first_request: Duration::from_secs(30),
            request: Duration::from_secs(30),
            idle: Duration::from_secs(30 * 60),
            answer: Duration::from_secs(30),
        }
    }
}

impl ClientTimeouts {
    /// Interval of looks at a connection.
    pub(crate) fn look(&self) -> Duration {
        self.first_request.min(self.request).min(self.idle) / 4
    }
}
