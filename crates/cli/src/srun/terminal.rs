//! srun's own terminal for `--pty`: its size, and raw mode that is undone however srun ends.

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use std::io::IsTerminal as _;

/// Rows and columns, if standard input or output is a terminal.
#[allow(unsafe_code)]
pub(crate) fn size() -> Option<(u16, u16)> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    for fd in [0, 1] {
        // SAFETY: TIOCGWINSZ writes one winsize, which lives until after the call.
        let done = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) };
        if done == 0 && size.ws_row > 0 && size.ws_col > 0 {
            return Some((size.ws_row, size.ws_col));
        }
    }
    None
}

/// The terminal in raw mode, until this is dropped.
pub(crate) struct Raw(Termios);

impl Raw {
    /// Switches, if standard input is a terminal.
    pub(crate) fn enter() -> Option<Raw> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&stdin, SetArg::TCSADRAIN, &raw).ok()?;
        Some(Raw(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), SetArg::TCSADRAIN, &self.0);
    }
}
