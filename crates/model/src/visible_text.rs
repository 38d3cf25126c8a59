//! Texts that users choose and that listings, logs and records of jobs print for others: without what makes lines of its own or
//! moves a terminal's cursor.

use std::borrow::Cow;
use std::fmt::{self, Debug, Write};

/// Whether a character does something to the line that it is printed in: controls of ASCII and of ISO 6429, and those that
/// turn the direction of text. So are two that are no characters at all and that no XML may have.
pub fn is_control(c: char) -> bool {
    let turns = matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// The text with a space for white space of other kinds, and `?` for other control characters. Never longer than it was.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|c| match c {
        '\t' | '\n' | '\r' => ' ',
        c if is_control(c) => '?',
        c => c,
    });
    Cow::Owned(shown.collect())
}

/// [`visible`] in place.
pub fn make_visible(text: &mut String) {
    if let Cow::Owned(shown) = visible(text) {
        *text = shown;
    }
}

/// The beginning of a text: at most `bytes_max` bytes, and whole characters.
pub fn beginning(text: &str, bytes_max: usize) -> &str {
    let most = bytes_max.min(text.len());
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or_default()]
}

/// The end of a text: at most `bytes_max` bytes, and whole characters.
pub fn ending(text: &str, bytes_max: usize) -> &str {
    let least = text.len().saturating_sub(bytes_max);
    let start = (least..=text.len()).find(|at| text.is_char_boundary(*at));
    &text[start.unwrap_or(text.len())..]
}

/// Debug form of a value for a line of a log: at most `bytes_max` bytes. No more is written, however large the value
/// is.
pub fn debug_beginning(value: &dyn Debug, bytes_max: usize) -> String {
    /// Takes no more than fits.
    struct Short(String, usize);

    impl Write for Short {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let left = self.1.saturating_sub(self.0.len());
            let fits = beginning(text, left);
            self.0.push_str(fits);
            match fits.len() == text.len() {
                true => Ok(()),
                false => Err(fmt::Error),
            }
        }
    }

    let mut short = Short(String::new(), bytes_max);
    match write!(short, "{value:?}") {
        Ok(()) => short.0,
        Err(fmt::Error) => short.0 + "...",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_makes_lines_or_moves_a_cursor() {
        let text = "a\nJobId=1\t\u{1b}[2J\u{9b}1A\u{202e}é\u{7f}";
        assert_eq!(visible(text), "a JobId=1 ?[2J?1A?é?");
        assert!(matches!(visible("plain é"), Cow::Borrowed(_)));
    }

    /// `{:.60?}` cuts no text: precision is each value's own, and texts and lists have none.
    #[test]
    fn what_a_large_value_looks_like_is_short() {
        let value = (vec!["ä".repeat(1 << 20); 4], "end");
        let shown = debug_beginning(&value, 60);
        assert!(shown.len() <= 63 && shown.starts_with("([\"ää") && shown.ends_with("..."));
        assert_eq!(debug_beginning(&Some("x\ny"), 60), r#"Some("x\ny")"#);
    }

    #[test]
    fn a_beginning_has_whole_characters() {
        assert_eq!(beginning("aäb", 2), "a");
        assert_eq!(beginning("aäb", 3), "aä");
        assert_eq!(beginning("aäb", 9), "aäb");
        assert_eq!(beginning("ä", 1), "");
        assert_eq!(ending("bäa", 2), "a");
        assert_eq!(ending("bäa", 3), "äa");
        assert_eq!(ending("bäa", 9), "bäa");
        assert_eq!(ending("ä", 1), "");
    }
}
