//! Texts that others wrote, made harmless for a terminal: names of jobs, reasons, what jobs print.

/// Replacement of a character that is not shown.
const INSTEAD: char = '\u{fffd}';

/// Whether a terminal, or who reads it, could be misled by a character: it commands, or changes the order of others.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// One line without such characters.
pub(super) fn line(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => ' ',
            c if is_harmful(c) => INSTEAD,
            c => c,
        })
        .collect()
}

/// Several lines, cleaned. What a line has before a carriage return is overwritten on a terminal, and left out here.
pub(super) fn clean_lines(text: &str) -> Vec<String> {
    let shown = |text: &str| {
        let text = text.trim_end_matches('\r');
        line(text.rsplit('\r').next().unwrap_or(text))
    };
    text.lines().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_commands_a_terminal_is_left() {
        let hostile = "a\u{1b}[2J\u{9b}31m\u{7f}\u{7}\n\u{202e}b\u{200b}";
        let clean = line(hostile);
        assert!(!clean.chars().any(is_harmful), "{clean:?}");
        assert_eq!(
            clean.chars().filter(|c| *c != INSTEAD).collect::<String>(),
            "a[2J31mb"
        );
        assert_eq!(line("grün 日本 ok\t1"), "grün 日本 ok 1");
    }

    #[test]
    fn progress_bars_are_shown_as_they_stand() {
        assert_eq!(
            clean_lines("10 %\r20 %\r\nnext\x1b[0m\n"),
            ["20 %", "next\u{fffd}[0m"]
        );
    }
}
