//! The options of a job about mail.

use crate::validate::Validate;
use crate::visible_text::ending;
use minicbor::{Decode, Encode};

/// Lines of a script's output that a mail has at most.
pub const MAIL_LINES_MAX: u16 = 100;
/// Bytes of these lines.
pub const MAIL_LINES_BYTES_MAX: usize = 8 << 10;

/// The events that a job's mail reports, and its address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct MailOptions {
    /// `--mail-type` as text: names with commas between; empty if it was not given.
    #[n(0)]
    pub types: String,
    /// `--mail-user`; empty for the job's owner.
    #[n(1)]
    pub user: String,
    /// `--mail-lines`: a mail of an end has so many of the last lines of the script's standard error; absent for none.
    #[n(2)]
    pub lines: Option<u16>,
}

impl MailOptions {
    /// The options of these texts; `None` if both are empty.
    #[must_use]
    pub fn of_texts(types: String, user: String) -> Option<Self> {
        let all = Self {
            types,
            user,
            lines: None,
        };
        all.if_any()
    }

    /// The options with a change, which may leave none. Lines go with the types.
    #[must_use]
    pub fn changed(options: Option<Self>, change: impl FnOnce(&mut Self)) -> Option<Self> {
        let mut all = options.unwrap_or_default();
        change(&mut all);
        if all.types.is_empty() {
            all.lines = None;
        }
        all.if_any()
    }

    fn if_any(self) -> Option<Self> {
        (!self.types.is_empty() || !self.user.is_empty()).then_some(self)
    }
}

/// The last lines of a text, as many as a mail may have. Of a line that is too long there is its end.
#[must_use]
pub fn last_lines(text: &str, lines: u16) -> &str {
    let text = ending(text, MAIL_LINES_BYTES_MAX);
    let lines = usize::from(lines.min(MAIL_LINES_MAX));
    if lines == 0 {
        return "";
    }
    let body = text.strip_suffix('\n').unwrap_or(text);
    let before = body.rmatch_indices('\n').nth(lines - 1);
    before.map_or(text, |(at, _)| &text[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_text() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(last_lines("a\nb\nc", 2), "b\nc");
        assert_eq!(last_lines("a\n\n", 1), "\n");
        assert_eq!(last_lines("a\nb\n", 9), "a\nb\n");
        assert_eq!(last_lines("a\n", 0), "");
        assert_eq!(last_lines("", 3), "");
        let many = "x\n".repeat(1000);
        assert_eq!(
            last_lines(&many, u16::MAX).lines().count(),
            usize::from(MAIL_LINES_MAX)
        );
        let long = "ä".repeat(MAIL_LINES_BYTES_MAX) + "z";
        let kept = last_lines(&long, 5);
        assert!(kept.ends_with("äz") && kept.len() < MAIL_LINES_BYTES_MAX);
    }

    #[test]
    fn lines_go_with_the_types() {
        let given = MailOptions {
            types: "END".to_owned(),
            user: "ann".to_owned(),
            lines: Some(3),
        };
        let other = MailOptions::changed(Some(given.clone()), |mail| mail.user.clear());
        assert_eq!(other.and_then(|mail| mail.lines), Some(3));
        let without = MailOptions::changed(Some(given), |mail| mail.types.clear());
        assert_eq!(without.and_then(|mail| mail.lines), None);
        assert_eq!(MailOptions::changed(None, |_| {}), None);
    }
}
