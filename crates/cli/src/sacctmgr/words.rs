//! Words of a command line: names, `key=value`, `key+=value`, and the keys that an entity knows.

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// As it was written.
    pub(super) text: String,
    /// Text before the equal sign; nothing for a bare word.
    pub(super) key: Option<String>,
    /// The sign before the equal sign.
    pub(super) sign: Option<char>,
    /// Text after it, or the bare word; without quotes.
    pub(super) value: String,
}

impl Word {
    pub(super) fn new(text: &str) -> Word {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (Some(key), value),
            None => (None, text),
        };
        let sign = key.and_then(|key| key.chars().next_back().filter(|c| "+-".contains(*c)));
        let value = value.trim_matches(['"', '\'']).to_owned();
        // A sign may stand on either side of the equal sign; all items of a list have the same.
        let inner = value
            .chars()
            .next()
            .filter(|c| "+-".contains(*c) && key.is_some());
        Word {
            text: text.to_owned(),
            key: key.map(|key| key.strip_suffix(['+', '-']).unwrap_or(key).to_owned()),
            sign: sign.or(inner),
            value,
        }
    }

    /// The known key of the word: the first of which it is a beginning of at least its least number of letters.
    pub(super) fn key_of<K: Copy>(&self, known: &[(&'static str, usize, K)]) -> Option<K> {
        let key = self.key.as_deref()?;
        key_named(key, known)
    }

    /// Whether it is this bare word, by at least `least` letters.
    pub(super) fn is(&self, name: &str, least: usize) -> bool {
        let word = self.key.as_deref().unwrap_or(&self.value);
        word.len() >= least && super::begins(name, word)
    }

    /// The items of its list.
    pub(super) fn list(&self) -> Vec<String> {
        list(&self.value)
    }
}

/// The key that a name is a beginning of.
pub(super) fn key_named<K: Copy>(name: &str, known: &[(&'static str, usize, K)]) -> Option<K> {
    let fits =
        |(own, least, _): &&(&str, usize, K)| name.len() >= *least && super::begins(own, name);
    known.iter().find(fits).map(|(.., key)| *key)
}

/// Items between commas, each once; signs and quotes in front of them are taken off.
pub(super) fn list(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for word in text.split(',') {
        let word = word.trim_matches(['"', '\'']);
        if !word.is_empty() && !out.iter().any(|known| known == word) {
            out.push(word.to_owned());
        }
    }
    out
}

/// Splits a line of the prompt or of a file into words, as a shell would: quotes keep blanks together.
pub(super) fn split_line(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut begun) = (String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => (quote, begun) = (Some(c), true),
            (None, c) if c.is_whitespace() => {
                if begun || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            (_, c) => word.push(c),
        }
    }
    if begun || !word.is_empty() {
        words.push(word);
    }
    words
}
