//! The connections of a step daemon's that never block: to srun or the node above, and to the nodes below in the tree.

mod below;
mod client;
mod wire;

pub(crate) use below::Below;
pub(crate) use client::StepClient;

/// Bytes of a text of a user's in a line of the node's log.
const SHOWN_MAX: usize = 160;

/// A text that a user may have chosen, for a line of the node's log: short, and one line.
pub(crate) fn shown(text: &str) -> String {
    let text = text.escape_debug();
    match text.clone().nth(SHOWN_MAX) {
        None => text.to_string(),
        Some(_) => text.take(SHOWN_MAX).chain("...".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    /// Addresses of 60,000 bytes filled the disk of the spool, and a line end in one forged a line of the log.
    #[test]
    fn a_users_text_is_one_short_line_of_the_log() {
        assert_eq!(shown("unix:/a b"), "unix:/a b");
        let line = shown(&"x\n".repeat(60_000));
        assert!(line.len() < 200 && !line.contains('\n'), "{line}");
    }
}
