//! Licenses of the cluster: counts of things that jobs hold while they run, wherever they run (`Licenses=`,
//! `--licenses`), and how they are written.

use crate::validate::Validate;
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};

/// A number of licenses of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate)]
pub struct LicenseCount {
    /// Their name.
    #[n(0)]
    pub name: String,
    /// Number of licenses.
    #[n(1)]
    pub count: u32,
}

impl LicenseCount {
    /// Licenses of this name.
    pub fn new(name: &str, count: u32) -> LicenseCount {
        LicenseCount {
            name: name.to_owned(),
            count,
        }
    }
}

/// Each name once.
pub type Counts = Vec<LicenseCount>;

/// Reads `foo:4,bar`, as `Licenses=` of slurm.conf has it; `None` for a malformed text.
pub fn parse(text: &str) -> Option<Counts> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for word in text
        .split([',', ';'])
        .map(str::trim)
        .filter(|w| !w.is_empty())
    {
        let (name, count) = match word.split_once([':', '=']) {
            Some((name, count)) => (name, count.parse().ok()?),
            None => (word, 1),
        };
        if name.is_empty() || name.contains(char::is_whitespace) {
            return None;
        }
        let sum = counts.entry(name).or_default();
        *sum = sum.checked_add(count)?;
    }
    let named = counts.into_iter();
    Some(
        named
            .map(|(name, count)| LicenseCount::new(name, count))
            .collect(),
    )
}

/// Reads `--licenses`: all of what commas separate, or one of what `|` separates; `None` if it is neither. An alternative
/// that is named again is there once.
pub fn parse_ask(text: &str) -> Option<Vec<Counts>> {
    if !text.contains('|') {
        return Some(vec![parse(text)?]);
    }
    if text.contains(',') {
        return None;
    }
    let mut all = text
        .split('|')
        .map(parse)
        .collect::<Option<Vec<Counts>>>()?;
    let mut seen = BTreeSet::new();
    let is_first: Vec<bool> = all.iter().map(|one| seen.insert(one)).collect();
    let mut is_first = is_first.into_iter();
    all.retain(|_| is_first.next() != Some(false));
    all.iter().all(|one| one.len() == 1).then_some(all)
}

/// One license, as `scontrol show licenses` tells it.
#[derive(Clone, Debug, Default, PartialEq, minicbor::Encode, minicbor::Decode)]
pub struct License {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// Number of all.
    #[n(1)]
    pub total: u32,
    /// Number in use by jobs.
    #[n(2)]
    pub used: u32,
    /// Number in use by active reservations.
    #[n(3)]
    pub reserved: u32,
    /// Whether they are a server's, of which other clusters have some as well.
    #[n(4)]
    #[cbor(default)]
    pub remote: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        let one = LicenseCount::new;
        assert_eq!(parse("foo:4,bar"), Some(vec![one("bar", 1), one("foo", 4)]));
        assert_eq!(parse("foo=2;foo"), Some(vec![one("foo", 3)]));
        assert_eq!(parse("foo:x"), None);
        assert_eq!(parse(":3"), None);
        let either = vec![vec![one("foo", 2)], vec![one("bar", 1)]];
        assert_eq!(parse_ask("foo:2|bar"), Some(either.clone()));
        assert_eq!(
            parse_ask("foo:2|bar|foo:2|bar:1|foo=2"),
            Some(either.clone())
        );
        assert_eq!(
            parse_ask(&"foo:2|bar|".repeat(6000)[..59_999]),
            Some(either)
        );
        assert_eq!(parse_ask("foo|bar,baz"), None);
        assert_eq!(parse_ask("foo|"), None);
    }
}
