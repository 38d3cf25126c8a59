//! Lines of the log about connections that were refused. Anybody may connect as often as he likes: the log names some, and counts
//! the others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Lines in an interval.
const LINES_MAX: u32 = 20;
/// The interval.
const EVERY: Duration = Duration::from_secs(10);

/// Recently logged refusals.
#[derive(Debug, Default)]
pub struct Refusals {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Refusals {
    /// The line to be logged about a refusal.
    pub fn line(&mut self, from: SocketAddr, why: &str, now: Instant) -> Option<String> {
        let begins = self.since.is_none_or(|since| now - since >= EVERY);
        let before = match begins {
            true => {
                self.since = Some(now);
                self.lines = 0;
                std::mem::take(&mut self.left_out)
            }
            false => 0,
        };
        if self.lines >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        // Parts of it may be what the other side has sent.
        let why = why.escape_debug();
        Some(match before {
            0 => format!("connection from {from} refused: {why}"),
            n => format!(
                "connection from {from} refused: {why} ({n} refusals before it are not in the log)"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_counted() {
        let mut refusals = Refusals::default();
        let from: SocketAddr = "192.0.2.7:1".parse().unwrap();
        let start = Instant::now();
        let mut line = |after: Duration| refusals.line(from, "no\nline", start + after);
        let lines = (0..1000).filter_map(|_| line(Duration::ZERO)).count();
        assert_eq!(lines, 20);
        let next = line(EVERY).unwrap();
        assert!(next.contains("980 refusals"), "{next}");
        assert!(!next.contains('\n'));
    }
}
