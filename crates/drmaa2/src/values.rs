//! Attributes of templates and records by the names of the C binding, as Rust has them and as files of sessions do. Nothing of C is
//! here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The value of an attribute that is set.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// A string.
    Text(String),
    /// A list of strings.
    Texts(Vec<String>),
    /// A dictionary.
    Pairs(Vec<TextPair>),
    /// Machines with slots.
    Machines(Vec<MachineSlots>),
    /// A number, a time, or a member of an enumeration.
    Number(i64),
    /// A number with a fraction.
    Real(f32),
    /// A boolean value that is true.
    True,
    /// A version.
    Version(VersionText),
}

/// An entry of a dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPair {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
}

/// Slots on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSlots {
    /// The machine.
    pub machine: String,
    /// Number of slots, if that is known.
    pub slots: Option<i64>,
}

/// A version as DRMAA has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionText {
    /// Up to the first dot.
    pub major: String,
    /// The rest.
    pub minor: String,
}

impl VersionText {
    /// Splits at the first dot: `6.1.0-18-amd64` into `6` and `1.0-18-amd64`.
    pub fn of(text: &str) -> VersionText {
        let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
        VersionText {
            major: major.to_owned(),
            minor: minor.to_owned(),
        }
    }
}

/// Where the implementation-specific attributes of a structure are among the others.
pub const EXTRAS: &str = "implementationSpecific";

/// Attributes by name; unset ones are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttributeMap(BTreeMap<String, AttributeValue>);

impl AttributeMap {
    /// The attribute's value.
    pub fn get(&self, name: &str) -> Option<&AttributeValue> {
        self.0.get(name)
    }

    /// Sets an attribute, or nothing.
    pub fn put(&mut self, name: &str, value: impl Into<Option<AttributeValue>>) {
        if let Some(value) = value.into() {
            self.0.insert(name.to_owned(), value);
        }
    }

    /// Sets a text; an empty one is none.
    pub fn put_text(&mut self, name: &str, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() {
            self.put(name, AttributeValue::Text(text));
        }
    }

    /// All that are set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &AttributeValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// A text that is set and not empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(AttributeValue::Text(text)) => Some(text.as_str()).filter(|text| !text.is_empty()),
            _ => None,
        }
    }

    /// A list; none is an empty one.
    pub fn texts(&self, name: &str) -> &[String] {
        match self.get(name) {
            Some(AttributeValue::Texts(all)) => all,
            _ => &[],
        }
    }

    /// A dictionary; none is an empty one.
    pub fn pairs(&self, name: &str) -> &[TextPair] {
        match self.get(name) {
            Some(AttributeValue::Pairs(all)) => all,
            _ => &[],
        }
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(AttributeValue::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// Whether a boolean attribute is true.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some(&AttributeValue::True)
    }

    /// An implementation-specific attribute.
    pub fn extra(&self, name: &str) -> Option<&str> {
        let found = self.pairs(EXTRAS).iter().find(|pair| pair.key == name);
        found.map(|pair| pair.value.as_str())
    }

    /// As words of a line: `name=value`, a word for each entry of a list. [`decode`](Self::decode) reads it.
    pub fn encode(&self) -> String {
        let mut line = String::new();
        let mut word = |kind: char, name: &str, value: &str| {
            let _ = write!(line, " {kind}{name}={}", escape(value));
        };
        for (name, value) in self.iter() {
            match value {
                AttributeValue::Text(text) => word('s', name, text),
                AttributeValue::Texts(all) => all.iter().for_each(|text| word('l', name, text)),
                AttributeValue::Pairs(all) => all.iter().for_each(|pair| {
                    word('k', name, &pair.key);
                    word('v', name, &pair.value);
                }),
                AttributeValue::Number(number) => word('n', name, &number.to_string()),
                AttributeValue::True => word('t', name, ""),
                // Records are not kept, only what programs ask for.
                AttributeValue::Machines(_)
                | AttributeValue::Real(_)
                | AttributeValue::Version(_) => {}
            }
        }
        line
    }

    /// Reads what [`encode`](Self::encode) wrote; words of another form, as a later version may write, are left out.
    pub fn decode<'a>(words: impl Iterator<Item = &'a str>) -> AttributeMap {
        let mut all = AttributeMap::default();
        for word in words {
            let Some((head, value)) = word.split_once('=') else {
                continue;
            };
            let (Some(kind), Some(value)) = (head.chars().next(), unescape(value)) else {
                continue;
            };
            all.add(kind, &head[kind.len_utf8()..], value);
        }
        all
    }

    fn add(&mut self, kind: char, name: &str, value: String) {
        match kind {
            's' => self.put(name, AttributeValue::Text(value)),
            't' => self.put(name, AttributeValue::True),
            'n' => self.put(name, value.parse().ok().map(AttributeValue::Number)),
            'l' => match self.0.get_mut(name) {
                Some(AttributeValue::Texts(list)) => list.push(value),
                _ => self.put(name, AttributeValue::Texts(vec![value])),
            },
            'k' => {
                let pair = TextPair {
                    key: value,
                    value: String::new(),
                };
                match self.0.get_mut(name) {
                    Some(AttributeValue::Pairs(list)) => list.push(pair),
                    _ => self.put(name, AttributeValue::Pairs(vec![pair])),
                }
            }
            'v' => {
                if let Some(AttributeValue::Pairs(list)) = self.0.get_mut(name)
                    && let Some(pair) = list.last_mut()
                {
                    pair.value = value;
                }
            }
            _ => {}
        }
    }
}

/// Letters, digits and a few signs as they are, other bytes as `%XX`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'/' | b',' | b':' => {
                out.push(char::from(byte));
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// The text that [`escape`] was given.
pub fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let digits = tail.get(..2)?;
        out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &tail[2..];
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut all = AttributeMap::default();
        all.put_text("remoteCommand", "/bin/echo a=b\n%");
        all.put_text("jobName", "");
        let list = ["", "two words", "ü"].map(str::to_owned).to_vec();
        all.put("args", AttributeValue::Texts(list));
        let pair = |key: &str, value: &str| TextPair {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        all.put(
            "jobEnvironment",
            AttributeValue::Pairs(vec![pair("A", "1 2"), pair("B", "")]),
        );
        all.put("minSlots", AttributeValue::Number(-3));
        all.put("joinFiles", AttributeValue::True);
        let line = all.encode();
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(AttributeMap::decode(line.split(' ')), all);
        assert_eq!(all.text("jobName"), None);
    }

    #[test]
    fn damaged_words_are_left_out() {
        let words = "x sa=%4 sb=%zz nc=x vd=1 sok=1 =";
        let all = AttributeMap::decode(words.split(' '));
        assert_eq!(all.iter().count(), 1);
        assert_eq!(all.text("ok"), Some("1"));
    }

    #[test]
    fn versions_end_at_the_first_dot() {
        let parts = |text: &str| {
            let own = VersionText::of(text);
            format!("{}|{}", own.major, own.minor)
        };
        assert_eq!(
            [parts("6.1.0-18"), parts("7")],
            ["6|1.0-18".to_owned(), "7|0".to_owned()]
        );
    }
}
