//! Lines that a step daemon writes to the launcher's log, which is its standard error. A daemon
//! continues to write to the file with which it was started, even if that was renamed since, so the
//! log is bounded by a limit per daemon. Emulated nodes, which are one process, have the same limit
//! together.

use std::io::Write as _;
use std::sync::Mutex;

/// Maximum number of bytes per daemon.
const BYTES_MAX: usize = 16 << 10;
/// Characters of a line.
const LINE_MAX: usize = 512;

static LEFT: Mutex<Budget> = Mutex::new(Budget(BYTES_MAX));

/// Writes a line, or a part of it, unless this daemon has reached its limit.
pub(crate) fn line(text: &str) {
    let line = LEFT
        .lock()
        .ok()
        .and_then(|mut left| left.line(text))
        .unwrap_or_default();
    // A failure to write to the log cannot be reported.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Number of bytes that this process may still write.
#[cfg(test)]
pub(crate) fn bytes_left() -> usize {
    LEFT.lock().unwrap().0
}

/// Bytes that are left.
struct Budget(usize);

impl Budget {
    /// Formats one line. The last before the size limit says that logging stops.
    fn line(&mut self, text: &str) -> Option<String> {
        if self.0 == 0 {
            return None;
        }
        let shown = text.chars().take(LINE_MAX);
        let mut line: String = shown
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        line.push('\n');
        match self.0.checked_sub(line.len()).filter(|left| *left > 0) {
            Some(left) => self.0 = left,
            None => {
                self.0 = 0;
                let pid = std::process::id();
                line = format!(
                    "step daemon {pid} has written {BYTES_MAX} bytes: further lines are dropped\n"
                );
            }
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_writes_no_more_than_its_part_of_the_log() {
        let mut left = Budget(BYTES_MAX);
        let text = "x\nmuster-shim: agent 1.0 of node FORGED attached\n".repeat(1000);
        let lines: Vec<String> = std::iter::from_fn(|| left.line(&text)).collect();
        assert!(
            lines
                .iter()
                .all(|line| line.find('\n') == Some(line.len() - 1))
        );
        assert!(lines.concat().len() <= BYTES_MAX + 100);
        assert!(lines.last().unwrap().contains("are dropped"));
        assert_eq!(left.line("another"), None);
    }
}
